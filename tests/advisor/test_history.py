"""`advisor pi history`: text, JSON, plot, and its messages."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from advisor.api.measurements.history import history as read_history
from advisor.api.measurements.options import HistoryOptions
from knowledge.store.engine import open_knowledge_base
from tests.advisor.inputs import is_error
from tests.conftest import Advisor
from tests.knowledge.histories import ENVIRONMENT, FIRST_DAY, Day, example, history, slower


@pytest.fixture
def watched(knowledge_file: Path) -> Path:
    """The knowledge base of the test, with the example of the documentation."""
    with open_knowledge_base(f"sqlite:///{knowledge_file}") as store:
        store.add(example())
    return knowledge_file


def test_a_history_prints_each_change_with_what_else_changed(watched: Path, advisor_here: Advisor) -> None:
    result = advisor_here("pi", "history", "--since", "2026-01-15")

    assert result.returncode == 0
    conv2d, softmax = result.stdout.split("\n\n")
    slower_day = "2026-02-10 06:00 5.7 % slower [5.3, 6.2], certain since 2026-02-11 06:00: the stack changed"
    assert slower_day in " ".join(conv2d.split())
    assert all(len(line) <= 100 for line in result.stdout.splitlines())
    assert "torch: 2.13.0 -> 2.14.0" in conv2d
    assert "gpu clock: 1980 MHz -> 1395 MHz" in conv2d
    assert "the stack changed" not in softmax


def test_many_series_without_a_change_are_a_number(knowledge_file: Path, advisor_here: Advisor) -> None:
    with open_knowledge_base(f"sqlite:///{knowledge_file}") as store:
        store.add(example())
        for number in range(21):
            length = 7 if number else 10
            store.add(history({0: Day()}, length=length, indicator=f"matmul{number}"))

    text = " ".join(advisor_here("pi", "history").stdout.split())

    assert "matmul" not in text
    assert text.count("history torch: ") == 2
    assert "unchanged 21 series, 20 of them with fewer than 8 measurements" in text
    assert "matmul20" in advisor_here("pi", "history", "--format", "json").stdout


def test_a_date_limits_the_changes_and_not_what_is_usual(watched: Path, advisor_here: Advisor) -> None:
    later = advisor_here("pi", "history", "--since", "2026-03-31", "--indicator", "conv2d").stdout

    assert "34.7 % slower" in later
    assert "5.7 % slower" not in later
    assert read_history(HistoryOptions(since=None, indicator="conv2d"), knowledge=f"sqlite:///{watched}")[0].changes


def test_a_history_as_json_has_points_and_changes(watched: Path, advisor_here: Advisor) -> None:
    document = json.loads(advisor_here("pi", "history", "--format", "json", "--framework", "torch").stdout)

    conv2d, softmax = document["series"]
    assert (document["schema_version"], len(conv2d["points"]), len(softmax["changes"])) == (1, 100, 1)
    first, second = conv2d["changes"]
    assert first["speed"]["low"] < first["speed"]["ratio"] < first["speed"]["high"] < 1
    assert (first["point"], first["attribution"]["kind"]) == (40, "stack")
    assert (second["attribution"]["kind"], second["is_of_speed"]) == ("clocks", True)
    assert conv2d["points"][-1]["throttled"] is True


def test_a_plot_has_a_panel_for_each_series_and_is_repeatable(watched: Path, advisor_here: Advisor) -> None:
    pytest.importorskip("matplotlib")

    advisor_here("pi", "history", "--plot", "h.svg")
    first = Path("h.svg").read_bytes()
    advisor_here("pi", "history", "--plot", "h.svg")

    assert first.count(b"seconds a call") == 2
    assert b"stack" in first
    assert Path("h.svg").read_bytes() == first


def test_several_conditions_come_with_the_measurement_that_separates_them(
    knowledge_file: Path, advisor_here: Advisor
) -> None:
    usual = Day()
    changed = slower(
        usual, 10, packages={"numpy": "2.4.6", "torch": "2.14.0"}, environment={**ENVIRONMENT, "kernel": "6.12"}
    )
    with open_knowledge_base(f"sqlite:///{knowledge_file}") as store:
        store.add(history({0: usual, 30: changed}, length=45))

    text = " ".join(advisor_here("pi", "history").stdout.split())

    assert "several things changed at once" in text
    assert 'measuring --stack "torch==2.13.0" --stack "torch==2.14.0" in one block' in text


def test_a_clock_that_was_set_back_by_years_is_named(knowledge_file: Path, advisor_here: Advisor) -> None:
    """The slower days after the usual ones state times in 2015, so that they seem to come first."""
    usual = Day()
    days = {
        0: usual,
        30: slower(usual, 10, environment={**ENVIRONMENT, "clock_jump_seconds": -3.5e8}),
        31: slower(usual, 10, environment={**ENVIRONMENT, "clock_jump_seconds": -2.5}),
    }
    with open_knowledge_base(f"sqlite:///{knowledge_file}") as store:
        store.add(history(days, time=lambda day: FIRST_DAY.replace(year=2026 if day < 30 else 2015) + timedelta(day)))

    text = " ".join(advisor_here("pi", "history").stdout.split())
    [series] = json.loads(advisor_here("pi", "history", "--format", "json").stdout)["series"]

    assert "faster" in text
    assert "gap 2015-03-01 to 2026-01-01: nothing was measured, or a clock was wrong" in text
    assert "clock changed by a day or more during 1 measurement, since 2015-01-31" in text
    assert [len(series["gaps"]), series["clock_jumps"]] == [1, ["torch-matmul-0030"]]


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (("--indicator", "conv"), "nothing was measured of the indicator `conv`", "did you mean `conv2d`?"),
        (("--framework", "jax"), "nothing was measured of the framework `jax`", "choose one of `torch`"),
        (("--machine", "elsewhere"), "nothing was measured of the machine `elsewhere`", "choose one of"),
        (("--stack", "torch=2"), "`torch=2` is not a stack", "torch==2.13.0"),
        (("--stack", "torch==9.9"), "to which all options apply", "omit one of"),
        (("--since", "2030-01-01"), "nothing was measured since 2030-01-01", "newest measurement is of 2026-04-10 06:"),
        (("--since", "soon"), "`soon` is not a date", "--since 2026-01-31"),
        (("--plot", "h.png"), "`h.png` is not drawn", "--plot FILE.svg"),
    ],
)
def test_wrong_options_are_refused_with_a_hint(
    watched: Path, advisor_here: Advisor, arguments: tuple[str, ...], message: str, hint: str
) -> None:
    result = advisor_here("pi", "history", *arguments)

    error = " ".join(result.stderr.split())
    assert (result.returncode, is_error(result.stderr)) == (2, True)
    assert message in error
    assert hint in error


def test_without_measurements_the_next_step_is_named(advisor_here: Advisor) -> None:
    result = advisor_here("pi", "history", "--since", "2030-01-01")

    assert result.returncode == 0
    assert "`advisor pi run` measures this machine" in result.stdout
