"""What an update claims is true of the files that it leaves: exit code 0 means that the lock passes the gate now."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from tests.advisor.gate.steps import change
from tests.conftest import Advisor
from tests.examples import examples
from tests.package_index import PackageIndex

Entries = dict[str, list[dict[str, Any]]]
EVIL = "e" * 64
Damage = Callable[[Path, PackageIndex], None]
"""Makes a lock, its project or the index wrong, if the lock has what it changes."""
LOCKS = ("pylock.toml", "Pipfile.lock", "requirements.txt", "pinned requirements.txt")


@pytest.fixture
def index_of_two(index: PackageIndex, monkeypatch: pytest.MonkeyPatch) -> tuple[PackageIndex, Entries]:
    """An index with its entries: `a`, and `b` and `d`, whose newest versions require `c`."""
    monkeypatch.setattr("advisor.index.configuration._pip_files", lambda *_: iter(()))
    for version in ("1.0", "1.1", "2.0"):
        index.add("a", version, code="")
    for version in ("1.0", "1.1"):
        index.add("b", version, code="")
    index.add("b", "2.0", ["c"], code="")
    index.add("c", "1.0", code="")
    index.add("d", "1.0", code="")
    index.add("d", "2.0", ["c"], code="")
    return index, copy.deepcopy(index.entries)


def another_hash(lock: Path, index: PackageIndex) -> None:
    for name in ("a", "b"):
        for entry in index.entries[name]:
            lock.write_text(lock.read_text().replace(entry["hashes"]["sha256"], EVIL))


def another_address(lock: Path, index: PackageIndex) -> None:
    lock.write_text(
        lock.read_text().replace(index.url.removesuffix("/simple/") + "/files", "https://evil.example/files")
    )


def another_size(lock: Path, index: PackageIndex) -> None:
    lock.write_text(lock.read_text().replace("size = ", "size = 1"))


def missing_package(lock: Path, index: PackageIndex) -> None:
    if lock.name == "pylock.toml":
        head, *packages = lock.read_text().split("[[packages]]\n")
        lock.write_text("[[packages]]\n".join([head, *packages[1:]]))


def foreign_index(lock: Path, index: PackageIndex) -> None:
    if lock.suffix == ".txt":
        lock.write_text(f"--extra-index-url https://evil.example/simple\n{lock.read_text()}")


def trusted_host(lock: Path, index: PackageIndex) -> None:
    if lock.suffix == ".txt":
        lock.write_text(f"--trusted-host evil.example\n{lock.read_text()}")


def vulnerability(lock: Path, index: PackageIndex) -> None:
    index.vulnerabilities["a", "1.0"] = ["PYSEC-2026-7"]


def vulnerability_of_all_versions(lock: Path, index: PackageIndex) -> None:
    index.vulnerabilities |= {("b", version): ["PYSEC-2026-8"] for version in ("1.0", "1.1", "2.0")}


def yanked_version(lock: Path, index: PackageIndex) -> None:
    for entry in index.entries["b"]:
        entry["yanked"] = entry["filename"].startswith("b-1.1")


def removed_version(lock: Path, index: PackageIndex) -> None:
    index.entries["a"] = [entry for entry in index.entries["a"] if not entry["filename"].startswith("a-1.0")]


def new_requirement(lock: Path, index: PackageIndex) -> None:
    if 'dependencies = ["a", "b"]' in (lock.parent / "pyproject.toml").read_text():
        change(lock.parent / "pyproject.toml", '"a", "b"', '"a>=1.1", "b", "d"')


def policy(text: str) -> Damage:
    def write(lock: Path, index: PackageIndex) -> None:
        path = lock.parent / "pyproject.toml"
        if "[tool.advisor.gate]" not in path.read_text():
            path.write_text(f"{path.read_text()}[tool.advisor.gate]\n{text}\n")

    return write


DAMAGES: dict[str, Damage] = {
    "another hash": another_hash,
    "another address": another_address,
    "another size": another_size,
    "a missing package": missing_package,
    "a foreign index": foreign_index,
    "a trusted host": trusted_host,
    "a vulnerability": vulnerability,
    "vulnerable versions only": vulnerability_of_all_versions,
    "a yanked version": yanked_version,
    "a removed version": removed_version,
    "a new requirement": new_requirement,
    "an expired exception": policy('ignore = [{ code = "ADV009", reason = "old", expires = 2020-01-01 }]'),
    "an ignored hash": policy('ignore = [{ code = "ADV014", reason = "known" }]'),
    "a strict policy": policy('extend-fail = ["not-checked", "hash-missing", "not-required", "unpinned-dependencies"]'),
}


def write_project(folder: Path, lock: str, index: PackageIndex, advisor_here: Advisor) -> Path:
    """Write a project whose lock passes the gate; return the lock."""
    shutil.rmtree(folder / "cache", ignore_errors=True)
    for name in ("pylock.toml", "Pipfile.lock", "requirements.txt"):
        (folder / name).unlink(missing_ok=True)
    is_own = lock == "pinned requirements.txt"
    (folder / "pyproject.toml").write_text(
        ("" if is_own else '[project]\nname = "m"\nversion = "1"\ndependencies = ["a", "b"]\n')
        + f'[tool.uv]\nindex-url = "{index.url}"\n[tool.advisor]\nhardware = "cpu-zen4"\npython = "3.12"\n'
    )
    path = folder / lock.removeprefix("pinned ")
    if is_own:
        path.write_text("a==1.0\nb==1.1\n")
    else:
        (folder / "pins.txt").write_text("a==1.0\nb==1.1\n")
        assert advisor_here("advise", "-c", "pins.txt", "-o", path.name).returncode == 0
        (folder / "pins.txt").unlink()
    shutil.rmtree(folder / "cache", ignore_errors=True)
    return path


@settings(
    max_examples=examples(15),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.generate],
)
@given(
    lock=st.sampled_from(LOCKS),
    damages=st.lists(st.sampled_from(sorted(DAMAGES)), unique=True, max_size=2),
    options=st.sampled_from(((), (), (), ("--dry-run",), ("-o", "pylock.new.toml"))),
)
def test_an_update_with_exit_code_0_leaves_a_lock_that_passes(
    lock: str,
    damages: Iterable[str],
    options: tuple[str, ...],
    tmp_path: Path,
    index_of_two: tuple[PackageIndex, Entries],
    advisor_here: Advisor,
) -> None:
    index, entries = index_of_two
    index.entries = copy.deepcopy(entries)
    index.vulnerabilities = {(n, v): [] for n in "abcd" for v in ("1.0", "1.1", "2.0")}
    path = write_project(tmp_path, lock, index, advisor_here)
    for name in damages:
        DAMAGES[name](path, index)
    text = path.read_bytes()

    passed = advisor_here("check").returncode == 0
    update = advisor_here("advise", "--update", "--format", "json", *options)
    current = ("--current", options[1]) if "-o" in options and update.returncode < 2 else ()
    check = advisor_here("check", "--format", "json", *current)

    event(f"exit code {update.returncode}")
    assert "Traceback" not in update.stderr
    if update.returncode == 0:
        assert check.returncode == 0, check.stdout
    if update.returncode > 1:
        assert path.read_bytes() == text
        return
    report: dict[str, Any] = json.loads(update.stdout)
    assert report["passes"] == (update.returncode == 0) == (check.returncode == 0)
    failing = {(f["code"], f["package"] or "") for f in json.loads(check.stdout)["findings"] if f["level"] == "error"}
    if report["locks"]:
        assert failing == {(f["code"], f["package"] or "") for f in report["remaining"]}
        assert failing.isdisjoint({(f["code"], f["package"] or "") for f in report["cleared"]})
    if passed or not report["locks"]:
        assert path.read_bytes() == text
