"""The contents of NVIDIA's containers: versions by release, each with the page that states it."""

from __future__ import annotations

import pytest
import yaml
from packaging.version import Version

from knowledge.exchange import ngc
from knowledge.exchange.ngc import container_versions, is_release, releases_with_version

_ENTRIES = [
    (framework, release, entry)
    for framework, releases in ngc._catalogue()["frameworks"].items()
    for release, entry in releases.items()
]


def test_a_release_has_the_versions_of_its_release_notes() -> None:
    assert container_versions("torch", "20.12") == {
        "version": "1.8.0a0+1606899",
        "cuda": "11.1.1",
        "cublas": "11.3.0",
        "cudnn": "8.0.5",
        "nccl": "2.8.3",
        "tensorrt": "7.2.2",
        "python": "3.8",
        "driver": "455",
    }


def test_a_tag_and_the_release_alone_are_the_same_container() -> None:
    assert container_versions("torch", "22.10-py3") == container_versions("torch", "22.10")
    assert container_versions("torch", "20.03.1") == container_versions("torch", "20.03")


def test_tensorflow_1_and_2_of_a_release_differ_and_the_release_alone_has_no_version() -> None:
    assert container_versions("tensorflow", "21.07-tf1-py3")["version"] == "1.15.5"
    assert container_versions("tensorflow", "21.07-tf2-py3")["version"] == "2.5.0"
    assert "version" not in container_versions("tensorflow", "21.07")
    assert container_versions("tensorflow", "21.07")["tensorrt"] == "8.0.1.6"


@pytest.mark.parametrize("release", ["", "99", "22.13x", "latest", "2022-10", "1.13.0"])
def test_a_text_that_is_no_release_has_no_versions(release: str) -> None:
    assert container_versions("torch", release) == {}


def test_releases_are_recognised() -> None:
    assert all(map(is_release, ("22.10", "20.06-tf1-py3", "19.03-py2", "v18.11")))
    assert not any(map(is_release, ("1.15", "10.2", "22.13", "22.1", "22.10 22.11")))


def test_a_build_names_its_releases() -> None:
    assert releases_with_version("torch", "1.4.0a0+a5b4d78") == ("19.12", "20.01")
    assert releases_with_version("torch", "1.4.0") == ()


@pytest.mark.parametrize(("framework", "release", "entry"), _ENTRIES, ids=lambda v: v if isinstance(v, str) else "")
def test_every_entry_is_well_formed_and_has_a_source(framework: str, release: str, entry: dict[str, object]) -> None:
    known = {"version", "tf1", "tf2", "from", *ngc.COMPONENTS}

    assert is_release(release)
    assert set(entry) <= known
    assert set(entry["from"]) <= set(ngc._catalogue()["pages"])  # type: ignore[call-overload]
    for name in set(entry) - {"from"}:
        assert str(Version(str(entry[name])))


@pytest.mark.parametrize("framework", ["torch", "tensorflow", "mxnet"])
@pytest.mark.parametrize("component", ["version", "cuda", "cudnn", "nccl", "tensorrt", "driver"])
def test_versions_do_not_decrease_from_release_to_release(framework: str, component: str) -> None:
    # 23.05 went back from a build before 2.1 to 2.0: only the first part is compared.
    found = [int(str(e[component]).split(".")[0]) for name, _, e in _ENTRIES if name == framework and component in e]

    assert found == sorted(found)


def test_the_file_says_what_is_missing() -> None:
    missing = yaml.safe_load(yaml.safe_dump(ngc._catalogue()["missing"]))

    assert any("jax" in line for line in missing)
    assert any("support-matrix" in line for line in missing)
