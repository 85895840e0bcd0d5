"""Bills of materials (CycloneDX 1.6), with the library that they need: imported only to write one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, License, LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.spdx import fixup_id, is_expression
from packageurl import PackageURL

from advisor.locks.interface import PackageToLock, StackToLock

_DISTRIBUTION = "seshat-advisor"


def bill_of_materials(stack: StackToLock, folder: Path) -> dict[str, Any]:
    """Return a bill of materials of a stack as the library writes it."""
    project = stack.details.project(folder)
    licenses, dependencies = stack.details.licenses(), stack.details.dependencies()
    application = ComponentType.APPLICATION
    root = Component(name=project.name, version=project.version, type=application, bom_ref=f"project:{project.name}")
    components = {package.name: _component(package, licenses.get(package.name, ())) for package in stack.packages}
    bom = Bom(components=components.values())
    bom.metadata.component = root
    program = Component(name=_DISTRIBUTION, version=version(_DISTRIBUTION), type=application)
    bom.metadata.tools.components.add(program)
    for parent in sorted({*components, *dependencies}):
        required = [components[name] for name in sorted(dependencies.get(parent, ())) if name in components]
        bom.register_dependency(components.get(parent, root), required)
    document: dict[str, Any] = json.loads(JsonV1Dot6(bom).output_as_string())
    return document


def _component(package: PackageToLock, licenses: Sequence[str]) -> Component:
    reference = package.direct
    qualifiers, kind, address = {}, ExternalReferenceType.DISTRIBUTION, package.file.url if package.file else ""
    if reference is not None:
        # https://github.com/package-url/purl-spec/blob/main/PURL-SPECIFICATION.rst#known-qualifiers-keyvalue-pairs
        is_vcs, address = reference.kind == "vcs", reference.address
        if not reference.is_local:
            qualifiers = {"vcs_url" if is_vcs else "download_url": address}
        kind = ExternalReferenceType.VCS if is_vcs else kind
    purl = PackageURL(type="pypi", name=package.name, version=str(package.version), qualifiers=qualifiers)
    references = [ExternalReference(type=kind, url=XsUri(address))]
    return Component(
        name=package.name,
        version=str(package.version),
        type=ComponentType.LIBRARY,
        purl=purl,
        bom_ref=purl.to_string(),
        licenses=_licenses(licenses),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=package.sha256)] if package.sha256 else [],
        # A path of this machine says nothing to others.
        external_references=[] if reference is not None and reference.is_local else references,
    )


def _licenses(texts: Sequence[str]) -> list[License]:
    """Return licences as CycloneDX has them: one SPDX expression, or several identifiers and names."""
    if len(texts) == 1 and fixup_id(texts[0]) is None and is_expression(texts[0]):
        return [LicenseExpression(texts[0])]
    identifiers = {text: fixup_id(text) for text in texts}
    return [DisjunctiveLicense(id=id) if id else DisjunctiveLicense(name=text) for text, id in identifiers.items()]
