"""Bills of materials (CycloneDX 1.6, JSON)."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.domain.target import Target
from advisor.locks.documents import Document, DocumentFormat, Entry, package_of
from advisor.locks.interface import PackageToLock, StackToLock
from knowledge.domain.errors import InputError
from knowledge.domain.extras import needs_extra

if TYPE_CHECKING:
    from cyclonedx.model.component import Component
    from cyclonedx.model.license import License

_DISTRIBUTION = "seshat-advisor"


class _CycloneDX(DocumentFormat):
    name = "bom.json"
    order = 7
    read_names = ("*.cdx.json",)
    written_names = ("NAME.cdx.json",)
    is_json = True

    def reads(self, path: Path) -> bool:
        """Whether a file has a usual name of bills of materials."""
        return path.name.endswith((".cdx.json", "bom.json"))

    def current(self, directory: Path) -> None:
        """Return none: a bill of materials is a lock only if somebody names it."""

    def entries(self, document: Document, target: Target) -> Iterator[Entry]:
        """Yield the Python packages."""
        for place, component in enumerate(document["components"]):
            with package_of(component, place):
                if str(component.get("purl", "")).startswith("pkg:pypi/"):
                    hashes = [h["content"] for h in component.get("hashes", ()) if h.get("alg") == "SHA-256"]
                    yield Entry(
                        name=component["name"],
                        version=component["version"],
                        hashes=tuple(f"sha256:{digest}" for digest in hashes),
                    )

    def write(self, path: Path, stacks: Sequence[StackToLock]) -> str:
        """Return a bill of materials: every package with its file, hash, licences and dependencies.

        The same stack gives the same serial number, which is derived from the content. The time is that of the variable
        ``SOURCE_DATE_EPOCH``; without it, the time of the replaced file if nothing else changes, else the current time.

        Raises:
            InputError: If ``SOURCE_DATE_EPOCH`` is not a time.
        """
        (stack,) = stacks
        document = _document(stack, path.parent)
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
        document["metadata"]["timestamp"] = _timestamp(document["serialNumber"], path)
        return json.dumps(document, indent=2, sort_keys=True) + "\n"


def _document(stack: StackToLock, folder: Path) -> dict[str, Any]:
    """Return a bill of materials as the library writes it."""
    with needs_extra("sbom", "a CycloneDX file"):
        from cyclonedx.model.bom import Bom
        from cyclonedx.model.component import Component, ComponentType
        from cyclonedx.output.json import JsonV1Dot6

    project, licenses, dependencies = (
        stack.details.project(folder),
        stack.details.licenses(),
        stack.details.dependencies(),
    )
    root = Component(
        name=project.name,
        version=project.version,
        type=ComponentType.APPLICATION,
        bom_ref=f"project:{project.name}",
    )
    components = {package.name: _component(package, licenses.get(package.name, ())) for package in stack.packages}
    bom = Bom(components=components.values())
    bom.metadata.component = root
    bom.metadata.tools.components.add(_tool())
    for parent in sorted({*components, *dependencies}):
        required = [components[name] for name in sorted(dependencies.get(parent, ())) if name in components]
        bom.register_dependency(components.get(parent, root), required)
    document: dict[str, Any] = json.loads(JsonV1Dot6(bom).output_as_string())
    return document


def _component(package: PackageToLock, licenses: Sequence[str]) -> Component:
    from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

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


def _timestamp(serial: str, path: Path) -> str:
    """Return the time of a bill of materials that will be written to a path (ISO 8601, UTC, whole seconds).

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
    return _stored_time(serial, path) or datetime.now(UTC).replace(microsecond=0).isoformat()


def _stored_time(serial: str, path: Path) -> str | None:
    """Return the time in the present file if it has the same serial number; none if there is no valid one."""
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
        if document["serialNumber"] != serial:
            return None
        time = datetime.fromisoformat(document["metadata"]["timestamp"])
        return time.isoformat() if time.tzinfo is not None else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


FORMAT = _CycloneDX()
