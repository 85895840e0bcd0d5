"""An older release whose own settings make it faster than the newest one, from invented measurements."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from advisor.locks.settings_table import locked_settings, settings_path, settings_text
from knowledge.hardware.profiles import find_profile
from knowledge.store.engine import open_knowledge_base
from tests.conftest import Advisor
from tests.knowledge.samples import InventedArm, invented_arms
from tests.package_index import PackageIndex

pytestmark = pytest.mark.shipped
RESNET: dict[str, str | int] = {"model": "resnet50", "mode": "inference", "batch": 1, "size": 224}
LEGACY = {"cpu_runtime": "legacy"}


@pytest.fixture(autouse=True)
def measurements(advisor: Advisor, tmp_path: Path) -> None:
    """JAX 0.6.2 is slower than 0.10.2 without settings, and much faster with its legacy runtime, which 0.7 lost."""
    arms: list[InventedArm] = [("0.10.2", {}, 0.0), ("0.6.2", {}, -0.1), ("0.6.2", LEGACY, 0.9)]
    with open_knowledge_base(str(tmp_path / "home" / "knowledge.sqlite")) as store:
        store.add(invented_arms(arms, framework="jax", parameters=RESNET, hardware=find_profile("cpu-zen2")))


def advise(
    advisor: Advisor, index: PackageIndex, folder: Path, *options: str, releases: Sequence[str] = ("0.6.2", "0.10.2")
) -> str:
    """Return what `advise` prints for a project with JAX on a processor without AVX-512."""
    for version in releases:
        index.add("jax", version)
    (folder / "requirements.in").write_text("jax\n")
    result = advisor(
        *("advise", "-r", "requirements.in", "--index-url", index.url, "--hardware", "cpu-zen2", "--dry-run"),
        *("--workload", "resnet50-inference", *options),
        cwd=folder,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_a_release_is_recommended_for_a_setting_that_newer_ones_do_not_have(
    advisor: Advisor, index: PackageIndex, tmp_path: Path
) -> None:
    document = json.loads(advise(advisor, index, tmp_path, "--format", "json"))

    assert {p["name"]: p["version"] for p in document["stack"]["packages"]} == {"jax": "0.6.2"}
    recommended = [s for s in document["settings"] if s["status"] == "recommended"]
    assert [(s["name"], s["value"]) for s in recommended] == [("cpu_runtime", "legacy")]
    gain, with_settings, plain = (
        document[key]["speedup"] for key in ("settings_gain", "gain_with_settings", "prediction")
    )
    assert gain > 2
    assert with_settings == pytest.approx(plain * gain, rel=1e-3)
    assert document["gain_with_settings"]["low"] > 1


def test_the_report_says_that_the_setting_is_the_reason(advisor: Advisor, index: PackageIndex, tmp_path: Path) -> None:
    text = advise(advisor, index, tmp_path)

    assert "          with the settings below: " in text
    change = " ".join(text.partition("0.10.2 -> 0.6.2")[2].partition("\n\n")[0].split())
    reason, _, gain = change.partition("; older than 0.10.2, the newest that runs: the whole stack is predicted ")
    assert reason.endswith("; recommended with `cpu_runtime=legacy`, which 0.10.2 does not have")
    speedup, low = re.fullmatch(r"(\S+) times as fast \[(\S+), \S+\]", gain).groups()  # type: ignore[union-attr]
    assert float(speedup) > 2
    assert float(low) > 1


def test_without_the_choice_of_settings_the_newest_release_stays(
    advisor: Advisor, index: PackageIndex, tmp_path: Path
) -> None:
    document = json.loads(advise(advisor, index, tmp_path, "--format", "json", "--no-recommend-settings"))

    assert [p["version"] for p in document["stack"]["packages"]] == ["0.10.2"]
    assert document["gain_with_settings"] is None


@pytest.mark.parametrize("has_settings", [False, True])
def test_the_gate_says_what_settings_gain_if_the_lock_has_none(
    advisor: Advisor, index: PackageIndex, tmp_path: Path, has_settings: bool
) -> None:
    lock = "pylock.toml"
    choice = [] if has_settings else ["--no-recommend-settings"]
    for version in ("0.6.2", "0.10.2"):
        index.add("jax", version)
    (tmp_path / "requirements.in").write_text("jax\n")
    options = ("-r", "requirements.in", "--index-url", index.url, "--hardware", "cpu-zen2")
    workload = ("--workload", "resnet50-inference")
    assert advisor("advise", *options, *workload, *choice, "-o", lock, cwd=tmp_path).returncode == 0

    checked = advisor("check", *options, *workload, "--current", lock, "--format", "json", cwd=tmp_path)
    text = advisor("check", *options, *workload, "--current", lock, cwd=tmp_path).stdout
    (target,) = json.loads(checked.stdout)["targets"]

    assert ("; with its settings " in text) is not has_settings
    assert (target["recommended"]["gain_with_settings"] is None) is has_settings
    if not has_settings:
        assert target["recommended"]["packages"] == {"jax": "0.6.2"}
        assert target["recommended"]["gain_with_settings"]["low"] > 1


def test_a_setting_that_the_recommended_release_does_not_have_is_not_listed(
    advisor: Advisor, index: PackageIndex, tmp_path: Path
) -> None:
    """The legacy runtime is the only one of 0.4.31: there is nothing to set."""
    document = json.loads(advise(advisor, index, tmp_path, "--format", "json", releases=["0.4.31"]))

    listed = {effect["setting"].partition("=")[0] for effect in document["setting_effects"]}
    assert "cpu_runtime" not in listed
    assert "allocator" in listed


def test_the_gate_says_what_the_loss_of_such_a_setting_costs(
    advisor: Advisor, index: PackageIndex, tmp_path: Path
) -> None:
    """The effect is that on the release of the base, because the new one does not have the setting."""
    (tmp_path / "old").mkdir()
    for path, version in (("old/freeze.txt", "0.6.2"), ("freeze.txt", "0.10.2")):
        index.add("jax", version)
        (tmp_path / path).write_text(f"jax=={version}\n")
    (tmp_path / "requirements.in").write_text("jax\n")
    settings = settings_text(locked_settings({"jax": {"cpu_runtime": "legacy"}}))
    settings_path(tmp_path / "old" / "freeze.txt").write_text(settings)

    result = advisor(
        *("check", "-r", "requirements.in", "--current", "freeze.txt", "--base", "old/freeze.txt", "--format", "json"),
        *("--index-url", index.url, "--hardware", "cpu-zen2", "--workload", "resnet50-inference"),
        cwd=tmp_path,
    )

    report = json.loads(result.stdout)
    [change] = report["targets"][0]["base"]["settings"]
    assert (change["kind"], change["before"]) == ("removed", ["legacy"])
    assert change["effects"][0]["high"] < 0.6
    assert [f["path"] for f in report["findings"] if f["code"] == "ADV007"] == ["freeze.txt"]


@pytest.mark.shipped
@pytest.mark.parametrize(
    ("program", "offers"),
    [
        ("model(x)\n", True),
        ("with torch.autocast('cuda'):\n    model(x)\n", False),
        ("with torch.autocast('cuda', dtype=torch.bfloat16):\n    model(x)\n", False),
    ],
)
def test_mixed_precision_is_not_offered_to_a_program_that_uses_it(
    advisor: Advisor, index: PackageIndex, tmp_path: Path, program: str, offers: bool
) -> None:
    index.add("torch", "2.5.0")
    (tmp_path / "requirements.in").write_text("torch\n")
    (tmp_path / "train.py").write_text(f"import torch\n\n{program}")
    target = ("--hardware", "h100", "--python", "3.12", "--workload", "transformer-training")

    result = advisor(
        "advise", *target, "--index-url", index.url, "-r", "requirements.in", "--dry-run", "--format", "json"
    )

    document = json.loads(result.stdout)
    offered = {(s["name"], s["status"]) for s in document["settings"]}
    assert (("amp", "offered") in offered) == offers
    assert bool(document["present_settings"]) == (not offers)
    assert all("train.py:3" in setting["present"] for setting in document["present_settings"])
