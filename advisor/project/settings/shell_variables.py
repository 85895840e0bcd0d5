"""Environment variables that shell scripts, Dockerfiles and `.env` files set; nothing is executed."""

from __future__ import annotations

import bisect
import json
import re
import shlex
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from advisor.project.settings.interface import Variable

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_DEFAULT = re.compile(r"\$\{(\w+):?-([^${}]*)\}")
"""`${NAME:-text}`: the text, if the variable of this name is not set."""
_DECLARATIONS = frozenset({"export", "declare", "typeset", "readonly", "local", "env"})
_ENVIRONMENT_OPTIONS = frozenset({"-e", "--env", "--export"})
_OPENED = re.compile(r"(?:^|[;&|]|\b(?:then|do|else)\b)\s*(?:if|case)\b")
_CLOSED = re.compile(r"(?:^|[;&|])\s*(?:fi|esac)\b")
_EXPORTED = re.compile(r"^[ \t]*(?:export|declare[ \t]+-x)[ \t](.*)$", re.MULTILINE)
_KEYWORDS = frozenset({"then", "do", "else", "{", "(", "!", "time", "if", "while", "until", "elif"})
_HEREDOC = re.compile(
    r"""'[^']*'|"(?:\\.|[^"\\])*"|(?<!<)<<(?P<tabs>-?)[ \t]*(?P<quote>["']?)\\?(?P<end>[\w.+-]+)(?P=quote)"""
)
"""A quoted text, or the beginning of a here-document, with the line that ends it."""
_SHELL = re.compile(r"(?:^|[\s;&|(/])(?:ba|da|k|z)?sh(?=[\s;&|)]|$)|\b(?:sbatch|qsub|bsub|ssh)\b")
"""A program that runs its input as a script."""
_INSTRUCTION = re.compile(r"\s*(\w+)\s+(.*)", re.DOTALL)
_SLURM = "#SBATCH"
"""Beginning of the comments that Slurm reads as options."""
_MOST_LINE = 20_000
"""Maximum number of characters of a command that is read."""


def variables_of_shell(text: str, names: Collection[str]) -> Iterator[Variable]:
    """Yield the variables with some names that a shell script sets for the programs that it starts.

    These are `export NAME=value`, `NAME=value program`, `env NAME=value program`, `docker run -e NAME=value`, and
    `--export=NAME=value` of Slurm, also in the comments that Slurm reads.
    """
    lines = _without_heredocs(text.split("\n"))
    exported = {word for line in _EXPORTED.findall("\n".join(lines)) for word in line.split()}
    depth = 0
    for number, line in logical_lines(lines, "\\"):
        depth += len(_OPENED.findall(line))
        if any(name in line for name in names):
            for variable in _of_command(line.removeprefix(_SLURM), names, exported):
                yield replace(variable, line=_line_of(variable, lines, number), is_conditional=depth > 0)
        depth = max(0, depth - len(_CLOSED.findall(line)))


def variables_of_dockerfile(text: str, names: Collection[str]) -> Iterator[Variable]:
    """Yield the variables with some names that the containers of a Dockerfile have.

    These are set by `ENV` and by the commands of `CMD` and `ENTRYPOINT`; `RUN` sets them for itself only.
    """
    escape = re.match(r"#\s*escape\s*=\s*`", text, re.IGNORECASE)
    lines = _without_heredocs(text.split("\n"))
    for number, line in logical_lines(lines, "`" if escape else "\\"):
        match = _INSTRUCTION.match(line)
        instruction, rest = (match[1].upper(), match[2]) if match else ("", "")
        if not any(name in rest for name in names):
            continue
        if instruction in ("CMD", "ENTRYPOINT"):
            variables = list(_of_command(_command(rest), names, frozenset()))
        elif instruction == "ENV":
            words = _words(rest)
            first, _, tail = rest.partition(" ")
            pairs = [match for word in words if (match := _ASSIGNMENT.fullmatch(word))]
            # `ENV NAME value` is the older form, with one variable.
            variables = (
                [variable_of(m[1], m[2]) for m in pairs] if "=" in first else [variable_of(first, _unquoted(tail))]
            )
        else:
            variables = []
        yield from (replace(v, line=_line_of(v, lines, number)) for v in variables if v.name in names)


def variables_of_dotenv(text: str, names: Collection[str]) -> Iterator[Variable]:
    """Yield the variables with some names that an `.env` file sets."""
    for number, line in enumerate(text.split("\n"), 1):
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and name.strip() in names:
            yield replace(variable_of(name.strip(), _unquoted(value)), line=number)


def variable_of(name: str, text: str) -> Variable:
    """Return the variable that an assigned text sets; the text may refer to others. Its line is not known here."""
    default = _DEFAULT.fullmatch(text)
    if default is not None and default[1] == name:
        return Variable(name=name, text=default[2], is_default=True)
    return Variable(name=name, text=None if re.search(r"[$`]", text) else text)


def _of_command(line: str, names: Collection[str], exported: Collection[str]) -> Iterator[Variable]:
    """Yield the variables that a line of a shell script sets; their line is not known here."""
    for command in commands_of(line):
        leading: list[Variable] = []
        declares, previous, has_program = False, "", False
        for word in command:
            match = _ASSIGNMENT.fullmatch(word)
            if previous in _ENVIRONMENT_OPTIONS or word.startswith(("--env=", "--export=")):
                listed = word.partition("=")[2] if word.startswith("--") else word
                pairs = (_ASSIGNMENT.fullmatch(part) for part in listed.split(","))
                yield from (variable_of(m[1], m[2]) for m in pairs if m is not None and m[1] in names)
            elif match is not None and not has_program:
                leading.append(variable_of(match[1], match[2]))
            elif not has_program and not leading and word in _DECLARATIONS:
                declares = True
            elif not word.startswith("-") and word not in _KEYWORDS:
                has_program = True
                if re.search(r"\s", word) and previous in ("-c", "-lc"):
                    yield from _of_command(word, names, exported)
            previous = word
        if has_program or declares:
            yield from (variable for variable in leading if variable.name in names)
        else:
            yield from (v for v in leading if v.name in names and v.name in exported)


def commands_of(line: str) -> Iterator[list[str]]:
    """Yield the words of each command of a line of a shell script."""
    command: list[str] = []
    for word in _words(line):
        if word and set(word) <= set(";&|()"):
            yield command
            command = []
        elif command or word not in _KEYWORDS:
            command.append(word)
    yield command


def _words(line: str) -> list[str]:
    """Return the words of a command; nothing if its quotes are not closed on the line."""
    lexer = shlex.shlex(line[:_MOST_LINE], posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:
        return []


def _unquoted(text: str) -> str:
    """Return a value of an `.env` file without its quotes and comment."""
    text = text.strip()
    for quote in "\"'":
        if text.startswith(quote) and quote in text[1:]:
            return text[1 : text.index(quote, 1)]
    return re.split(r"\s+#", text, maxsplit=1)[0]


def _command(text: str) -> str:
    """Return the command line of `CMD` or `ENTRYPOINT`, in either of their forms."""
    try:
        words = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return shlex.join(map(str, words)) if isinstance(words, list) else text


def _without_heredocs(lines: Sequence[str]) -> list[str]:
    """Return the lines with empty ones for here-documents, which are data, except those that a shell runs."""
    remaining = list(lines)
    if not any("<<" in line for line in lines):
        return remaining
    ends: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, line in enumerate(lines):
        ends["", line].append(number)
        ends["-", line.lstrip("\t")].append(number)
    last = -1
    for number, line in enumerate(lines):
        if number <= last or "<<" not in line or line.lstrip().startswith("#"):
            continue
        first = number
        for match in (match for match in _HEREDOC.finditer(line[:_MOST_LINE]) if match["end"]):
            places = ends.get((match["tabs"], match["end"]), [])
            place = bisect.bisect_right(places, max(last, number))
            # Without its end, it is something else, such as a shift in an arithmetic expression.
            last = places[place] if place < len(places) else last
        if last > first and _SHELL.search(line) is None:
            remaining[first + 1 : last + 1] = [""] * (last - first)
    return remaining


def logical_lines(lines: Sequence[str], escape: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their continuations, and the number of the first; of comments, only those that Slurm reads."""
    parts: list[str] = []
    first = 0
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("#"):
            if line.startswith(_SLURM) and not parts:
                yield number, line
            continue
        first = number if not parts else first
        stripped = line.rstrip()
        parts.append(stripped.removesuffix(escape))
        if not stripped.endswith(escape):
            yield first, " ".join(parts)
            parts = []
    if parts:
        yield first, " ".join(parts)


def _line_of(variable: Variable, lines: Sequence[str], first: int) -> int:
    """Return the number of the line that names a variable, from the first line of a command on."""
    return next((n for n in range(first, len(lines) + 1) if variable.name in lines[n - 1]), first)
