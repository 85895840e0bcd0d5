"""Writes a software bill of materials (CycloneDX 1.6, JSON)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from packaging.utils import NormalizedName

from advisor.index.page import DistributionFile
from advisor.resolve.problem import Candidate
from knowledge.domain.extras import needs_extra

if TYPE_CHECKING:
    import networkx


def write_sbom(
    stack: Sequence[Candidate],
    files: Mapping[NormalizedName, DistributionFile],
    graph: networkx.DiGraph[NormalizedName],
    *,
    project: str,
) -> str:
    """Return a bill of materials of a stack: every package with its file, its hash and what it depends on.

    The same stack gives the same bytes: the serial number is made from the content, and there is no time of writing.

    Args:
        stack: The packages, sorted by name.
        files: By package, the file with its size and hash filled in.
        graph: Who requires whom.
        project: Name of the project that the stack is for.
    """
    with needs_extra("sbom", "a CycloneDX file"):
        from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
        from cyclonedx.model.bom import Bom
        from cyclonedx.model.component import Component, ComponentType
        from cyclonedx.output.json import JsonV1Dot6
        from packageurl import PackageURL

    own = Component(name=project, type=ComponentType.APPLICATION, bom_ref=f"project:{project}")
    components: dict[NormalizedName, Component] = {}
    for candidate in stack:
        file = files[candidate.name]
        url = PackageURL(type="pypi", name=candidate.name, version=str(candidate.version))
        components[candidate.name] = Component(
            name=candidate.name,
            version=str(candidate.version),
            type=ComponentType.LIBRARY,
            purl=url,
            bom_ref=url.to_string(),
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=file.sha256 or "")],
            external_references=[ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=XsUri(file.url))],
        )
    bom = Bom(components=components.values())
    bom.metadata.component = own
    for parent in sorted(graph):
        required = [components[name] for name in sorted(graph.successors(parent)) if name in components]
        bom.register_dependency(components.get(parent, own), required)
    document = json.loads(JsonV1Dot6(bom).output_as_string())
    document["metadata"].pop("timestamp", None)
    document.pop("serialNumber", None)
    # The library keeps sets: their order is not the same in every run.
    document["components"].sort(key=lambda component: component["bom-ref"])
    document["dependencies"].sort(key=lambda dependency: dependency["ref"])
    for dependency in document["dependencies"]:
        dependency.get("dependsOn", []).sort()
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document, sort_keys=True))
    document["serialNumber"] = f"urn:uuid:{serial}"
    return json.dumps(document, indent=2, sort_keys=True) + "\n"
