"""A format of locks is one file: nothing else names it."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from packaging.utils import NormalizedName

from advisor.api.option import option_fields
from advisor.cli.advise import AdviceOptions
from advisor.cli.run import SettingsOptions
from advisor.domain.target import Target
from advisor.locks import formats
from advisor.locks.documents import Document, DocumentFormat, Entry, package_of
from advisor.locks.registry import default_format, files_with_settings, lock_formats, own_lock, read_lock
from advisor.project.text_file import UnreadableFileError
from tests.advisor.factories import build_problem
from tests.conftest import Advisor
from tests.package_index import PackageIndex

ROOT = Path(__file__).parents[2]
TOY = '''
"""Locks with one line for the Python of the target, and one line for each package: name, version, file, SHA-256."""

from packaging.version import Version

from advisor.locks.interface import LockFormat
from advisor.locks.lock import Lock, LockedFile, LockedVersion, read_text


class _Toy(LockFormat):
    name = "toy.lock"
    order = 0
    written_names = (name,)

    def read(self, path, target):
        python, *lines = read_text(path).splitlines()
        packages = {}
        for number, line in enumerate(lines, 2):
            name, version, file, digest = line.split()
            files = (LockedFile(name=file, sha256=digest),)
            packages[name] = LockedVersion(version=Version(version), line=number, files=files, hashes={digest})
        obstacles = ((f"is for Python {python}", 1),) if python != target.python_minor else ()
        return Lock(path=path, packages=packages, entries=tuple(packages.items()), obstacles=obstacles)

    def write(self, path, stacks):
        (stack,) = stacks
        lines = [f"{p.name} {p.version} {p.file.filename} {p.sha256}" for p in stack.packages]
        return "\\n".join([stack.target.python_minor, *lines]) + "\\n"


FORMAT = _Toy()
'''


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A format in a file of its own."""
    folder = tmp_path / "formats"
    folder.mkdir()
    (folder / "toy.py").write_text(TOY)
    monkeypatch.setattr(formats, "__path__", [*formats.__path__, str(folder)])
    importlib.invalidate_caches()
    lock_formats.cache_clear()
    yield
    lock_formats.cache_clear()
    sys.modules.pop("advisor.locks.formats.toy", None)


@pytest.fixture
def project(index: PackageIndex, tmp_path: Path) -> Path:
    index.add("a", "1.0", ["b"])
    index.add("b", "1.0")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "requirements.in").write_text(f"--index-url {index.url}\na\n")
    return folder


@pytest.mark.usefixtures("toy")
def test_a_format_of_one_file_is_written_detected_read_and_checked(advisor_here: Advisor, project: Path) -> None:
    lock, python = project / "toy.lock", ("--hardware", "cpu-zen4", "--python", "3.12")

    written = advisor_here("advise", str(project), *python, "--output", str(lock))
    passed = advisor_here("check", str(project), *python)
    content = read_lock(lock, build_problem().target)
    lock.write_text(
        lock.read_text()
        .replace("3.12", "3.11")
        .replace(content.packages[NormalizedName("a")].files[0].sha256, "0" * 64)
    )
    failed = advisor_here("check", str(project), *python)

    assert (written.returncode, passed.returncode, failed.returncode) == (0, 0, 1), written.stderr + passed.stderr
    assert own_lock(project) == lock
    assert {name: str(version) for name, version in content.versions.items()} == {"a": "1.0", "b": "1.0"}
    assert "toy.lock:1" in failed.stdout
    assert "is for Python 3.11" in failed.stdout
    assert "toy.lock:2" in failed.stdout


@pytest.mark.usefixtures("toy")
def test_messages_name_all_formats(advisor_here: Advisor, project: Path) -> None:
    unreadable = advisor_here("check", str(project), "--current", "other.lock")
    unwritable = advisor_here("advise", str(project), "--output", "other.lock")

    assert "`toy.lock`, `pylock.toml`, `uv.lock`" in unreadable.stderr
    assert "name it `toy.lock`, `pylock.toml`, `pylock.NAME.toml`" in unwritable.stderr


class _Pins(DocumentFormat):
    """A format with other names of tables and keys than other formats have."""

    name = "pins.lock"
    order = 99
    package_line = re.compile(r"\[\[pin\]\]")
    name_line = re.compile(r'id = "(?P<name>\w+)"')
    version_line = re.compile(r'at = "(?P<version>[^"]+)"')

    def entries(self, document: Document, target: Target) -> Iterator[Entry]:
        for place, pin in enumerate(document["pin"]):
            with package_of(pin, place):
                yield Entry(name=pin["id"], version=pin["at"])


def test_a_format_says_where_its_packages_are(tmp_path: Path) -> None:
    lock = tmp_path / "pins.lock"
    lock.write_text('[[pin]]\nid = "a"\nat = "1.0"\n\n[[pin]]\nid = "b"\nat = "2.0"\n')

    packages = _Pins().read(lock, build_problem().target).packages
    lock.write_text(lock.read_text() + '[[pin]]\nid = "c"\n')
    with pytest.raises(UnreadableFileError) as caught:
        _Pins().read(lock, build_problem().target)

    assert {name: version.line for name, version in packages.items()} == {"a": 3, "b": 7}
    assert caught.value.line == 8


def test_the_help_names_the_locks_that_nobody_has_to_name() -> None:
    (output,) = (f.option for f in option_fields(AdviceOptions) if f.name == "output")
    (lock,) = (f.option for f in option_fields(SettingsOptions) if f.name == "lock")

    assert f"(default: {default_format().name})" in output.help
    assert all(f"`{name}`" in lock.help for name in files_with_settings())


def test_the_hook_of_pre_commit_runs_after_a_change_of_a_lock(tmp_path: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    for lock_format in lock_formats():
        (tmp_path / lock_format.name).write_text("a==1.0\n")
    locks = [path for lock_format in lock_formats() for path in lock_format.all(tmp_path)]

    assert len(locks) >= 6
    assert all(re.search(hook["files"], f"folder/{path.name}") for path in locks)


@pytest.mark.parametrize("page", ["reference/gate.md", "troubleshooting.md"])
def test_pages_name_all_locks_that_projects_have(page: str, tmp_path: Path) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")

    for lock_format in lock_formats():
        (tmp_path / lock_format.name).write_text("a==1.0\n")
    assert all(f"`{f.name}`" in text for f in lock_formats() if f.current(tmp_path))


def test_formats_have_different_names_and_places() -> None:
    names = [lock_format.name for lock_format in lock_formats()]

    assert len({lock_format.order for lock_format in lock_formats()}) == len(names) == len(set(names)) >= 7
