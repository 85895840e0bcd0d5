"""What an update claims is true of the files that it leaves: exit code 0 means that the lock passes the gate now."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from advisor.locks.settings_table import locked_settings, read_settings, settings_text
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
def index_of_two(no_user_configuration: None, index: PackageIndex) -> tuple[PackageIndex, Entries]:
    """An index with its entries: `a`, and `b` and `d`, whose newest versions require `c`."""
    for version in ("1.0", "1.1", "2.0"):
        index.add("a", version, code="")
    for version in ("1.0", "1.1"):
        index.add("b", version, code="")
    index.add("b", "2.0", ["c"], code="")
    index.add("c", "1.0", code="")
    index.add("d", "1.0", code="")
    index.add("d", "2.0", ["c"], code="")
    index.add("torch", "2.6.0", code="")
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
    if lock.suffix == ".toml":
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
    if 'dependencies = ["a", "b"' in (lock.parent / "pyproject.toml").read_text():
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


RESOLVED: dict[str, set[str]] = {
    "pylock.toml": {
        *("a missing package", "a new requirement", "a removed version", "a vulnerability", "a yanked version"),
        *("another address", "another hash", "another size"),
    },
    "Pipfile.lock": {
        *("a new requirement", "a removed version", "a vulnerability", "a yanked version", "another hash"),
    },
    "requirements.txt": {
        *("a foreign index", "a new requirement", "a removed version", "a trusted host", "a vulnerability"),
        *("a yanked version", "another hash"),
    },
    "pinned requirements.txt": {"a removed version", "a vulnerability", "a yanked version"},
}
"""The damages that an update of each lock resolves, one by one."""
REMAINING: dict[str, set[str]] = {
    "pylock.toml": {"an expired exception"},
    "Pipfile.lock": {"an expired exception"},
    "requirements.txt": {"an expired exception"},
    "pinned requirements.txt": {
        *("a foreign index", "a strict policy", "a trusted host", "an expired exception"),
    },
}
"""The damages that make the gate fail, and that an update only names."""
NO_STACK = "vulnerable versions only"
SETTINGS = locked_settings({"torch": {"threads": 4}})


def write_project(
    folder: Path, lock: str, index: PackageIndex, advisor_here: Advisor, *, has_settings: bool = False
) -> Path:
    """Write a project whose lock passes the gate, and a copy in the folder `before`; return the lock."""
    shutil.rmtree(folder / "cache", ignore_errors=True)
    for name in ("pylock.toml", "Pipfile.lock", "requirements.txt"):
        (folder / name).unlink(missing_ok=True)
    is_own = lock == "pinned requirements.txt"
    names = '"a", "b", "torch"' if has_settings else '"a", "b"'
    (folder / "pyproject.toml").write_text(
        ("" if is_own else f'[project]\nname = "m"\nversion = "1"\ndependencies = [{names}]\n')
        + f'[tool.uv]\nindex-url = "{index.url}"\n[tool.advisor]\nhardware = "cpu-zen4"\npython = "3.12"\n'
    )
    path = folder / lock.removeprefix("pinned ")
    if is_own:
        path.write_text("a==1.0\nb==1.1\n")
    else:
        (folder / "pins.txt").write_text("a==1.0\nb==1.1\n")
        assert advisor_here("advise", "-c", "pins.txt", "-o", path.name).returncode == 0
        (folder / "pins.txt").unlink()
    if has_settings:
        table = settings_text(SETTINGS).partition("settings-version")[2]
        table = table.replace("[[settings]]", "[[tool.advisor.settings]]").replace(
            "[settings.", "[tool.advisor.settings."
        )
        path.write_text(f"{path.read_text()}\n[tool.advisor]\nsettings-version{table}")
    (folder / "before").mkdir(exist_ok=True)
    shutil.copy(path, folder / "before")
    shutil.rmtree(folder / "cache", ignore_errors=True)
    return path


def reset(index: PackageIndex, entries: Entries) -> None:
    index.entries = copy.deepcopy(entries)
    index.vulnerabilities = {
        **{(n, v): [] for n in "abcd" for v in ("1.0", "1.1", "2.0")},
        ("torch", "2.6.0"): [],
    }


@pytest.mark.parametrize(
    "lock",
    [*(pytest.param(name, marks=pytest.mark.slow) for name in LOCKS[1:3]), LOCKS[0], LOCKS[3]],
)
def test_each_damage_is_found_and_resolved_or_named(
    lock: str, tmp_path: Path, index_of_two: tuple[PackageIndex, Entries], advisor_here: Advisor
) -> None:
    """The property below would fail for an update that does nothing, and for a gate that finds nothing."""
    index, entries = index_of_two
    outcomes: dict[tuple[int, int, int], set[str]] = {}
    for name in sorted({*RESOLVED[lock], *REMAINING[lock], NO_STACK}):
        reset(index, entries)
        path = write_project(tmp_path, lock, index, advisor_here)
        DAMAGES[name](path, index)
        commands = (("check",), ("advise", "--update"), ("check",))
        codes = [advisor_here(*command).returncode for command in commands]
        outcomes.setdefault((codes[0], codes[1], codes[2]), set()).add(name)

    assert outcomes == {(1, 0, 0): RESOLVED[lock], (1, 1, 1): REMAINING[lock], (1, 3, 1): {NO_STACK}}


@st.composite
def damaged_locks(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A kind of lock with one to three damages, of which most can be resolved."""
    lock = draw(st.sampled_from(LOCKS))
    resolved = st.sampled_from(sorted(RESOLVED[lock]))
    any_of_them = st.sampled_from(sorted(DAMAGES))
    return lock, draw(st.lists(resolved | resolved | any_of_them, unique=True, min_size=1, max_size=3))


@settings(
    max_examples=examples(120),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.generate],
)
@given(
    damaged=damaged_locks(),
    has_settings=st.booleans(),
    options=st.sampled_from(((), (), (), ("--dry-run",), ("-o", "pylock.new.toml"))),
)
def test_an_update_with_exit_code_0_leaves_a_lock_that_passes(
    damaged: tuple[str, list[str]],
    has_settings: bool,
    options: tuple[str, ...],
    tmp_path: Path,
    index_of_two: tuple[PackageIndex, Entries],
    advisor_here: Advisor,
) -> None:
    lock, damages = damaged
    has_settings &= lock == "pylock.toml"
    index, entries = index_of_two
    reset(index, entries)
    path = write_project(tmp_path, lock, index, advisor_here, has_settings=has_settings)
    for name in damages:
        DAMAGES[name](path, index)
    text = path.read_bytes()

    passed = advisor_here("check").returncode == 0
    update = advisor_here("advise", "--update", "--format", "json", *options)
    current = ("--current", options[1]) if "-o" in options and update.returncode < 2 else ()
    check = advisor_here("check", "--format", "json", *current)

    event(f"exit code {update.returncode}{', which passed before' if passed else ''}")
    assert "Traceback" not in update.stderr
    if update.returncode == 0:
        assert check.returncode == 0 or "--dry-run" in options, check.stdout
    if update.returncode > 1:
        assert path.read_bytes() == text
        # The pins of the project's own requirements are in one file.
        is_refused = lock == "pinned requirements.txt" and "-o" in options
        assert update.returncode == (2 if is_refused else 3), update.stderr
        assert is_refused or (NO_STACK in damages and not passed and check.returncode == 1)
        return
    report: dict[str, Any] = json.loads(update.stdout)
    assert report["passes"] == (update.returncode == 0) == (check.returncode == 0)
    failing = {(f["code"], f["package"] or "") for f in json.loads(check.stdout)["findings"] if f["level"] == "error"}
    if report["locks"]:
        assert failing == {(f["code"], f["package"] or "") for f in report["remaining"]}
        assert failing.isdisjoint({(f["code"], f["package"] or "") for f in report["cleared"]})
    if passed or not report["locks"]:
        assert path.read_bytes() == text
    if update.returncode == 0 and not current:
        compared = advisor_here("check", "--base", f"before/{path.name}", "--format", "json")
        assert compared.returncode == 0, compared.stdout
    if has_settings and not current:
        assert (recorded := read_settings(path)) is not None
        assert recorded.settings == SETTINGS


@pytest.mark.parametrize("damage", ["another hash", "a missing package", "a vulnerability", "an expired exception"])
def test_an_update_of_one_of_several_targets_leaves_a_lock_that_passes(
    damage: str, tmp_path: Path, index_of_two: tuple[PackageIndex, Entries], advisor_here: Advisor
) -> None:
    index, entries = index_of_two
    reset(index, entries)
    write_project(tmp_path, "pylock.toml", index, advisor_here).unlink()
    path = tmp_path / "pyproject.toml"
    tables = "".join(f'[tool.advisor.targets.{n}]\npython = "{p}"\n' for n, p in (("old", "3.12"), ("new", "3.13")))
    path.write_text(path.read_text().replace('python = "3.12"\n', "") + tables)
    (tmp_path / "pins.txt").write_text("a==1.0\nb==1.1\n")
    assert advisor_here("advise", "-c", "pins.txt").returncode == 0
    old, new = (tmp_path / f"pylock.{name}.toml" for name in ("old", "new"))
    DAMAGES[damage](old, index)
    texts = [old.read_bytes(), new.read_bytes()]

    before = advisor_here("check", "--target", "old")
    several = [advisor_here("advise", "--update", *options) for options in ((), ("--targets", "all"))]
    unchanged = [old.read_bytes(), new.read_bytes()]
    update = advisor_here("advise", "--update", "--target", "old")
    after = advisor_here("check", "--target", "old")

    assert [result.returncode for result in several] == [2, 2]
    assert unchanged == texts
    assert (before.returncode, update.returncode) == (1, int(damage == "an expired exception")), update.stderr
    assert after.returncode == update.returncode, after.stdout
    assert new.read_bytes() == texts[1]
