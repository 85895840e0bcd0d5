"""Variant wheels in a `pylock.toml`: their names, and the table that describes their variants (PEP 825)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from packaging.pylock import Pylock

from advisor.index.pages.filenames import split_variant_label
from advisor.index.variants.metadata import VariantMetadata


def validate(lock: Pylock) -> None:
    """Check a lock. Names of variant wheels are checked without their labels, which `packaging` does not know.

    Args:
        lock: The lock.

    Raises:
        PylockValidationError: If it is not valid.
    """
    packages = [
        replace(
            package,
            wheels=package.wheels
            and [replace(wheel, name=split_variant_label(wheel.filename)[0]) for wheel in package.wheels],
        )
        for package in lock.packages
    ]
    replace(lock, packages=packages).validate()


def add_variants(document: Mapping[str, Any], variants: Mapping[str, VariantMetadata]) -> None:
    """Add the description of the locked variants to each package that has some.

    Args:
        document: The lock as TOML values; its packages are changed.
        variants: The variants of the locked version, by package.
    """
    for package in document["packages"]:
        labels = [split_variant_label(wheel["name"])[1] for wheel in package.get("wheels", ())]
        if any(labels) and package["name"] in variants:
            package["variants-json"] = variants[package["name"]].restricted_to(filter(None, labels))
