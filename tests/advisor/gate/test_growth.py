"""`max-growth`: a change fails if it makes the download larger than the policy allows."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.gate.policy import GrowthLimit, read_policy
from knowledge.domain.errors import InputError
from tests.advisor.gate.steps import Run, git
from tests.conftest import Advisor
from tests.package_index import PackageIndex

Growing = Callable[..., dict[str, Any]]


@pytest.fixture
def growing(project: Path, index: PackageIndex, advisor_here: Advisor, check: Run) -> Growing:
    """Check a change to versions of which `b 1.2` is 3 MB larger and `a 3.0` requires the new `c` of 1 MB."""

    def run(limit: str, *arguments: str) -> dict[str, Any]:
        with (project / "pyproject.toml").open("a") as file:
            file.write(f'\n[tool.advisor.gate]\nmax-growth = "{limit}"\n')
        git(project, "init", "-q")
        git(project, "add", "pyproject.toml", "pylock.toml")
        git(project, "commit", "-qm", "base")
        index.add("a", "3.0", ["b", "c"], code="")
        index.add("b", "1.2", code="x" * 3_000_000)
        index.add("c", "1.0", code="x" * 1_000_000)
        locked = advisor_here("advise", "--refresh")
        assert locked.returncode == 0, locked.stderr
        return check("--base", "HEAD", *arguments)

    return run


def growth_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [f for f in document["findings"] if f["subject"] == "growth"]


@pytest.mark.parametrize("limit", ["3 MB", "3.9MB", "50 %", "1000%", "3000 kB", "2MiB"])
def test_a_change_that_grows_too_much_fails(growing: Growing, limit: str) -> None:
    report = growing(limit)

    (finding,) = growth_of(report)
    assert (finding["code"], finding["name"], finding["level"]) == ("ADV031", "download-growth", "error")
    assert finding["message"].startswith("the download grows by 4.0 MB, from ")
    assert "`b` by 3.0 MB, `c` by 1.0 MB" in finding["message"]
    assert (finding["path"], finding["line"]) == ("pylock.toml", 1)
    assert report["exit_code"] == 1


@pytest.mark.parametrize("limit", ["4.1 MB", "1 GB", "5 MiB"])
def test_a_change_within_the_limit_passes(growing: Growing, limit: str) -> None:
    report = growing(limit)

    assert growth_of(report) == []
    assert report["exit_code"] == 0


def test_a_smaller_download_passes_with_no_allowed_growth(
    growing: Growing, project: Path, index: PackageIndex, check: Run
) -> None:
    before = (project / "pylock.toml").read_text()
    growing("0 %")
    git(project, "commit", "-qam", "larger")
    (project / "pylock.toml").write_text(before)

    assert growth_of(check("--base", "HEAD")) == []


def test_sizes_come_from_the_lock_if_the_page_has_none(growing: Growing, index: PackageIndex) -> None:
    index.json = False

    (finding,) = growth_of(growing("1 MB"))

    assert finding["code"] == "ADV031"
    assert "`b` by 3.0 MB" in finding["message"]


def test_packages_of_unknown_size_are_named(growing: Growing, project: Path, index: PackageIndex, check: Run) -> None:
    index.json = index.ranges = False
    growing("1 MB")
    lock = project / "pylock.toml"
    lock.write_text(re.sub(r"^size = \d+\n", "", lock.read_text(), flags=re.MULTILINE))
    (project / "cache").rename(project / "old-cache")
    index.faults |= {f"/files/{name}": lambda handler: handler.send_error(403) for name in index.files}
    index.separate_metadata = True
    for name in [name for name in index.files if name.endswith(".metadata")]:
        del index.faults[f"/files/{name}"]

    findings = growth_of(check("--base", "HEAD"))

    assert [(f["code"], f["level"]) for f in findings] == [("ADV022", "note")]
    assert "does not contain 3 packages of unknown size: `a`, `b`, `c`" in findings[0]["message"]


@pytest.mark.parametrize(
    ("text", "size", "fraction"),
    [("200MB", 200_000_000, None), (" 1.5 GiB ", 3 * 2**29, None), ("10%", None, 0.1), ("0 %", None, 0.0)],
)
def test_limits_are_sizes_or_percentages(text: str, size: int | None, fraction: float | None) -> None:
    assert GrowthLimit.parse(text) == GrowthLimit(size=size, fraction=fraction)


@pytest.mark.parametrize("value", ["much", "-1 MB", "200", "200 mb", "10 %%", "", 200, 0.1, True, ["1 MB"]])
def test_other_values_are_refused_with_an_example(value: object) -> None:
    with pytest.raises(InputError, match="is neither a size nor a percentage") as raised:
        read_policy({"max-growth": value})

    assert raised.value.hint == 'write `max-growth = "200 MB"` or `max-growth = "10 %"`'


def test_a_wrong_value_is_one_sentence(project: Path, advisor_here: Advisor) -> None:
    with (project / "pyproject.toml").open("a") as file:
        file.write('\n[tool.advisor.gate]\nmax-growth = "large"\n')

    result = advisor_here("check")

    assert result.returncode == 2
    assert result.stderr.splitlines()[0] == (
        "error: `pyproject.toml`: `tool.advisor.gate.max-growth = 'large'` is neither a size nor a percentage"
    )
