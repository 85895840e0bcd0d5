"""Wheel variants (PEP 825): file names, their description, what hardware supports, their order, markers."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker
from packaging.requirements import InvalidRequirement
from packaging.version import Version

from advisor.index.limits import VARIANTS_BYTES
from advisor.index.pages.filenames import file_key, parse_variants_filename, split_variant_label, version_of
from advisor.index.variants.markers import VariantEnvironment, requirements_for, uses_variants
from advisor.index.variants.metadata import parse_variants
from advisor.index.variants.order import order_variants, why_unsupported, with_static_properties
from knowledge.catalogue.variant_properties import supported_properties
from knowledge.domain.hardware import Driver, HardwareProfile
from knowledge.hardware.profiles import find_profile
from pi_runners.execution.environment import find_uv
from tests.advisor.variant_wheels import ALL, description

H100, V100, ZEN3 = (find_profile(name) for name in ("h100", "v100", "cpu-zen3"))
OLD_DRIVER = replace(H100, driver=Driver(version="535.104.05", newest_cuda="12.2"))
DRIVER_126 = replace(H100, driver=Driver(version="560.35.03", newest_cuda="12.6"))


def order(document: dict[str, Any], hardware: HardwareProfile) -> tuple[str, ...]:
    """Return the labels that a machine supports, the best first."""
    metadata = parse_variants(json.dumps(document).encode())
    return order_variants(metadata, with_static_properties(supported_properties(hardware), metadata))


@pytest.mark.parametrize(
    ("filename", "plain", "label"),
    [
        ("numpy-2.3.2-cp313-cp313t-musllinux_1_2_x86_64.whl", "", ""),
        ("numpy-2.3.2-1-cp313-cp313t-musllinux_1_2_x86_64.whl", "", ""),
        (
            "numpy-2.3.2-cp313-cp313t-linux_x86_64-x86_64_v3.whl",
            "numpy-2.3.2-cp313-cp313t-linux_x86_64.whl",
            "x86_64_v3",
        ),
        ("numpy-2.3.2-1b-cp313-abi3-any-null.whl", "numpy-2.3.2-1b-cp313-abi3-any.whl", "null"),
        ("torch-2.13.0-cp313-cp313-win_amd64-cuda12.6.whl", "torch-2.13.0-cp313-cp313-win_amd64.whl", "cuda12.6"),
        ("a-1-py3-none-any-Upper.whl", "", ""),
        ("a-1-py3-none-any-.whl", "", ""),
        ("a-1-1-py3-none-any-x-y.whl", "", ""),
        ("a-1.tar.gz", "", ""),
    ],
)
def test_the_label_is_the_last_part_of_a_file_name(filename: str, plain: str, label: str) -> None:
    assert split_variant_label(filename) == (plain or filename, label)


def test_file_names_of_variants_differ_from_each_other_and_have_a_version() -> None:
    names = [f"a_b-1.0-py3-none-any{end}.whl" for end in ("", "-null", "-cu126")]

    assert len({file_key(name) for name in names}) == len(names)
    assert [version_of(name) for name in names] == [Version("1.0")] * 3
    assert file_key("A_B-1.0-py3-none-any-null.whl") == file_key("a.b-1-py3-none-any-null.whl")


def test_the_name_of_a_description_contains_project_and_version() -> None:
    assert parse_variants_filename("ruamel_yaml-1.0.post1-variants.json") == ("ruamel-yaml", Version("1.0.post1"))
    assert parse_variants_filename("a-variants.json") is None
    assert parse_variants_filename("a-b-1-variants.json") is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"$schema": "https://variants-schema.wheelnext.dev/v0.9.0.json"}, "0.9.0 of the format is not supported"),
        ({"$schema": "https://packaging.python.org/variants/2.0.0.json"}, "2.0.0 of the format is not supported"),
        ({"$schema": "newest"}, "contains no version"),
        ({"$schema": None}, "not an address"),
        ({"default-priorities": {}}, "`default-priorities.namespace` is not a list"),
        ({"default-priorities": {"namespace": ["x86_64"]}}, "does not contain `nvidia`"),
        ({"default-priorities": {"namespace": ["nvidia", "x86_64", "nvidia"]}}, "contains a text twice"),
        ({"default-priorities": {"namespace": ["nvidia", "x86_64", "A"]}}, "not a valid name"),
        ({"variants": []}, "`variants` is not an object"),
        ({"variants": {"Label": {}}}, "not a valid name"),
        ({"variants": {"null": {"nvidia": {"sm_arch": ["90_real"]}}}}, "the variant `null` has properties"),
        ({"variants": {"a": {"nvidia": {"sm_arch": []}}}}, "feature without values"),
        ({"variants": {"a": {"nvidia": {"sm_arch": "90_real"}}}}, "not a list of texts"),
        ({"variants": {"a": {"nvidia": {"sm_arch": ["90 real"]}}}}, "not a valid name"),
        ({"variants": {"a": {"nvidia": ["sm_arch"]}}}, "not an object"),
        (
            {"$schema": "https://packaging.python.org/variants/v1.0.0.json", "providers": {"\ud800": {}}},
            r"`providers` contains '\\ud800', which is not a valid name",
        ),
    ],
)
def test_a_malformed_description_is_refused(change: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_variants(json.dumps({**description(ALL), **change}).encode())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a": 1, "a": 2}',
        b'{"a": NaN}',
        b" " * (VARIANTS_BYTES + 1),
        b'{"$schema": ' + b"9" * 5000 + b"}",
    ],
    ids=["empty", "list", "open", "bytes", "deep", "twice", "constant", "large", "digits"],
)
def test_something_else_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="it is|it has|is not"):
        parse_variants(body)


def test_newer_minor_versions_and_unknown_keys_are_read() -> None:
    document = {**description(ALL, schema="https://packaging.python.org/variants/1.3.0.json"), "later": {"x": 1}}

    assert tuple(parse_variants(json.dumps(document).encode()).variants) == tuple(ALL)


@pytest.mark.parametrize(
    ("hardware", "expected"),
    [
        (H100, ("cu130", "cu126", "x86_64_v4", "x86_64_v3", "null")),
        (V100, ("cu126", "x86_64_v3", "null")),
        (DRIVER_126, ("cu126", "x86_64_v4", "x86_64_v3", "null")),
        (OLD_DRIVER, ("x86_64_v4", "x86_64_v3", "null")),
        (ZEN3, ("x86_64_v3", "null")),
        (find_profile("cpu-neoverse-v1"), ("null",)),
    ],
    ids=["h100", "v100", "driver for CUDA 12.6", "old driver", "without AVX-512", "aarch64"],
)
def test_hardware_decides_which_variants_are_supported(hardware: HardwareProfile, expected: tuple[str, ...]) -> None:
    assert order(description(ALL), hardware) == expected


def test_the_publisher_orders_namespaces() -> None:
    both = {"both": {**ALL["cu126"], **ALL["x86_64_v4"]}, **ALL}

    assert order(description(both), H100)[:3] == ("cu130", "both", "cu126")
    assert order(description(both, namespaces=["x86_64", "nvidia"]), H100)[:3] == ("both", "x86_64_v4", "x86_64_v3")


def test_a_variant_with_more_properties_comes_before_one_with_a_part_of_them() -> None:
    variants = {"less": ALL["x86_64_v3"], "more": {"x86_64": {"level": ["v3"], "avx2": ["on"]}}}

    assert order(description(variants), ZEN3) == ("more", "less")


def test_equal_variants_are_ordered_by_label() -> None:
    assert order(description({"b": ALL["x86_64_v3"], "a": ALL["x86_64_v3"]}), ZEN3) == ("a", "b")


def test_drafts_before_0_1_1_also_order_features_and_values() -> None:
    variants = {name: {"blas_lapack": {"provider": [name]}} for name in ("openblas", "mkl")}
    document = description(variants, namespaces=["blas_lapack"], schema="https://variants.example/v0.1.0.json")
    preferred = {**document["default-priorities"], "property": {"blas_lapack": {"provider": ["mkl"]}}}

    assert order(document, ZEN3) == ("openblas", "mkl")
    assert order({**document, "default-priorities": preferred}, ZEN3) == ("mkl", "openblas")


def test_the_publisher_may_list_properties_that_every_machine_supports() -> None:
    variants = {"debug": {"mine": {"kind": ["debug"]}}, "fast": {"mine": {"kind": ["fast"]}}}
    document = description(variants, namespaces=["mine"], schema="https://variants-schema.wheelnext.dev/v0.2.0.json")
    static = {"providers": {"mine": {"static-properties": {"kind": ["fast", "debug"]}}}}

    assert order(document, ZEN3) == ()
    assert order({**document, **static}, ZEN3) == ("fast", "debug")


@pytest.mark.parametrize(
    ("properties", "hardware", "reason"),
    [
        ({"quantum": {"bits": ("7",)}}, H100, "the namespace `quantum` is not known"),
        ({"amd": {"gfx_arch": ("gfx942",)}}, H100, "neither the ROCm version nor the gfx architecture"),
        ({"nvidia": {"sm_arch": ("90_real",)}}, ZEN3, "the machine has no NVIDIA GPU"),
        ({"nvidia": {"cuda_version_lower_bound": ("13.0",)}}, OLD_DRIVER, "at best `12.2`"),
        ({"nvidia": {"cuda_version_upper_bound": ("12",)}}, OLD_DRIVER, "must be `12`"),
        ({"x86_64": {"avx512f": ("on",)}}, ZEN3, "the target supports no value of it"),
    ],
)
def test_the_reason_names_what_is_not_supported(properties: Any, hardware: HardwareProfile, reason: str) -> None:
    assert reason in why_unsupported(properties, supported_properties(hardware))


def test_cuda_versions_are_those_of_the_provider() -> None:
    supported = supported_properties(OLD_DRIVER)
    lower = supported.values("nvidia", "cuda_version_lower_bound")
    upper = supported.values("nvidia", "cuda_version_upper_bound")

    assert lower[:5] == ("12.2", "12.1", "12.0", "12", "11.20")
    assert (lower[-1], upper[0], upper[-1]) == ("11", "15.20", "12.3")
    assert "13" in upper
    assert "12" not in upper
    assert supported.values("nvidia", "sm_arch") == ("90_real", "90_virtual")
    assert supported_properties(V100).values("nvidia", "sm_arch") == ("70_real", "70_virtual")


def test_a_driver_outside_the_range_of_the_provider_supports_nothing() -> None:
    for newest in (None, "10.2", "16.0"):
        hardware = replace(H100, driver=Driver(version="1", newest_cuda=newest))
        assert "nvidia" in supported_properties(hardware).missing


CU126 = VariantEnvironment(label="cu126", properties=("nvidia :: cuda_version_lower_bound :: 12.6",))


@pytest.mark.parametrize(
    ("marker", "expected"),
    [
        ("'nvidia' in variant_namespaces", ""),
        ("'amd' not in variant_namespaces", ""),
        ("'nvidia::cuda_version_lower_bound' in variant_features", ""),
        ("'nvidia  ::sm_arch' in variant_features", None),
        ('"nvidia :: cuda_version_lower_bound :: 12.6" in variant_properties', ""),
        ("variant_label == 'cu126'", ""),
        ("'cu126' != variant_label", None),
        ("variant_label in 'cu126 cu130'", ""),
        ("'rocm' not in variant_label", ""),
        ("(variant_label == '' or variant_label == 'null') and os_name == 'posix'", None),
        ("variant_label == 'x' or os_name == 'posix'", "os_name == 'posix'"),
        ("variant_label == 'cu126' and (extra == 'a' or extra == 'b')", "extra == 'a' or extra == 'b'"),
    ],
)
def test_markers_of_variants_are_evaluated(marker: str, expected: str | None) -> None:
    text = f"b>=1 ; {marker}"
    (requirement,) = requirements_for([text], CU126)

    assert uses_variants(text)
    for environment in ({"os_name": "posix", "extra": "a"}, {"os_name": "nt", "extra": ""}):
        applies = expected == "" or (expected is not None and Marker(expected).evaluate(environment))
        assert requirement.marker is not None
        assert requirement.marker.evaluate(environment) is applies


def test_a_wheel_without_a_variant_has_an_empty_label_and_no_properties() -> None:
    texts = ["b; variant_label == ''", "c; variant_label != 'null'", "d; 'nvidia' in variant_namespaces"]

    requirements = requirements_for(texts, VariantEnvironment())
    assert [r.name for r in requirements if r.marker is not None and r.marker.evaluate()] == ["b", "c"]


@pytest.mark.parametrize(
    "marker",
    [
        "variant_label >= 'a'",
        "variant_namespaces == 'a'",
        "variant_namespaces in 'a'",
        "variant_label == os_name",
        "variant_label == 'a' or python_versio > '3'",
        "variant_label == 'a' 'b'",
        "variant_label ==",
        "(variant_label == 'a'",
        "(" * 5000 + "variant_label == 'a'" + ")" * 5000,
        "variant_label == 'a' and €",
    ],
)
def test_malformed_markers_are_refused(marker: str) -> None:
    with pytest.raises(InvalidRequirement):
        requirements_for([f"b ; {marker}"], CU126)


def test_the_words_in_addresses_and_texts_are_no_markers() -> None:
    assert not uses_variants("b @ https://example.org/variant_label;x.zip")
    assert not uses_variants("b; os_name == 'variant_label'")
    assert uses_variants("b @ https://example.org/a;x.zip ; variant_label == ''")


ORACLE = """
import json, sys
from variantlib.models.variant import VariantProperty
from variantlib.resolver.lib import sort_and_filter_supported_variants
from variantlib.variants_json import VariantsJson
document, supported = json.load(sys.stdin)
variants = VariantsJson(document)
properties = [VariantProperty(n, f, v) for n, features in supported.items() for f, vs in features.items() for v in vs]
ordered = sort_and_filter_supported_variants(
    list(variants.variants.values()), properties, namespace_priorities=document["default-priorities"]["namespace"]
)
print(json.dumps([variant.label for variant in ordered]))
"""


@pytest.mark.network
@pytest.mark.usefixtures("network")
def test_the_reference_library_orders_variants_in_the_same_way(tmp_path: Path) -> None:
    command = [find_uv(), "pip", "install", "--quiet", "--target", str(tmp_path), "variantlib==0.2.2"]
    assert subprocess.run(command, capture_output=True).returncode == 0
    names = {"cu126": "nvidia", "cu130": "nvidia", "x86_64_v4": "x86_64", "x86_64_v3": "x86_64"}
    mixed = {
        f"{gpu}.{cpu}": {**ALL[gpu], **ALL[cpu]} for gpu in ("cu126", "cu130") for cpu in ("x86_64_v3", "x86_64_v4")
    }
    features = {
        "avx2": {"x86_64": {"avx2": ["on"], "fma": ["on"]}},
        "fma": {"x86_64": {"fma": ["on"], "level": ["v2"]}},
    }
    variants = {**ALL, **mixed, **features}
    providers = {name: {"requires": [f"provider-{name}"]} for name in sorted(set(names.values()))}
    schema = "https://variants-schema.wheelnext.dev/v0.2.0.json"

    for namespaces in (["nvidia", "x86_64"], ["x86_64", "nvidia"]):
        document = {**description(variants, namespaces=namespaces, schema=schema), "providers": providers}
        for hardware in (H100, V100, DRIVER_126, OLD_DRIVER, ZEN3):
            supported = {n: f for n, f in supported_properties(hardware).namespaces.items() if n in namespaces}
            result = subprocess.run(
                [sys.executable, "-c", ORACLE],
                input=json.dumps([document, supported]),
                capture_output=True,
                text=True,
                env={"PYTHONPATH": str(tmp_path)},
            )
            assert result.returncode == 0, result.stderr
            assert order(document, hardware) == tuple(json.loads(result.stdout))
