"""Values of command-line options are read the same way by every command."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
import typer.core
from typer.testing import CliRunner

from advisor.api import configuration
from advisor.api.measurements.options import read_engine_options
from advisor.api.option import Option, key_fields, option_group, read_duration, read_pairs, with_settings
from advisor.api.options import GROUPS, MIN_AGE_DAYS, ResolutionOptions, read_days, read_max_size
from advisor.cli.app import COMMANDS, make_app
from advisor.cli.command_help import CommandGroup, help_row
from advisor.cli.options import expand_options
from knowledge.domain.errors import InputError
from knowledge.domain.ratio import MIN_GAIN
from tests.package_index import PackageIndex


def test_pairs_are_read_with_their_order_and_later_equals_signs() -> None:
    pairs = read_pairs([" b = 2", "a=x=y"], "--settings")

    assert pairs == [("b", "2"), ("a", "x=y")]


@pytest.mark.parametrize("text", ["m", "=1", "m=", " = "])
def test_a_pair_without_name_or_value_is_an_error_that_shows_how_to_write_it(text: str) -> None:
    with pytest.raises(InputError) as error:
        read_pairs(["n=1", text], "--parameters")

    assert error.value.message == f"`--parameters {text}` has no value"
    assert error.value.hint == "write it as `--parameters name=value`"


def test_an_executor_option_may_be_empty() -> None:
    assert read_engine_options(["partition=", "gres=gpu:1"]) == {"partition": "", "gres": "gpu:1"}
    assert read_engine_options(()) == {}
    with pytest.raises(InputError, match="`--engine gres` has no value"):
        read_engine_options(["gres"])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("8h", 28800), ("90m", 5400), (" 45S ", 45), ("1h30m", 5400), ("1.5h", 5400), ("2d", 172800), ("1d2h3m4s", 93784)],
)
def test_a_duration_is_read_in_days_hours_minutes_and_seconds(text: str, seconds: float) -> None:
    assert read_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "8", "h", "8x", "-8h", "0m", "0h0s", "30m1h", "1e3h", "nan", "1,5h", "٣h"])
def test_a_text_that_is_no_positive_duration_is_an_error_that_shows_how_to_write_it(text: str) -> None:
    with pytest.raises(InputError) as error:
        read_duration(text)

    assert error.value.message == f"`{text}` is not a duration"
    assert error.value.hint == "write it as `8h`, `90m`, `45s` or `1h30m`"


def help_of(*names: str) -> list[str]:
    """Return the lines of the help of a command, without its description."""
    lines = CliRunner().invoke(make_app(), [*names, "--help"], env={"COLUMNS": "80"}).stdout.splitlines()
    return lines[next(place for place, line in enumerate(lines) if line.endswith(":")) :]


@pytest.mark.parametrize("command", ["advise", "check", "prices", "explain", "tree"])
def test_the_help_has_one_line_for_each_option_in_groups(command: str) -> None:
    lines = help_of(command)

    titles = [line for line in lines if line and not line.startswith(" ") and line.endswith(":")]
    measuring = ["Measuring:"] if command == "advise" else []
    expected = ["Project:", "Target:", "Objective:", *measuring, "Indexes and knowledge base:", "Output:"]
    assert titles[-len(expected) :] == expected
    assert [line for line in lines if line.startswith("     ")] == []
    assert max(map(len, lines)) <= 80
    assert not any("<" in line or "|" in line for line in lines)


def test_every_command_has_plain_metavars() -> None:
    root = typer.main.get_command(make_app())
    with root.make_context("advisor", [], resilient_parsing=True) as context:
        rows = [(usage, help_row(p)[0]) for usage, command in commands_below(context) for p in command.params]

    assert len(rows) > 100
    assert [row for row in rows if "<" in row[1]] == []


def test_an_option_of_several_words_names_its_value_in_one_word() -> None:
    root = typer.main.get_command(make_app())
    with root.make_context("advisor", [], resilient_parsing=True) as context:
        rows = {help_row(p)[0] for _, command in commands_below(context) for p in command.params}

    assert {"--max-runs MOST", "--min-time SECONDS", "--warm-up STEPS"} <= rows
    assert [row for row in rows if "_" in row] == []


def commands_below(context: Any) -> Iterator[tuple[str, Any]]:
    """Yield the path of each command below a context, with the command."""
    group = context.command
    if not isinstance(group, typer.core.TyperGroup):
        yield context.command_path, group
        return
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        with command.make_context(name, [], parent=context, resilient_parsing=True) as below:
            yield from commands_below(below)


def test_every_command_is_found_by_its_name_alone() -> None:
    names = list(typer.main.get_command(make_app()).commands)  # type: ignore[attr-defined]

    assert sorted(names) == sorted(COMMANDS)
    assert all(list(typer.main.get_command(make_app([name])).commands) == [name] for name in names)  # type: ignore[attr-defined]


def test_the_help_of_the_program_needs_no_command() -> None:
    helps = [CliRunner().invoke(make_app(names), ["--help"], env={"COLUMNS": "80"}).stdout for names in (COMMANDS, ())]

    assert helps[0] == helps[1]
    assert "knowledge  Query, import" in helps[1]


@pytest.mark.shipped
def test_a_remembered_advice_imports_neither_pydantic_nor_the_solver(
    index: PackageIndex, tmp_path: Path, knowledge_file: Path
) -> None:
    index.add("a", "1.0")
    (tmp_path / "requirements.txt").write_text("a\n")
    program = (
        "import atexit, sys\n"
        "names = {'advisor.api.search', 'advisor.api.session', 'build', 'networkx', 'ortools', 'pydantic', "
        "'sqlalchemy', 'tomli_w'}\n"
        "atexit.register(lambda: print(*sorted(names & {*sys.modules})))\n"
        "from advisor.cli.app import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", program, "advise", "--dry-run", "--hardware", "cpu-zen4", "--index-url", index.url]
    environment = {
        **os.environ,
        "ADVISOR_CACHE_DIR": f"{tmp_path}/cache",
        "ADVISOR_KNOWLEDGE": f"sqlite:///{knowledge_file}",
    }

    first, second = (
        subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    )

    loaded = "advisor.api.search advisor.api.session build ortools pydantic sqlalchemy"
    assert first.stdout.splitlines()[-1] == loaded
    assert second.stdout.splitlines()[:-1] == first.stdout.splitlines()[:-1]
    assert second.stdout.splitlines()[-1] == ""


@option_group
@dataclass(frozen=True, kw_only=True)
class _PaintOptions:
    """How a stack is painted."""

    colour: Annotated[
        str | None,
        Option("--colour", key="colour", per_target=True, otherwise="blue", help="Colour of the stack.\nOr `none`."),
    ] = None
    layers: Annotated[int | None, Option("--layers", key="layers", otherwise="2", parse=read_days, help="Layers.")] = (
        None
    )
    brushes: Annotated[
        int | None,
        Option("--brushes", key="brushes", per_target=True, otherwise="1", minimum=1, example="2", help="Brushes."),
    ] = None
    is_dry: Annotated[
        bool | None, Option("--dry/--wet", key="dry", otherwise="false", help="Wait until it is dry.")
    ] = None
    thinner: Annotated[str | None, Option("--thinner", key="thinner", check=read_max_size, help="Thinner.")] = None


def test_an_option_is_declared_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.api.configuration.GROUPS", [*GROUPS, _PaintOptions])
    runs: list[_PaintOptions] = []

    def paint(options: _PaintOptions) -> None:
        runs.append(options)

    app = CommandGroup()
    app.command()(expand_options(paint))
    runner = CliRunner()
    help_text = runner.invoke(app, ["--help"]).stdout
    runner.invoke(app, ["--colour", "red", "--layers", "3"])
    runner.invoke(app, [], env={"ADVISOR_COLOUR": "green"})
    configuration.check_table({"colour": "red", "layers": 3, "targets": {"a": {"colour": "red"}}}, "pyproject.toml")

    assert "--colour COLOUR" in help_text
    assert runs == [_PaintOptions(colour="red", layers=3), _PaintOptions(colour="green")]
    completed = _PaintOptions(colour="blue", layers=2, brushes=1, is_dry=False)
    assert with_settings(runs[1], {"colour": "red", "layers": 5}) == replace(completed, colour="green", layers=5)
    assert with_settings(_PaintOptions(), {}) == completed
    assert with_settings(_PaintOptions(layers=1), {"brushes": 3, "dry": True}) == replace(
        completed, layers=1, brushes=3, is_dry=True
    )
    assert "colour: Colour of the stack. Or ``none``." in (inspect.getdoc(_PaintOptions) or "")
    assert configuration.keys()["colour"].meaning == "Colour of the stack. Or `none`."
    assert "colour" in configuration.target_keys()
    with pytest.raises(InputError, match="`tool.advisor.colour` has a value of the wrong type"):
        configuration.check_table({"colour": 1}, "pyproject.toml")
    with pytest.raises(InputError, match="`tool.advisor.brushes` has a value of the wrong type"):
        configuration.check_table({"brushes": "3"}, "pyproject.toml")
    with pytest.raises(InputError, match=r"`\[tool.advisor\]` has no key `color`"):
        configuration.check_table({"color": "red"}, "pyproject.toml")
    with pytest.raises(InputError, match="`many` is not a number of days"):
        with_settings(_PaintOptions(), {"layers": "many"})


def test_a_value_that_equals_the_default_is_a_value() -> None:
    settings = {"brushes": 3, "dry": True}

    assert with_settings(_PaintOptions(brushes=1, is_dry=False), settings).brushes == 1
    assert with_settings(_PaintOptions(brushes=1, is_dry=False), settings).is_dry is False
    assert with_settings(_PaintOptions(is_dry=True), {"dry": False}).is_dry is True


def test_an_option_with_a_key_has_a_default_that_says_that_nothing_is_given() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Wrong:
        is_dry: Annotated[bool, Option("--dry", key="dry", help="Wait until it is dry.")] = False

    with pytest.raises(TypeError, match=r"`Wrong.is_dry` has a key, so its default must be `None`"):
        key_fields(Wrong)


@pytest.mark.parametrize(
    ("table", "message", "hint"),
    [
        ({"layers": "many"}, "`tool.advisor.layers`: `many` is not a number of days", 'write it as `layers = "..."`'),
        ({"thinner": "2"}, "`tool.advisor.thinner`: `2` is not a size", 'write it as `thinner = "..."`'),
        ({"brushes": 0}, "`tool.advisor.brushes`: it is 0, and must be at least 1", "write it as `brushes = 2`"),
        ({"allow": ["x"]}, "`tool.advisor.allow`: `x` cannot be allowed", "choose one of `replace-packages`, "),
        (
            {"targets": {"a": {"brushes": 0}}},
            "`tool.advisor.targets.a.brushes`: it is 0, and must be at least 1",
            "write it as `brushes = 2`",
        ),
    ],
)
def test_each_kind_of_key_is_checked_with_its_file(
    monkeypatch: pytest.MonkeyPatch, table: dict[str, Any], message: str, hint: str
) -> None:
    monkeypatch.setattr("advisor.api.configuration.GROUPS", [*GROUPS, _PaintOptions])

    with pytest.raises(InputError) as error:
        configuration.check_table(table, "pyproject.toml")

    assert error.value.message == f"`pyproject.toml`: {message}"
    assert error.value.hint.startswith(hint)


def test_a_target_may_have_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.api.configuration.GROUPS", [*GROUPS, _PaintOptions])

    configuration.check_table({"targets": {"a": {"brushes": 3, "lock": "a.txt"}}}, "pyproject.toml")
    with pytest.raises(InputError, match="`tool.advisor.targets.a.lock` has a value of the wrong type"):
        configuration.check_table({"targets": {"a": {"lock": 3}}}, "pyproject.toml")


def test_defaults_of_numbers_are_in_the_help() -> None:
    rows = {line.split()[0]: line for line in help_of("advise") if line.strip().startswith("--min")}

    assert rows["--min-gain"].endswith("(default: 3%)")
    assert rows["--min-age"].endswith("(default: 14)")
    assert with_settings(ResolutionOptions(), {}).min_gain_fraction == MIN_GAIN
    assert with_settings(ResolutionOptions(), {}).min_age_days == MIN_AGE_DAYS
