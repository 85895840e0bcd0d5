from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path

import pytest
from packaging.pylock import Pylock

from advisor.lock.pylock import write_pylock
from advisor.lock.requirements import write_requirements
from knowledge.domain.atomic_file import write_atomically
from knowledge.domain.errors import InputError
from tests.advisor.made import advise, client_of, problem_of
from tests.package_index import PackageIndex


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def locked(index: PackageIndex, tmp_path: Path) -> tuple[str, str]:
    """The two locks of a stack with a wheel and an sdist."""
    index.add("a", "1.0", ["b"])
    index.add_sdist("b", "2.0")
    problem = problem_of("a")
    advice, _ = advise(index, tmp_path / "cache", problem)
    client = client_of(index, tmp_path / "cache")
    files = {c.name: client.pinned(c.file) for c in advice.optimum.stack}
    stack = advice.optimum.stack
    return (
        write_pylock(stack, files, problem.target),
        write_requirements(stack, files, problem.target, client.configuration),
    )


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


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pylock.toml"
    path.write_text("old")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, "new")

    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["pylock.toml"]


def test_a_folder_that_does_not_exist_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="could not be written: No such file or directory"):
        write_atomically(tmp_path / "none" / "pylock.toml", "new")
