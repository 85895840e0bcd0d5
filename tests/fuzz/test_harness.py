"""The harness of the fuzzer: an input that ends the child process is reported, and the next inputs are parsed."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.harness import EndlessError, Report, table, watchdog

PROGRAM = """
import json, os, re, signal, sys
from dataclasses import asdict
from tests.fuzz.harness import generate_input, run
from tests.fuzz.parsers import Parser

document = b"a document of some lines\\n" * 50
texts = json.loads(sys.argv[1])
for seed in range(100):
    inputs = [generate_input([document], "lines", seed, number) for number in range(len(texts) + 5)]
    if len({document, *inputs}) == len(inputs) + 1:
        break
troubles = dict(zip(inputs, texts))

def read(content, folder):
    exec(troubles.get(content, "pass"))

def read_nothing(content, folder):
    raise ValueError

for function in (read, read_nothing):
    parser = Parser(seeds=lambda: [document], kind="lines", read=function)
    report = run("made-up", parser, seed=seed, inputs=len(inputs), most_seconds=0.5)
    print(json.dumps(asdict(report)), flush=True)
"""
FAILURES = {
    "while True: pass": "too much processor time",
    "re.match('(a|a)*$', 'a' * 60 + 'b')": "too much processor time",
    "os.kill(os.getpid(), signal.SIGSEGV)": "the process ended with SIGSEGV",
    "bytearray(2**30)": "MemoryError",
    "raise SystemExit(3)": "the process ended with 70",
    "raise ValueError('a reason')": "ValueError",
}


@pytest.fixture(scope="module")
def run() -> subprocess.CompletedProcess[str]:
    """The result of a run with an input for each failure, and then a run whose valid document cannot be read."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(["pass", *FAILURES])],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
        timeout=300,
    )


def test_failures_are_reported_and_the_next_inputs_are_read(run: subprocess.CompletedProcess[str]) -> None:
    report = Report(**json.loads(run.stdout))

    assert (report.inputs, report.failed, report.refused) == (len(FAILURES) + 6, len(FAILURES), 0)
    numbers = {end: number for number, end in reversed([*enumerate(FAILURES.values(), start=1)])}
    assert {about.partition(" in ")[0]: message.split()[:2] for about, message in report.failures.items()} == {
        end: ["input", str(number)] for end, number in numbers.items()
    }


def test_a_valid_document_that_cannot_be_read_ends_the_run(run: subprocess.CompletedProcess[str]) -> None:
    assert run.returncode == 1
    assert "a valid document of `made-up` was not read: the process ended with 70" in run.stderr


def test_the_watchdog_ends_endless_code() -> None:
    with pytest.raises(EndlessError, match="more than 0.2 seconds of processor time"), watchdog(0.2):
        sum(1 for _ in itertools.count())


def test_the_table_of_all_parsers_is_markdown() -> None:
    report = Report(
        parser="made-up",
        seed=1,
        inputs=10,
        refused=6,
        failed=1,
        longest_seconds=0.123,
        peak_bytes=100 * 2**20,
        failures={"ValueError": "input 3 of seed 1"},
    )

    assert table([report]).splitlines()[1:] == [
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| `made-up` | 10 | 6 | 3 | 0.12 | 100 |",
    ]
