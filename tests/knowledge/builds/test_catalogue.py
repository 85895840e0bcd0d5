"""The shipped catalogue of builds is consistent, and malformed entries are reported."""

from __future__ import annotations

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from knowledge.catalogue.builds import (
    Build,
    BuildExtra,
    BuildFamily,
    CatalogueEntry,
    FrameworkIndex,
    Replacement,
    build_of_local_version,
    shipped_builds,
)
from knowledge.catalogue.entries import read_entries
from knowledge.domain.hardware import Accelerator, Cpu, HardwareProfile

INDEXES = tuple(entry for entry in shipped_builds() if isinstance(entry, FrameworkIndex))
FAMILIES = tuple(entry for entry in shipped_builds() if isinstance(entry, BuildFamily))
EXTRAS = tuple(entry for entry in shipped_builds() if isinstance(entry, BuildExtra))
REPLACEMENTS = tuple(entry for entry in shipped_builds() if isinstance(entry, Replacement))
VENDORS = {"cuda": "nvidia", "rocm": "amd", "xpu": "intel"}


def machine(vendor: str | None, os: str = "linux", architecture: str = "x86_64") -> HardwareProfile:
    accelerators = (Accelerator(vendor=vendor, model="a GPU"),) if vendor else ()
    cpu = Cpu(architecture=architecture, microarchitecture=architecture)
    return HardwareProfile(name="made-up", os=os, cpu=cpu, accelerators=accelerators)


def test_the_catalogue_has_entries_of_each_kind_in_order_and_each_once() -> None:
    names = [entry.id for entry in shipped_builds()]

    assert min(map(len, (INDEXES, EXTRAS, REPLACEMENTS))) > 5
    assert FAMILIES
    assert names == sorted(set(names))


def test_every_entry_names_a_source_and_valid_specifiers() -> None:
    for entry in shipped_builds():
        assert entry.source.startswith("https://"), entry.id
    defaults = [default for family in FAMILIES for default in family.defaults]
    specifiers = {holder.versions for holders in (EXTRAS, REPLACEMENTS, defaults) for holder in holders}
    assert len(specifiers) > 10
    for specifier in specifiers:
        SpecifierSet(specifier)


def test_every_index_has_its_own_address_and_packages() -> None:
    assert len({index.url.rstrip("/") for index in INDEXES}) == len(INDEXES)
    for index in INDEXES:
        assert index.url.startswith("https://"), index.id
        assert len(set(index.packages)) == len(index.packages) > 0, index.id


def test_the_address_of_an_index_names_its_build() -> None:
    for index in INDEXES:
        assert build_of_local_version(index.url.rstrip("/").rpartition("/")[2]) == index.build, index.id


def test_an_exclusive_package_is_on_its_index_and_on_indexes_of_one_runtime() -> None:
    exclusive = {name for index in INDEXES for name in index.exclusive}

    assert {"pytorch-triton-rocm", "triton-xpu"} <= exclusive
    for index in INDEXES:
        assert set(index.exclusive) <= set(index.packages), index.id
    for name in exclusive:
        assert len({index.runtime for index in INDEXES if name in index.packages}) == 1, name
        assert all(name in index.exclusive for index in INDEXES if name in index.packages), name


def test_the_packages_of_a_family_have_indexes_for_each_of_its_default_builds() -> None:
    for family in FAMILIES:
        for name in family.packages:
            runtimes = {index.runtime for index in INDEXES if name in index.packages}
            assert runtimes >= {"cpu", *(default.runtime for default in family.defaults)}, name
        for default in family.defaults:
            assert set(default.packages) <= set(family.packages)


@pytest.mark.parametrize(
    ("package", "version", "os", "architecture", "build"),
    [
        ("torch", "2.10.0", "linux", "x86_64", Build(runtime="cuda")),
        ("torch", "2.10.0", "linux", "aarch64", Build(runtime="cpu")),
        ("torch", "2.11.0", "linux", "aarch64", Build(runtime="cuda")),
        ("torchvision", "0.25.0", "linux", "aarch64", Build(runtime="cpu")),
        ("torchvision", "0.26.0", "linux", "aarch64", Build(runtime="cuda")),
        ("torchaudio", "2.11.0", "linux", "aarch64", Build(runtime="cuda", version="13.0")),
        ("torchaudio", "2.11.0", "linux", "x86_64", Build(runtime="cuda", version="13.0")),
        ("torchaudio", "2.11.1", "linux", "x86_64", Build(runtime="cuda")),
        ("torchaudio", "2.11.0", "windows", "AMD64", Build(runtime="cpu")),
        ("torch", "2.14.0", "windows", "AMD64", Build(runtime="cpu")),
        ("torch", "2.14.0", "darwin", "arm64", Build(runtime="cpu")),
        ("torch", "2.14.0+cu126", "windows", "AMD64", Build(runtime="cuda", version="12.6")),
        ("torch", "2.14.0+rocm7.14", "linux", "x86_64", Build(runtime="rocm", version="7.14")),
        ("torchvision", "0.29.0+cpu", "linux", "x86_64", Build(runtime="cpu")),
    ],
)
def test_the_build_of_a_pytorch_file(package: str, version: str, os: str, architecture: str, build: Build) -> None:
    (family,) = (family for family in FAMILIES if family.id == "pytorch")

    assert family.build_of(package, Version(version), machine(None, os, architecture)) == build


def test_a_replacement_fits_machines_of_its_hardware_only() -> None:
    for entry in REPLACEMENTS:
        fitting = {vendor for vendor in (None, *VENDORS.values()) if entry.fits(machine(vendor, entry.os[0], "x86_64"))}
        expected = {"any": {None, *VENDORS.values()}, "cpu": {None}}.get(entry.when) or {VENDORS[entry.when]}
        assert fitting == expected, entry.id
        assert not entry.fits(machine(None, os="freebsd"))


def test_replacements_in_both_directions_are_for_different_hardware_or_have_conditions() -> None:
    directions = {(entry.package, entry.replacement): entry for entry in REPLACEMENTS if entry.when != "any"}
    pairs = [(entry, directions.get((entry.replacement, entry.package))) for entry in REPLACEMENTS]

    assert any(other for _, other in pairs)
    for entry, other in pairs:
        assert entry.package != entry.replacement
        if other is not None:
            assert entry.modules == other.modules
            assert entry.when != other.when or (entry.condition and other.condition), entry.id


def test_a_replacement_for_any_hardware_has_a_condition_unless_the_package_has_another_name_only() -> None:
    unconditional = {entry.id for entry in REPLACEMENTS if entry.when == "any" and not entry.condition}

    assert unconditional == {"tensorflow-gpu-to-tensorflow"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- {kind: index, id: x, url: u, packages: [a], runtime: tpu, source: s}", "entry `x`: field `index.runtime`"),
        ("- {kind: index, id: x, url: u, runtime: cpu, source: s}", "entry `x`: field `index.packages`"),
        (
            "- {kind: family, id: x, packages: [a], source: s, defaults: [{os: [linux]}]}",
            "entry `x`: field `family.defaults.0.runtime`",
        ),
        (
            "- {kind: extra, id: x, package: a, extras: [b], runtime: cuda, source: s, note: n}",
            "entry `x`: field `extra.note`",
        ),
        ("- {kind: wheel, id: x}", "entry `x`: .*'index', 'family', 'extra', 'replacement'"),
    ],
)
def test_the_error_of_a_malformed_entry_names_entry_and_field(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(read_entries(text, CatalogueEntry))
