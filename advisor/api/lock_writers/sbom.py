"""Writes a software bill of materials (CycloneDX 1.6, JSON)."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from packaging.utils import NormalizedName

from advisor.api.lock_writers.direct import without_password
from advisor.index.pages.page import DistributionFile
from advisor.project.formats.pyproject import ProjectIdentity
from advisor.resolve.candidates.problem import Candidate
from knowledge.domain.errors import InputError
from knowledge.domain.extras import needs_extra

if TYPE_CHECKING:
    import networkx
    from cyclonedx.model.component import Component
    from cyclonedx.model.license import License

_DISTRIBUTION = "seshat-advisor"


def write_sbom(
    stack: Sequence[Candidate],
    files: Mapping[NormalizedName, DistributionFile],
    graph: networkx.DiGraph[NormalizedName],
    *,
    licenses: Mapping[NormalizedName, Sequence[str]],
    project: ProjectIdentity,
    previous: str = "",
) -> str:
    """Return a bill of materials of a stack: every package with its file, hash, licences and dependencies.

    The same stack gives the same serial number, which is derived from the content. The time is that of the variable
    ``SOURCE_DATE_EPOCH``; without it, the time of the previous file if nothing else changes, else the current time.

    Args:
        stack: The packages, sorted by name.
        files: By package, the file with its size and hash filled in; none for repositories and directories.
        graph: The dependency graph of the stack.
        licenses: By package, what it states as its licences.
        project: The project that the stack is for.
        previous: Text of the file that is replaced; empty if there is none.

    Raises:
        InputError: If ``SOURCE_DATE_EPOCH`` is not a time.
    """
    with needs_extra("sbom", "a CycloneDX file"):
        from cyclonedx.model.bom import Bom
        from cyclonedx.model.component import Component, ComponentType
        from cyclonedx.output.json import JsonV1Dot6

    root = Component(
        name=project.name,
        version=project.version,
        type=ComponentType.APPLICATION,
        bom_ref=f"project:{project.name}",
    )
    components = {c.name: _component(c, files.get(c.name, c.file), licenses.get(c.name, ())) for c in stack}
    bom = Bom(components=components.values())
    bom.metadata.component = root
    bom.metadata.tools.components.add(_tool())
    for parent in sorted(graph):
        required = [components[name] for name in sorted(graph.successors(parent)) if name in components]
        bom.register_dependency(components.get(parent, root), required)
    document = json.loads(JsonV1Dot6(bom).output_as_string())
    del document["metadata"]["timestamp"]
    document.pop("serialNumber", None)
    # The library uses sets, whose order differs from run to run.
    document.setdefault("components", []).sort(key=lambda component: component["bom-ref"])
    document["dependencies"].sort(key=lambda dependency: dependency["ref"])
    for component in document["components"]:
        component.get("licenses", []).sort(key=json.dumps)
    for dependency in document["dependencies"]:
        dependency.get("dependsOn", []).sort()
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document, sort_keys=True))
    document["serialNumber"] = f"urn:uuid:{serial}"
    document["metadata"]["timestamp"] = _timestamp(document["serialNumber"], previous)
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def _component(candidate: Candidate, file: DistributionFile, licenses: Sequence[str]) -> Component:
    from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    reference = without_password(candidate.direct) if candidate.direct else None
    qualifiers, kind, address = {}, ExternalReferenceType.DISTRIBUTION, file.url
    if reference is not None:
        # https://github.com/package-url/purl-spec/blob/main/PURL-SPECIFICATION.rst#known-qualifiers-keyvalue-pairs
        is_vcs, address = reference.kind == "vcs", reference.address
        if not reference.is_local:
            qualifiers = {"vcs_url" if is_vcs else "download_url": address}
        kind = ExternalReferenceType.VCS if is_vcs else kind
    purl = PackageURL(type="pypi", name=candidate.name, version=str(candidate.version), qualifiers=qualifiers)
    references = [ExternalReference(type=kind, url=XsUri(address))]
    return Component(
        name=candidate.name,
        version=str(candidate.version),
        type=ComponentType.LIBRARY,
        purl=purl,
        bom_ref=purl.to_string(),
        licenses=_licenses(licenses),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=file.sha256)] if file.sha256 else [],
        # A path of this machine says nothing to others.
        external_references=[] if reference is not None and reference.is_local else references,
    )


def _licenses(texts: Sequence[str]) -> list[License]:
    """Return licences as CycloneDX has them: one SPDX expression, or several identifiers and names."""
    from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
    from cyclonedx.spdx import fixup_id, is_expression

    if len(texts) == 1 and fixup_id(texts[0]) is None and is_expression(texts[0]):
        return [LicenseExpression(texts[0])]
    identifiers = {text: fixup_id(text) for text in texts}
    return [DisjunctiveLicense(id=id) if id else DisjunctiveLicense(name=text) for text, id in identifiers.items()]


def _tool() -> Component:
    """Return this program as a component."""
    from importlib.metadata import version

    from cyclonedx.model.component import Component, ComponentType

    return Component(name=_DISTRIBUTION, version=version(_DISTRIBUTION), type=ComponentType.APPLICATION)


def _timestamp(serial: str, previous: str) -> str:
    """Return the time of a bill of materials (ISO 8601, UTC, whole seconds).

    Raises:
        InputError: If ``SOURCE_DATE_EPOCH`` is not a time (https://reproducible-builds.org/specs/source-date-epoch/).
    """
    if (epoch := os.environ.get("SOURCE_DATE_EPOCH")) is not None:
        try:
            return datetime.fromtimestamp(int(epoch), UTC).isoformat()
        except (ValueError, OverflowError, OSError):
            raise InputError(
                f"the variable `SOURCE_DATE_EPOCH` is `{epoch}`, which is not a time",
                hint="set it to seconds since 1970-01-01 UTC, as `git log -1 --format=%ct` prints them, or unset it",
            ) from None
    return _stored_time(serial, previous) or datetime.now(UTC).replace(microsecond=0).isoformat()


def _stored_time(serial: str, previous: str) -> str | None:
    """Return the time in a former bill of materials with the same serial number; none if there is no valid one."""
    try:
        document: Any = json.loads(previous)
        if document["serialNumber"] != serial:
            return None
        time = datetime.fromisoformat(document["metadata"]["timestamp"])
        return time.isoformat() if time.tzinfo is not None else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
