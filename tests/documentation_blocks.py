"""The console blocks of a page: which commands they hold, what these print, and what a test needs to run them.

Comments before a block, which no reader sees, say how it is tested:

- ``<!-- not run: REASON -->``: the block is not run.
- ``<!-- needs: package index -->`` or ``minutes``, or both with a comma: numbers and versions of the output are not
  compared. What needs minutes is run by a slow test only.
- ``<!-- not compared: REASON -->``: the commands are run, and may print something else than the page shows.
- ``<!-- exit code: 1 -->``: the last command ends with this code instead of 0.
- ``<!-- file: NAME -->``: the block is the content of a file, which the commands after it read.
- ``<!-- run with: python -->``: the block is a program, which this command runs.
- ``<!-- setup: COMMANDS -->``: commands that are run before the block.

In an output, a line ``...`` stands for any lines, and `` ...`` at the end of a line for the rest of the line. Reports
are wrapped to the width of the terminal: where numbers are not compared, line breaks are not, either.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

FENCE = re.compile(r"((?:^ *(?:<!--(?:(?!-->).)*--> *)+\n\n?)*)^( *)```(\w*)\n(.*?)^\2```$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!-- ([a-z ]+):(.*?)-->", re.DOTALL)
NUMBER = re.compile(r"(?<!\w)-?\d+(?:\.\w+)*")


class Needs(IntEnum):
    """What a block needs, each including those before it."""

    NOTHING = 0
    INDEX = 1
    MINUTES = 2


NEEDS = {"": Needs.NOTHING, "package index": Needs.INDEX, "minutes": Needs.MINUTES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command of a page.

    Attributes:
        script: What a shell runs.
        output: The lines that the page shows; none if it shows no output.
        exit_code: The code that it ends with.
        needs: What it needs.
    """

    script: str
    output: str = ""
    exit_code: int = 0
    needs: Needs = Needs.NOTHING

    def prints(self, output: str) -> bool:
        """Return whether an output is the one that the page shows."""
        if not self.output:
            return True
        exact = self.needs is Needs.NOTHING
        pattern = _pattern if exact else _wrapped_pattern
        return pattern(_comparable(self.output, exact=exact)).fullmatch(_comparable(output, exact=exact)) is not None


def commands(page: str) -> list[Command]:
    """Return the commands of a page in their order, without those of blocks that are not run."""
    return [command for fence in FENCE.finditer(page) for command in _of_block(fence)]


def _of_block(fence: re.Match[str]) -> Iterator[Command]:
    marks = {key: value.strip() for key, value in COMMENT.findall(fence[1])}
    if unknown := marks.keys() - {"not run", "not compared", "needs", "exit code", "file", "run with", "setup"}:
        raise ValueError(f"unknown comments: {sorted(unknown)}")
    needs = max(NEEDS[name] for name in marks.get("needs", "").split(", "))
    content = textwrap.dedent(fence[4])
    if "setup" in marks:
        yield Command(script=textwrap.dedent(marks["setup"]), needs=needs)
    if "file" in marks:
        yield Command(script=f"printf %s {shlex.quote(content)} > {marks['file']}", needs=needs)
    elif "run with" in marks:
        yield Command(script=f"{marks['run with']} -c {shlex.quote(content)}", needs=needs)
    elif fence[3] == "console" and "not run" not in marks:
        examples = list(_entries(content))
        for number, (script, output) in enumerate(examples, 1):
            shown = "" if "not compared" in marks else output
            code = int(marks.get("exit code", 0)) if number == len(examples) else 0
            yield Command(script=script, output=shown, exit_code=code, needs=needs)


def _entries(content: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of a block with their outputs; without prompts, each line is a command without output."""
    if not content.startswith("$ "):
        content = re.sub(r"^(?! |$)", "$ ", content, flags=re.MULTILINE)
    for entry in re.split(r"^\$ ", content, flags=re.MULTILINE)[1:]:
        lines = entry.splitlines()
        end = 1 + next(number for number, line in enumerate(lines) if not line.endswith("\\"))
        yield "\n".join(lines[:end]), "\n".join(lines[end:])


def _comparable(output: str, *, exact: bool) -> str:
    lines = [line.rstrip() if exact else NUMBER.sub("#", line.rstrip()) for line in output.strip().splitlines()]
    return "".join(f"{line}\n" for line in lines)


def _wrapped_pattern(output: str) -> re.Pattern[str]:
    """Return the pattern of an output whose lines may be wrapped elsewhere."""
    parts = [r"\s*"]
    for line in output.splitlines():
        for word in line.split():
            is_rest = word == "..." and line.rstrip().endswith("...")
            parts.append(r"[\s\S]*?" if is_rest else rf"{re.escape(word)}(?:\s+|$)")
    return re.compile("".join(parts))


def _pattern(output: str) -> re.Pattern[str]:
    parts = []
    for line in output.splitlines():
        if line.strip() == "...":
            parts.append(r"(?:.*\n)*?")
        elif line.endswith(" ..."):
            parts.append(re.escape(line.removesuffix(" ...")) + r".*\n")
        else:
            parts.append(re.escape(f"{line}\n"))
    return re.compile("".join(parts))
