"""The commands of the README, the tutorial and the how-to guides print what these pages show."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.documentation_blocks import Command, Needs, commands

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("tutorial/*.md")),
    *sorted((ROOT / "docs/how-to").rglob("*.md")),
]


def pages(needs: Needs) -> list[str]:
    """Return the pages that have a command with these needs."""
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in PAGES}
    return [name for name, text in texts.items() if any(command.needs is needs for command in commands(text))]


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return one cache directory for all pages: each page of an index is downloaded once."""
    return tmp_path_factory.mktemp("documentation-cache")


@pytest.fixture
def environment(tmp_path: Path, first_knowledge: Path, shared_cache: Path) -> dict[str, str]:
    """Return the variables of a user with an empty home directory and `advisor` on the search path."""
    home, programs = tmp_path / "home", tmp_path / "programs"
    data = home / ".local" / "share" / "seshat"
    for folder in (data, programs):
        folder.mkdir(parents=True)
    shutil.copy(first_knowledge, data / "knowledge.sqlite")
    program = programs / "advisor"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m advisor "$@"\n')
    program.chmod(0o755)
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("ADVISOR_", "XDG_", "GIT_"))},
        "HOME": str(home),
        "PATH": f"{programs}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "COLUMNS": "80",
        "ADVISOR_CACHE_DIR": str(shared_cache),
        # The service is not everywhere within reach, and says so.
        "ADVISOR_ADVISORIES": "off",
        "CHECKOUT": str(ROOT),
        "GIT_AUTHOR_NAME": "test",
        "GIT_AUTHOR_EMAIL": "test@example.org",
        "GIT_COMMITTER_NAME": "test",
        "GIT_COMMITTER_EMAIL": "test@example.org",
    }


def differences(page_commands: Sequence[Command], environment: dict[str, str], folder: Path) -> list[str]:
    """Run commands in one shell, as a reader would type them; describe each with a different exit code or output."""
    outputs = folder / "outputs"
    (folder / "work").mkdir()
    outputs.mkdir()
    script = "".join(
        f"{{\n{command.script}\n}} >{outputs}/{number}.txt 2>&1 </dev/null\necho $? >{outputs}/{number}.code\n"
        for number, command in enumerate(page_commands)
    )
    subprocess.run(["bash", "-c", script], cwd=folder / "work", env=environment, check=True)
    failures = []
    for number, command in enumerate(page_commands):
        output = (outputs / f"{number}.txt").read_text(encoding="utf-8")
        code = int((outputs / f"{number}.code").read_text())
        if code != command.exit_code or not command.prints(output):
            failures.append(f"$ {command.script}\n{output}[exit code {code}, expected {command.exit_code}]\n")
    return failures


def run(page: str, needs: Needs, environment: dict[str, str], folder: Path) -> None:
    """Run the commands of a page with at most these needs, and compare their output."""
    selected = [command for command in commands((ROOT / page).read_text(encoding="utf-8")) if command.needs <= needs]

    failures = differences(selected, environment, folder)

    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("page", pages(Needs.NOTHING))
def test_commands_print_what_the_page_shows(page: str, environment: dict[str, str], tmp_path: Path) -> None:
    run(page, Needs.NOTHING, environment, tmp_path)


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize("page", pages(Needs.INDEX))
def test_commands_that_read_the_index_print_what_the_page_shows(
    page: str, environment: dict[str, str], tmp_path: Path, network: None
) -> None:
    run(page, Needs.INDEX, environment, tmp_path)


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize("page", pages(Needs.MINUTES))
def test_installations_and_measurements_of_a_page_work(
    page: str, environment: dict[str, str], tmp_path: Path, network: None
) -> None:
    run(page, Needs.MINUTES, environment, tmp_path)


def test_only_the_stable_part_of_an_output_is_compared() -> None:
    page = """
<!-- exit code: 3 -->

```console
$ one
first 1.2
...
last ...
$ two \\
    --three
```

<!-- needs: package index -->
```console
$ four
speed 1.2x
```
"""
    one, two, four = commands(page)

    assert one.prints("first 1.2\na\nb\nlast of all\n")
    assert not one.prints("first 1.3\nlast of all\n")
    assert not one.prints("first 1.2\n")
    assert (one.exit_code, two.exit_code, two.script) == (0, 3, "two \\\n    --three")
    assert four.prints("speed 11.25x\n")
    assert not four.prints("speeds 1.2x\n")


def test_a_block_is_run_unless_the_page_says_why_not() -> None:
    page = """
<!-- not run: needs a cluster -->

```console
sbatch job
```

<!-- file: a.txt -->

```text
it's
```

```console
cat a.txt \\
    a.txt
true
```
"""
    file, cat, true = commands(page)
    (free,) = commands("<!-- not compared: it is random -->\n```console\n$ x\n1\n```\n")

    assert file.script.endswith(" > a.txt")
    assert cat.script == "cat a.txt \\\n    a.txt"
    assert true.script == "true"
    assert (free.script, free.output) == ("x", "")
    with pytest.raises(ValueError, match="unknown comments"):
        commands("<!-- not-run: x -->\n```console\nx\n```\n".replace("not-run", "never run"))
