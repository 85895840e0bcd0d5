"""Variant wheels and the files that describe them (PEP 825), for an index of tests."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

from tests.package_index import PackageIndex

SCHEMA = "https://variants-schema.wheelnext.dev/peps/825/v0.1.1.json"
Properties = Mapping[str, Mapping[str, Sequence[str]]]

CUDA_13 = {"nvidia": {"cuda_version_lower_bound": ["13.0"], "sm_arch": ["75_real", "80_real", "90_real"]}}
CUDA_12 = {"nvidia": {"cuda_version_lower_bound": ["12.6"], "sm_arch": ["70_real", "80_real", "90_real"]}}
AVX512 = {"x86_64": {"level": ["v4"]}}
AVX2 = {"x86_64": {"level": ["v3"]}}
ALL: dict[str, Properties] = {"cu130": CUDA_13, "cu126": CUDA_12, "x86_64_v4": AVX512, "x86_64_v3": AVX2, "null": {}}


def description(
    variants: Mapping[str, Properties], *, namespaces: Sequence[str] = ("nvidia", "x86_64"), schema: str = SCHEMA
) -> dict[str, Any]:
    """Return variant metadata as JSON values."""
    return {"$schema": schema, "default-priorities": {"namespace": list(namespaces)}, "variants": dict(variants)}


def wheel(name: str, version: str, label: str, variants: Mapping[str, Properties], requires: Sequence[str]) -> bytes:
    """Return a wheel of one module; with a label, of that variant."""
    lines = ["Metadata-Version: 2.2", f"Name: {name}", f"Version: {version}"]
    content = io.BytesIO()
    folder = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(f"{name}/__init__.py", f"variant = {label!r}\n")
        archive.writestr(f"{folder}/METADATA", "\n".join([*lines, *(f"Requires-Dist: {r}" for r in requires), ""]))
        archive.writestr(f"{folder}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{folder}/RECORD", "")
        if label:
            archive.writestr(f"{folder}/variant.json", json.dumps(description({label: variants[label]})))
    return content.getvalue()


def filename(name: str, version: str, label: str = "") -> str:
    """Return the name of a wheel."""
    return f"{name}-{version}-py3-none-any{f'-{label}' if label else ''}.whl"


def add_variants(
    index: PackageIndex,
    name: str,
    version: str,
    variants: Mapping[str, Properties],
    *,
    requires: Sequence[str] = (),
    plain: bool = True,
    described: object = None,
) -> None:
    """Add a wheel of each variant, and the file that describes them.

    Args:
        index: The index.
        name: Name of the package.
        version: Its version.
        variants: Properties of each variant, by label.
        requires: Requirements of every wheel.
        plain: Whether there is a wheel without a variant, too.
        described: What the file contains; by default, the variants.
    """
    for label in (*variants, *([""] if plain else [])):
        index.add_file(name, filename(name, version, label), wheel(name, version, label, variants, requires))
    if described is None:
        described = description(variants)
    body = described if isinstance(described, bytes) else json.dumps(described).encode()
    index.add_file(name, f"{name}-{version}-variants.json", body)
