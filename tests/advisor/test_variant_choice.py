"""The choice among variant wheels on an index: by hardware, in candidates, findings, locks and the gate."""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from advisor.index.cache import DiskCache
from advisor.index.client import IndexClient
from advisor.index.configuration import IndexConfiguration
from advisor.resolve.candidates.index import IndexCandidates
from advisor.resolve.candidates.problem import Candidate, CandidatePolicy, ResolutionProblem
from knowledge.domain.errors import UnavailableError
from knowledge.domain.hardware import Driver, HardwareProfile
from knowledge.hardware.profiles import find_profile
from tests.advisor.factories import build_client, build_problem
from tests.advisor.variant_wheels import ALL, add_variants, description, filename
from tests.conftest import Advisor
from tests.package_index import PackageIndex

A = canonicalize_name("a")
H100, V100, ZEN3 = (find_profile(name) for name in ("h100", "v100", "cpu-zen3"))
OLD_DRIVER = replace(H100, driver=Driver(version="535.104.05", newest_cuda="12.2"))
ON = CandidatePolicy(variants=True)


def problem_on(hardware: HardwareProfile, policy: CandidatePolicy = ON) -> ResolutionProblem:
    """Return a problem that requires `a` on a machine."""
    problem = build_problem("a", policy=policy)
    return replace(problem, target=replace(problem.target, hardware=hardware))


def candidates_on(
    index: PackageIndex, cache: Path, hardware: HardwareProfile, policy: CandidatePolicy = ON
) -> tuple[IndexCandidates, tuple[Candidate, ...]]:
    """Return the candidates of `a` on a machine, and their source."""
    source = IndexCandidates(build_client(index, cache), problem_on(hardware, policy))
    return source, source.candidates(A)


@pytest.mark.parametrize(
    ("hardware", "label"),
    [(H100, "cu130"), (V100, "cu126"), (OLD_DRIVER, "x86_64_v4"), (ZEN3, "x86_64_v3")],
    ids=["h100", "v100", "old driver", "without AVX-512"],
)
def test_the_best_variant_that_the_target_supports_is_installed(
    index: PackageIndex, tmp_path: Path, hardware: HardwareProfile, label: str
) -> None:
    add_variants(index, "a", "1.0", ALL)

    _, candidates = candidates_on(index, tmp_path, hardware)

    assert [c.file.filename for c in candidates] == [filename("a", "1.0", label)]


def test_one_cache_serves_several_machines(index: PackageIndex, tmp_path: Path) -> None:
    add_variants(index, "a", "1.0", ALL)

    names = [candidates_on(index, tmp_path, hardware)[1][0].file.filename for hardware in (H100, ZEN3, H100)]
    off = candidates_on(index, tmp_path, H100, CandidatePolicy())[1][0].file.filename

    assert names == [filename("a", "1.0", label) for label in ("cu130", "x86_64_v3", "cu130")]
    assert off == filename("a", "1.0")


def test_without_a_supported_variant_the_other_wheel_is_installed(index: PackageIndex, tmp_path: Path) -> None:
    add_variants(index, "a", "1.0", {"cu130": ALL["cu130"], "mine": {"mine": {"x": ["y"]}}}, described=description(
        {"cu130": ALL["cu130"], "mine": {"mine": {"x": ["y"]}}}, namespaces=["nvidia", "mine"]
    ))  # fmt: skip

    source, candidates = candidates_on(index, tmp_path, ZEN3)

    assert source.variants is not None
    assert candidates[0].file.filename == filename("a", "1.0")
    assert source.variants.explain(candidates[0]) == (
        "`a 1.0` has variants, and its wheel without a variant is installed; not possible: `cu130` (`nvidia`: the "
        "machine has no NVIDIA GPU), `mine` (the namespace `mine` is not known)"
    )


def test_the_null_variant_comes_before_the_wheel_without_a_variant(index: PackageIndex, tmp_path: Path) -> None:
    add_variants(index, "a", "1.0", {"cu130": ALL["cu130"], "null": {}})

    assert candidates_on(index, tmp_path, ZEN3)[1][0].file.filename == filename("a", "1.0", "null")


def test_a_better_variant_does_not_make_an_older_version_better(index: PackageIndex, tmp_path: Path) -> None:
    add_variants(index, "a", "1.0", ALL)
    index.add("a", "2.0")

    assert [str(c.version) for c in candidates_on(index, tmp_path, H100)[1]] == ["2.0", "1.0"]


def test_a_variant_comes_before_a_wheel_with_a_more_specific_tag(index: PackageIndex, tmp_path: Path) -> None:
    add_variants(index, "a", "1.0", ALL)
    index.add("a", "1.0", tag="cp312-cp312-manylinux_2_28_x86_64")

    assert candidates_on(index, tmp_path, ZEN3)[1][0].file.filename == filename("a", "1.0", "x86_64_v3")


@pytest.mark.parametrize(
    ("described", "reason"),
    [
        (b"{", "`a-1.0-variants.json`: it is not JSON"),
        ({**description(ALL), "$schema": "https://x.example/v9.0.0.json"}, "9.0.0 of the format is not supported"),
        (description({"other": ALL["cu130"]}), "does not contain the label"),
    ],
)
def test_variants_without_a_usable_description_are_left_out(
    index: PackageIndex, tmp_path: Path, described: object, reason: str
) -> None:
    add_variants(index, "a", "1.0", {"x86_64_v3": ALL["x86_64_v3"]}, described=described)

    source, candidates = candidates_on(index, tmp_path, H100)

    assert candidates[0].file.filename == filename("a", "1.0")
    assert any(reason in skipped.reason for skipped in source.skipped())


def test_a_missing_description_leaves_variants_out(index: PackageIndex, tmp_path: Path) -> None:
    add_variants(index, "a", "1.0", ALL)
    listed = index.entries["a"].pop()

    source, candidates = candidates_on(index, tmp_path / "1", H100)

    assert candidates[0].file.filename == filename("a", "1.0")
    assert "no file that describes the variants" in source.reasons("a")
    index.entries["a"].append(listed)
    del index.files["a-1.0-variants.json"]
    assert "but does not have it" in candidates_on(index, tmp_path / "2", H100)[0].reasons("a")


def test_another_hash_than_on_the_page_is_an_error(index: PackageIndex, tmp_path: Path) -> None:
    add_variants(index, "a", "1.0", ALL)
    index.files["a-1.0-variants.json"] += b" "

    with pytest.raises(UnavailableError, match="hash"):
        candidates_on(index, tmp_path, H100)


def test_descriptions_are_requested_once_and_only_for_versions_with_variants(
    index: PackageIndex, tmp_path: Path
) -> None:
    for number in range(50):
        add_variants(index, "a", f"1.{number}", {"x86_64_v3": ALL["x86_64_v3"]})
    index.add("a", "2.0")
    index.delay_seconds = 0.05

    first = build_client(index, tmp_path)
    assert len(IndexCandidates(first, problem_on(ZEN3)).candidates(A)) == 51
    IndexCandidates(first, problem_on(H100)).candidates(A)
    assert index.requests["files"] == 50
    second = IndexCandidates(build_client(index, tmp_path, offline=True), problem_on(ZEN3))

    assert second.candidates(A)[1].file.filename == filename("a", "1.49", "x86_64_v3")
    assert index.requests["files"] == 50


def test_a_changed_description_without_a_hash_is_requested_again(index: PackageIndex, tmp_path: Path) -> None:
    add_variants(index, "a", "1.0", {"x86_64_v3": ALL["x86_64_v3"]}, described=description({}))
    index.entries["a"][-1]["hashes"] = {}
    assert candidates_on(index, tmp_path, ZEN3)[1][0].file.filename == filename("a", "1.0")
    index.files["a-1.0-variants.json"] = json.dumps(description({"x86_64_v3": ALL["x86_64_v3"]})).encode()

    source = IndexCandidates(build_client(index, tmp_path, refresh=True), problem_on(ZEN3))

    assert source.candidates(A)[0].file.filename == filename("a", "1.0", "x86_64_v3")


REQUIRES = (
    "b; 'nvidia' in variant_namespaces",
    "c; 'nvidia :: sm_arch :: 75_real' in variant_properties",
    "d; variant_label == ''",
    "e; variant_label == 'x86_64_v3' and python_version >= '3.8'",
)


@pytest.mark.parametrize(("hardware", "expected"), [(H100, ["b"]), (ZEN3, ["e"])], ids=["h100", "without AVX-512"])
def test_requirements_are_those_of_the_chosen_variant(
    index: PackageIndex, tmp_path: Path, hardware: HardwareProfile, expected: list[str]
) -> None:
    add_variants(index, "a", "1.0", ALL, requires=REQUIRES)

    source, candidates = candidates_on(index, tmp_path, hardware)

    assert [d.name for d in source.dependencies(candidates[0]) or ()] == expected
    # A second time, from the cache.
    again, candidates = candidates_on(index, tmp_path, hardware)
    assert [d.name for d in again.dependencies(candidates[0]) or ()] == expected


def test_a_wheel_without_a_variant_has_its_own_requirements(index: PackageIndex, tmp_path: Path) -> None:
    add_variants(index, "a", "1.0", {"cu130": ALL["cu130"]}, requires=REQUIRES)

    source, candidates = candidates_on(index, tmp_path, ZEN3)

    assert [d.name for d in source.dependencies(candidates[0]) or ()] == ["d"]


def test_without_the_preview_such_requirements_are_not_read(index: PackageIndex, tmp_path: Path) -> None:
    add_variants(index, "a", "1.0", ALL, requires=REQUIRES)

    source, candidates = candidates_on(index, tmp_path, H100, CandidatePolicy())

    assert source.dependencies(candidates[0]) is None
    assert "need `--preview variants`" in source.reasons("a")
    assert index.requests["files"] == 1


def test_variants_can_be_in_a_find_links_directory(index: PackageIndex, tmp_path: Path) -> None:
    add_variants(index, "a", "1.0", ALL)
    links = tmp_path / "links"
    links.mkdir()
    for name, content in index.files.items():
        (links / name).write_bytes(content)
    configuration = IndexConfiguration(default=index.url, find_links=(str(links),))
    index.entries.clear()
    client = IndexClient(configuration, cache=DiskCache(tmp_path / "cache"))

    candidates = IndexCandidates(client, problem_on(V100)).candidates(A)

    assert candidates[0].file.filename == filename("a", "1.0", "cu126")


def write_project(folder: Path, index: PackageIndex, settings: str = "") -> Path:
    """Write a project that requires `a` on a V100."""
    folder.mkdir()
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "m"\ndependencies = ["a"]\n[tool.uv]\nindex-url = "{index.url}"\n'
        f'[tool.advisor]\nhardware = "v100"\npython = "3.12"\n{settings}'
    )
    return folder


def test_the_lock_names_the_variant_and_the_gate_reads_it(
    index: PackageIndex, tmp_path: Path, advisor: Advisor
) -> None:
    add_variants(index, "a", "1.0", ALL, requires=["b; 'nvidia' in variant_namespaces"])
    index.add("b", "1.0")
    project = write_project(tmp_path / "project", index, 'preview = ["variants"]\n')

    advised = advisor("advise", "--details", "--output", "pylock.toml", cwd=project)
    checked = advisor("check", cwd=project)
    unread = advisor("check", "--format", "json", cwd=write_project(tmp_path / "off", index))

    assert (advised.returncode, advised.stderr) == (0, "")
    assert "`a 1.0` is installed as variant `cu126`" in " ".join(advised.stdout.split())
    assert "names no driver" in " ".join(advised.stdout.split())
    lock = tomllib.loads((project / "pylock.toml").read_text())
    packages = {package["name"]: package for package in lock["packages"]}
    name = filename("a", "1.0", "cu126")
    assert packages["a"]["wheels"][0]["name"] == name
    assert packages["a"]["wheels"][0]["hashes"] == {"sha256": hashlib.sha256(index.files[name]).hexdigest()}
    assert packages["a"]["variants-json"] == description({"cu126": ALL["cu126"]}, namespaces=["nvidia"])
    assert "variants-json" not in packages["b"]
    assert (checked.returncode, checked.stderr) == (0, ""), checked.stdout
    assert unread.returncode != 0


def test_a_lock_with_a_variant_fails_the_gate_without_the_preview(
    index: PackageIndex, tmp_path: Path, advisor: Advisor
) -> None:
    add_variants(index, "a", "1.0", ALL)
    project = write_project(tmp_path / "project", index)
    assert advisor("advise", "--preview", "variants", "--output", "pylock.toml", cwd=project).returncode == 0

    result = advisor("check", "--format", "json", cwd=project)

    assert result.returncode == 1
    assert "ADV012" in {finding["code"] for finding in json.loads(result.stdout)["findings"]}


def test_an_unknown_preview_feature_is_an_error(index: PackageIndex, tmp_path: Path, advisor: Advisor) -> None:
    index.add("a", "1.0")
    project = write_project(tmp_path / "project", index)
    option = advisor("advise", "--preview", "variant", cwd=project)
    setting = advisor("advise", cwd=write_project(tmp_path / "other", index, 'preview = ["variant"]\n'))

    for result in (option, setting):
        assert result.returncode == 2
        assert "there is no preview feature `variant`; the known ones are: `variants`" in result.stderr


def test_the_settings_and_the_variable_turn_the_preview_on(
    index: PackageIndex, tmp_path: Path, advisor_here: Advisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_variants(index, "a", "1.0", ALL)
    project = write_project(tmp_path / "project", index, 'preview = ["variants"]\n')
    other = write_project(tmp_path / "other", index)

    assert 'preview = ["variants"]' in " ".join(advisor_here("config", "show", str(project)).stdout.split())
    monkeypatch.setenv("ADVISOR_PREVIEW", "variants")
    advised = advisor_here("advise", str(other), "--format", "json").stdout
    monkeypatch.delenv("ADVISOR_ADVISORIES")
    settings = advisor_here("config", "show", str(other))

    assert (settings.returncode, settings.stderr) == (0, "")
    assert "variable ADVISOR_PREVIEW" in settings.stdout
    assert "ADV113" in {finding["code"] for finding in json.loads(advised)["findings"]}
