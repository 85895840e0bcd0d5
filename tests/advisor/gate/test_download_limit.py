"""`max-size` in the gate: a lock with a larger download fails."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.advisor.gate.steps import Run, change, git
from tests.conftest import Advisor
from tests.package_index import PackageIndex


@pytest.fixture
def large(project: Path, index: PackageIndex, advisor_here: Advisor) -> Path:
    """A project whose lock has `b 1.2` with 3 MB."""
    index.add("b", "1.2", code="x" * 3_000_000)
    locked = advisor_here("advise", "--refresh")
    assert locked.returncode == 0, locked.stderr
    return project


def limit(project: Path, size: str) -> None:
    change(project / "pyproject.toml", "[tool.advisor]\n", f'[tool.advisor]\nmax-size = "{size}"\n')


def of_size(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [f for f in document["findings"] if f["subject"] == "max-size"]


def commit(project: Path) -> None:
    git(project, "init", "-q")
    git(project, "add", "pyproject.toml", "pylock.toml")
    git(project, "commit", "-qm", "base")


def downloaded(index: PackageIndex, *files: str) -> int:
    return sum(len(index.files[f"{file}-py3-none-any.whl"]) for file in files)


def test_a_larger_lock_fails_and_the_message_names_the_largest_packages(large: Path, check: Run) -> None:
    report = check("--max-size", "2MB")

    (finding,) = of_size(report)
    assert (finding["code"], finding["name"], finding["level"]) == ("ADV032", "download-too-large", "error")
    assert finding["message"].startswith("the download is 3.0 MB, and `max-size` allows 2.0 MB; the largest: `b` with")
    assert (finding["path"], finding["line"]) == ("pylock.toml", 1)
    assert report["exit_code"] == 1


def test_the_setting_of_the_project_and_that_of_a_target_limit_the_lock(large: Path, check: Run) -> None:
    limit(large, "2MB")
    of_project = check()
    change(large / "pyproject.toml", 'max-size = "2MB"\n', "")
    with (large / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor.targets.small]\nhardware = "cpu-zen4"\nmax-size = "2MB"\n')
        file.write('[tool.advisor.targets.large]\nhardware = "cpu-zen4"\nmax-size = "2GB"\n')
    for name in ("small", "large"):
        (large / f"pylock.{name}.toml").write_bytes((large / "pylock.toml").read_bytes())
    (large / "pylock.toml").unlink()

    of_targets = check()

    assert [f["code"] for f in of_size(of_project)] == ["ADV032"]
    assert [(f["code"], f["targets"]) for f in of_size(of_targets)] == [("ADV032", ["small"])]


@pytest.mark.parametrize("states_sizes", [True, False])
def test_a_lock_of_exactly_the_limit_passes_and_one_byte_less_fails(
    large: Path, check: Run, index: PackageIndex, states_sizes: bool
) -> None:
    index.json = states_sizes
    total = downloaded(index, "a-2.0", "b-1.2")
    kilobytes = f"{total / 1000:.3f}kB"

    assert of_size(check("--refresh", "--max-size", kilobytes)) == []
    (finding,) = of_size(check("--max-size", f"{(total - 1) / 1000:.3f}kB"))
    # Rounded, the two would be equal.
    assert f"the download is {total:,} bytes, and" in finding["message"]


def test_what_advise_locks_within_the_limit_passes(large: Path, check: Run, advisor_here: Advisor) -> None:
    assert advisor_here("advise", "--max-size", "2MB").returncode == 0

    assert of_size(check("--max-size", "2MB")) == []


def test_an_update_makes_the_smallest_change_within_the_limit(large: Path, check: Run, advisor_here: Advisor) -> None:
    result = advisor_here("advise", "--update", "--max-size", "2MB")

    assert result.returncode == 0, result.stderr
    assert "ADV032 download-too-large" in " ".join(result.stdout.split()).partition("resolved ")[2]
    assert "b  1.2 -> 1.1" in result.stdout
    assert check("--max-size", "2MB")["exit_code"] == 0


def test_a_limit_that_no_stack_satisfies_fails_like_any_other(large: Path, check: Run) -> None:
    report = check("--max-size", "0.1kB")

    assert [f["code"] for f in of_size(report)] == ["ADV032"]
    assert report["exit_code"] == 1


def test_a_change_is_not_blamed_for_the_size_of_its_base(
    large: Path, check: Run, index: PackageIndex, advisor_here: Advisor
) -> None:
    limit(large, "2MB")
    commit(large)
    unchanged = of_size(check("--base", "HEAD"))
    index.add("b", "1.3", code="x" * 2_500_000)
    smaller = ("advise", "--refresh", "--max-size", "1GB")
    assert advisor_here(*smaller).returncode == 0
    of_smaller = of_size(check("--base", "HEAD"))
    index.add("b", "1.4", code="x" * 3_500_000)
    assert advisor_here(*smaller).returncode == 0

    of_larger = of_size(check("--base", "HEAD"))

    assert unchanged == of_smaller == []
    assert [f["code"] for f in of_larger] == ["ADV032"]


def test_a_policy_of_the_base_keeps_its_limit(large: Path, check: Run, advisor_here: Advisor) -> None:
    limit(large, "2MB")
    assert advisor_here("advise").returncode == 0
    commit(large)
    change(large / "pyproject.toml", '"2MB"', '"2GB"')
    assert advisor_here("advise").returncode == 0

    report = check("--base", "HEAD", "--policy-from-base")

    assert sorted(f["code"] for f in of_size(report)) == ["ADV028", "ADV032"]


def forget_sizes(project: Path, index: PackageIndex) -> None:
    """Remove the sizes from the lock, and let the index state none and send no file."""
    index.json = index.ranges = False
    lock = project / "pylock.toml"
    lock.write_text(re.sub(r"^size = \d+\n", "", lock.read_text(), flags=re.MULTILINE))
    (project / "cache").rename(project / "old-cache")
    index.faults |= {f"/files/{name}": lambda handler: handler.send_error(403) for name in index.files}
    index.separate_metadata = True
    for name in [name for name in index.files if name.endswith(".metadata")]:
        del index.faults[f"/files/{name}"]


def test_packages_of_unknown_size_are_named(large: Path, check: Run, index: PackageIndex) -> None:
    forget_sizes(large, index)

    findings = of_size(check("--max-size", "2MB"))

    assert [(f["code"], f["level"]) for f in findings] == [("ADV022", "note")]
    assert "does not contain 2 packages of unknown size: `a`, `b`" in findings[0]["message"]


def test_a_base_of_unknown_size_hides_no_large_download(large: Path, check: Run, index: PackageIndex) -> None:
    lock = large / "pylock.toml"
    sized = lock.read_text()
    forget_sizes(large, index)
    lock.write_text(lock.read_text().replace("1.2", "1.1"))
    commit(large)
    lock.write_text(sized)

    assert "ADV032" in [f["code"] for f in of_size(check("--base", "HEAD", "--max-size", "2MB"))]


def test_an_exception_with_a_reason_covers_it(large: Path, check: Run) -> None:
    limit(large, "2MB")
    with (large / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor.gate]\nignore = [{ code = "download-too-large", reason = "until 2.0" }]\n')

    report = check()

    assert of_size(report) == []
    assert report["exit_code"] == 0
