"""A command whose extra is not installed ends with exit code 2 and names the extra, whatever the extra is for."""

from __future__ import annotations

import re
import sys
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from knowledge.domain.extras import MissingExtraError
from pi_runners.executors.base import RefusedError
from pi_runners.executors.kubernetes import KubernetesExecutor
from tests.conftest import Advisor
from tests.package_index import PackageIndex

ROOT = Path(__file__).parents[2]
MATRIX = """
name = "small"
indicators = [{ name = "sort", parameters = { rows = 4, columns = 16 } }]
[[stack]]
framework = "numpy"
versions = "all"
"""


@pytest.mark.parametrize(
    ("extra", "library", "arguments"),
    [
        ("postgresql", "psycopg", ("knowledge", "status", "--knowledge", "postgresql://localhost/knowledge")),
        ("serve", "uvicorn", ("serve",)),
        ("kubernetes", "kubernetes", ("pi", "campaign", "m.toml", "-e", "kubernetes", "--engine", "image=x")),
        ("parquet", "pyarrow", ("knowledge", "export", "--parquet", "table.parquet")),
    ],
)
def test_a_command_without_its_extra_ends_with_exit_code_2(
    advisor_here: Advisor,
    index: PackageIndex,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    extra: str,
    library: str,
    arguments: tuple[str, ...],
) -> None:
    index.add("numpy", "2.0.0")
    (tmp_path / "m.toml").write_text(MATRIX)
    monkeypatch.setitem(sys.modules, library, None)
    options = ("--index-url", index.url) if arguments[0] == "pi" else ()

    result = advisor_here(*arguments, *options)

    assert result.returncode == 2, result.stderr
    assert f"needs the library `{library}`, which is not installed" in result.stderr
    assert f"pip install 'seshat-advisor[{extra}]'" in result.stderr
    assert f"pipx runpip seshat-advisor install 'seshat-advisor[{extra}]'" in result.stderr
    assert f"uv tool install 'seshat-advisor[{extra}]" in result.stderr
    assert not (tmp_path / "campaigns").exists()


@pytest.mark.parametrize(
    ("recorded", "address"),
    [
        (None, ""),
        ('{"url": "file:///home/me/seshat", "dir_info": {}}', " @ file:///home/me/seshat"),
        ('{"url": "https://example.org/s.git", "vcs_info": {"vcs": "git"}}', " @ git+https://example.org/s.git"),
    ],
    ids=["index", "clone", "repository"],
)
def test_uv_installs_an_extra_from_where_the_program_came_from(
    monkeypatch: pytest.MonkeyPatch, recorded: str | None, address: str
) -> None:
    monkeypatch.setattr(PathDistribution, "read_text", lambda *_: recorded)

    error = MissingExtraError("plot", "a plot needs a library")

    assert error.hint.endswith(f"`uv tool install 'seshat-advisor[plot]{address}'`")


def test_only_one_module_names_the_commands_that_install_an_extra() -> None:
    sources = (path for name in ("advisor", "knowledge", "pi_runners") for path in (ROOT / name).rglob("*.py"))

    assert [path.name for path in sources if re.search(r"(?:pip|tool) install '", path.read_text())] == ["extras.py"]


def test_without_its_client_kubernetes_counts_as_an_engine_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)

    with pytest.raises(RefusedError) as error:
        KubernetesExecutor().check()

    assert (error.value.exit_code, error.value.code) == (2, "missing-extra")
