from __future__ import annotations

import hashlib
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.pylock import Pylock
from packaging.requirements import Requirement

from advisor.domain.requirement import RootRequirement
from advisor.locks.formats.pylock import FORMAT as PYLOCK
from advisor.locks.formats.requirements import FORMAT as REQUIREMENTS
from knowledge.domain.errors import InputError
from knowledge.domain.shared_files import write_atomically
from tests.advisor.factories import build_problem, build_stack
from tests.package_index import PackageIndex


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def locked(index: PackageIndex, tmp_path: Path) -> tuple[str, str]:
    """The two locks of a stack with a wheel and an sdist."""
    index.add("a", "1.0", ["b"])
    index.add_sdist("b", "2.0")
    stack = build_stack(index, tmp_path / "cache", build_problem("a"))
    return PYLOCK.write(tmp_path / "pylock.toml", [stack]), REQUIREMENTS.write(tmp_path / "stack.txt", [stack])


def test_a_pylock_is_valid_and_complete(locked: tuple[str, str], index: PackageIndex) -> None:
    lock = Pylock.from_dict(tomllib.loads(locked[0]))

    wheels = lock.packages[0].wheels
    assert [(p.name, str(p.version)) for p in lock.packages] == [("a", "1.0"), ("b", "2.0")]
    assert wheels is not None
    wheel, sdist = index.files["a-1.0-py3-none-any.whl"], index.files["b-2.0.tar.gz"]
    assert (wheels[0].size, wheels[0].hashes) == (len(wheel), {"sha256": sha256(wheel)})
    assert wheels[0].url == index.url.replace("/simple/", "/files/a-1.0-py3-none-any.whl")
    assert lock.packages[1].wheels is None
    assert lock.packages[1].sdist is not None
    assert (lock.packages[1].sdist.size, lock.packages[1].sdist.hashes) == (len(sdist), {"sha256": sha256(sdist)})


def test_a_requirements_lock_has_the_hash_of_every_package(locked: tuple[str, str], index: PackageIndex) -> None:
    lines = [line for line in locked[1].splitlines() if "==" in line or "--hash" in line]

    assert lines == [
        "a==1.0 \\",
        f"    --hash=sha256:{sha256(index.files['a-1.0-py3-none-any.whl'])}",
        "b==2.0 \\",
        f"    --hash=sha256:{sha256(index.files['b-2.0.tar.gz'])}",
    ]


def test_a_requirements_lock_names_the_dependents_of_each_package(locked: tuple[str, str]) -> None:
    assert [line for line in locked[1].splitlines() if line.startswith("    #")] == ["    # via line 1", "    # via a"]


def test_dependents_are_written_like_pip_compile(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0", ["c"])
    index.add("b", "1.0", ["c"])
    index.add("c", "1.0")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "My-App"\nversion = "1"\n')
    places = [
        ("a", "pyproject.toml", False),
        ("b", "sub/requirements.in", False),
        ("c", "requirements.txt", False),
        ("c<2", "constraints.txt", True),
        ("c; python_version < '3'", "other.txt", False),
        ("absent", "constraints.txt", True),
    ]
    roots = tuple(
        RootRequirement(requirement=Requirement(text), origin=f"{name}:1", constraint=limits, path=str(tmp_path / name))
        for text, name, limits in places
    )
    override = RootRequirement(requirement=Requirement("b==1.0"), origin="o.txt:1", path=str(tmp_path / "o.txt"))
    problem = replace(build_problem("a"), roots=roots, overrides=(override,))

    requirers = build_stack(index, tmp_path / "cache", problem).details.requirers(tmp_path)

    assert requirers == {
        "a": ("My-App (pyproject.toml)",),
        "b": ("--override o.txt", "-r sub/requirements.in"),
        "c": ("-c constraints.txt", "-r requirements.txt", "a", "b"),
    }


def test_each_of_several_dependents_has_its_own_line(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0")
    index.add("b", "1.0", ["a"])
    paths = [str(tmp_path / "requirements.in"), ""]
    roots = tuple(replace(root, path=path) for root, path in zip(build_problem("a", "b").roots, paths, strict=True))
    stack = build_stack(index, tmp_path / "cache", replace(build_problem(), roots=roots))

    text = REQUIREMENTS.write(tmp_path / "stack.txt", [stack])

    assert "    # via\n    #   -r requirements.in\n    #   b\nb==1.0" in text


def test_a_file_name_cannot_add_a_line_to_a_lock(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0")
    root = RootRequirement(
        requirement=Requirement("a"), origin="x:1", path=str(tmp_path / "x\n--index-url http:evil.txt")
    )
    problem = replace(build_problem("a"), roots=(root,))

    requirers = build_stack(index, tmp_path / "cache", problem).details.requirers(tmp_path)

    assert requirers == {"a": ("-r x?--index-url http:evil.txt",)}


def test_an_interrupted_write_does_not_change_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pylock.toml"
    path.write_text("old")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, "new")

    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["pylock.toml"]


def test_a_directory_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="could not be written: No such file or directory"):
        write_atomically(tmp_path / "none" / "pylock.toml", "new")
