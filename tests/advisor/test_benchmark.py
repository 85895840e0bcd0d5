"""The benchmark of a project on the command line: real locks and environments of small packages, real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import advisor.api
from advisor.api import IndexOptions, ResolutionOptions, SamplingOptions
from advisor.project.benchmark import read_benchmark
from knowledge.domain.errors import InputError
from knowledge.evidence.block_evidence import evidence_of
from knowledge.evidence.stacks import benchmark_comparisons, benchmark_contrasts
from knowledge.store.engine import open_knowledge_base
from tests.conftest import Advisor
from tests.package_index import PackageIndex
from tests.processes import ends_within, start

TABLE = """
[tool.advisor.benchmark]
command = "python bench.py"
metric = { pattern = "speed: ([0-9.]+)", unit = "images/s", better = "higher" }
"""
PROJECT = '[project]\nname = "demo"\nversion = "1"\ndependencies = ["lib"]\n'
PROGRAM = "import lib\nprint('speed:', lib.SPEED)\n"
QUICK = ("--rounds", "2", "--samples", "1")
PINS = ("--stack", "lib==1.0", "--stack", "lib==2.0")

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def project(tmp_path: Path, index: PackageIndex) -> Path:
    """A project with a benchmark, on an index with two versions of its dependency, the newer of them twice as fast."""
    index.add("lib", "1.0", ["base"], code="SPEED = 10")
    index.add("lib", "2.0", ["base"], code="SPEED = 20")
    index.add("base", "1.5", code="")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(PROJECT + TABLE)
    (folder / "bench.py").write_text(PROGRAM)
    return folder


@pytest.fixture
def run(advisor: Advisor, index: PackageIndex, project: Path) -> Run:
    """Run the benchmark of the project."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return advisor("pi", "run", "--benchmark", *arguments, "--index-url", index.url, cwd=project)

    return run


def knowledge_of(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'home' / 'knowledge.sqlite'}"


def test_each_stack_is_the_whole_lock_of_the_project_and_ratios_are_stored_under_its_identity(
    run: Run, project: Path, tmp_path: Path
) -> None:
    completed = run(*PINS, *QUICK)

    assert completed.returncode == 0, completed.stderr
    assert "each process copies 2 files of the project, 0.2 kB" in completed.stderr
    rows = [line.split(" | ") for line in completed.stdout.splitlines() if "images/s |" in line]
    assert [(row[0], row[1], row[6]) for row in rows] == [
        ("| `lib==1.0`", "10 images/s", "reference"),
        ("| `lib==2.0`", "20 images/s", "2.000"),
        ("| A/A `lib==1.0`", "10 images/s", "1.000"),
    ]
    benchmark = read_benchmark(project)
    with open_knowledge_base(knowledge_of(tmp_path)) as store:
        observations = tuple(store.observations(indicator="benchmark"))
        comparisons = benchmark_comparisons(store, benchmark.identity)
        assert benchmark_comparisons(store, "0" * 16) == ()
    assert len(observations) == 2 * 3
    assert {tuple((p.name, p.version) for p in o.stack.packages) for o in observations} == {
        (("base", "1.5"), ("lib", version)) for version in ("1.0", "2.0")
    }
    first = observations[0]
    assert first.indicator.parameters == {
        "project": "demo",
        "identity": benchmark.identity,
        "unit": "images/s",
        "better": "higher",
    }
    assert (first.framework, first.samples, first.flops, first.bytes) == ("lib", (0.1,), 0, 0)
    assert [(c.arm, c.is_control, round(c.ratio.mean, 3)) for c in comparisons] == [(1, False, 0.693), (2, True, 0.0)]
    assert evidence_of(observations).contrasts == ()
    assert evidence_of(observations).runs == ()


def test_the_package_whose_versions_differ_is_compared_in_any_order_of_the_requirements(
    run: Run, tmp_path: Path, project: Path
) -> None:
    completed = run("--stack", "base==1.5 lib==1.0", "--stack", "lib==2.0 base==1.5", *QUICK)

    assert completed.returncode == 0, completed.stderr
    with open_knowledge_base(knowledge_of(tmp_path)) as store:
        contrasts = benchmark_contrasts(store, read_benchmark(project).identity)
    assert [(c.framework, c.side.version, round(c.mean, 3)) for c in contrasts if not c.is_control] == [
        ("lib", "2.0", 0.693)
    ]


def test_advice_uses_the_benchmark_for_a_package_that_is_no_framework(
    run: Run, advisor: Advisor, index: PackageIndex, project: Path
) -> None:
    index.add("lib", "3.0", ["base"], code="SPEED = 5")
    measured = run("--stack", "lib==3.0", "--stack", "lib==2.0", *QUICK)
    assert measured.returncode == 0, measured.stderr

    advised = advisor("advise", "--index-url", index.url, cwd=project)

    assert advised.returncode == 0, advised.stderr
    assert "workload  the project's own benchmark, as `advisor pi run --benchmark` measured it" in advised.stdout
    assert re.search(r"speed +(3\.[89]|4\.[01])\d* times as fast as the newest", advised.stdout), advised.stdout
    assert "changes   lib  3.0 -> 2.0" in advised.stdout

    with_workload = advisor("advise", "--index-url", index.url, "--workload", "cnn-training", cwd=project)

    assert with_workload.returncode == 0, with_workload.stderr
    assert "workload  cnn-training\n" in with_workload.stdout
    assert "\nspeed " not in with_workload.stdout


def test_an_interrupted_block_is_continued_unless_the_benchmark_has_changed(run: Run, project: Path) -> None:
    block = run(*PINS, "--samples", "1", "--rounds", "1").stderr.partition("block `")[2].partition("`")[0]

    continued = run(*PINS, *QUICK, "--resume", block)
    (project / "bench.py").write_text(PROGRAM + "# changed\n")
    changed = run(*PINS, *QUICK, "--resume", block)

    assert continued.returncode == 0, continued.stderr
    assert "1 of 1 comparisons are significant" in continued.stdout
    assert changed.returncode == 2
    assert f"block `{block}` was started with another benchmark" in changed.stderr


@pytest.mark.parametrize(
    ("program", "status", "reason"),
    [
        ("raise ValueError('no such model')", "error", "exit status 1: ValueError: no such model"),
        ("print('nothing')", "error", "no line of the output matches the metric's pattern `speed: ([0-9.]+)`"),
        ("import time; time.sleep(600)", "timed-out", "killed after 1 seconds: it did not end"),
    ],
)
def test_a_benchmark_that_fails_on_every_stack_is_stored_and_an_error(
    run: Run, project: Path, tmp_path: Path, program: str, status: str, reason: str
) -> None:
    (project / "bench.py").write_text(program)

    completed = run(
        "--stack", "lib==1.0", "--rounds", "3", "--no-aa", "--timeout", "1", "-o", str(tmp_path / "b.jsonl")
    )

    assert completed.returncode == 2
    assert f"error: the benchmark gave no result on any stack: {reason}\nhint: " in completed.stderr
    assert f"failed: `lib==1.0` benchmark: {status}: {reason}" in completed.stdout
    records = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    failures = [r["record"] for r in records if r["kind"] == "observation"]
    assert [f["status"] for f in failures] == [status, status, "crashed"]
    assert failures[2]["failure"] == f"not run again after 2 failures: {reason}"


def test_a_benchmark_that_fails_on_one_stack_is_a_result(run: Run, index: PackageIndex) -> None:
    index.add("lib", "3.0", ["base"], code="raise ImportError('wrong CPU')")

    completed = run("--stack", "lib==2.0", "--stack", "lib==3.0", *QUICK)

    assert completed.returncode == 0, completed.stderr
    assert "failed: `lib==3.0` benchmark: error: exit status 1: ImportError: wrong CPU" in completed.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("sort",), 2, "`--benchmark` runs the project's own command, not the indicator `sort`"),
        (
            ("--size", "large"),
            2,
            "`--size` is an option of indicators, and `--benchmark` runs the project's own command",
        ),
        (("--min-time", "1"), 2, "`--min-time` is an option of indicators"),
        ((), 2, "the recommended stack is the baseline, so there is nothing to compare"),
        (("--stack", " "), 2, "`--stack ' '` contains no requirement"),
        (("--stack", "lib=2"), 2, "--stack 'lib=2': `lib=2` is not a requirement"),
        (
            ("--stack", "lib==2.0", "--stack", "lib>1"),
            2,
            "`--stack 'lib==2.0'` and `--stack 'lib>1'` give the same lock",
        ),
        (("--stack", "lib==9.0"), 3, "lib==9.0"),
        (("--stack", "base<1"), 3, "base<1"),
    ],
)
def test_stacks_and_options_that_cannot_be_measured_are_refused(
    run: Run, arguments: tuple[str, ...], code: int, message: str
) -> None:
    completed = run(*arguments, *QUICK)

    assert completed.returncode == code
    assert message in completed.stderr
    assert "Traceback" not in completed.stderr


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            "",
            "defines no benchmark\nhint: `advisor benchmark init` proposes one; or add `[tool.advisor.benchmark]` with",
        ),
        ("[tool.advisor]\nbenchmark = 1", "`tool.advisor.benchmark` has a value of the wrong type"),
        ("[tool.advisor.benchmark]\ncommands = 'x'", "has no key `commands`\nhint: did you mean `command`?"),
        ("[tool.advisor.benchmark]\nmetric = 'seconds'", "`[tool.advisor.benchmark]` has no `command`"),
        ('[tool.advisor.benchmark]\ncommand = "python \'x"', "cannot be split into words: No closing quotation"),
        ("[tool.advisor.benchmark]\ncommand = ' '", "`tool.advisor.benchmark.command` names no program"),
        ("[tool.advisor.benchmark]\ncommand = ['python']", "`tool.advisor.benchmark.command` is not a string"),
        (TABLE.replace("better", "bettor"), "has no key `bettor`\nhint: did you mean `better`?"),
        (TABLE.replace('"higher"', '"more"'), "has a `better` that is neither `higher` nor `lower`"),
        (TABLE.replace("([0-9.]+)", "[0-9.]+"), "has a `pattern` with 0 groups; exactly one matches the number"),
        (TABLE.replace("([0-9.]+)", "([0-9.]+"), "has a `pattern` that is not a regular expression: missing )"),
        (TABLE.replace('unit = "images/s", ', ""), "has no string `unit`"),
        ("[tool.advisor.benchmark]\ncommand = 'x'\nmetric = 'time'", "is neither `seconds` nor a table"),
        (TABLE + "files = []", "`tool.advisor.benchmark.files` is not a list of patterns"),
        (TABLE + "files = ['../x.py']", "contains `../x.py`, which is not a path in the project"),
        (TABLE + "files = ['*.csv']", "`*.csv` in `tool.advisor.benchmark.files` matches no file of the project"),
        (TABLE + "result = 'loss: [0-9]+'", "`tool.advisor.benchmark.result` is a pattern with 0 groups"),
        (TABLE + "result = ''", "`tool.advisor.benchmark.result` is not a regular expression"),
        (TABLE + "warmup = -1", "`tool.advisor.benchmark.warmup` is not a whole number from 0 to 100"),
        (TABLE + "options = '--compile'", "`tool.advisor.benchmark.options` is not a table of settings"),
        (TABLE + "options = { compil = 'x' }", "has the key `compil`: there is no setting `compil`"),
        (TABLE + "options = { 'compile=yes' = 'x' }", "has the key `compile=yes`: `compile` must be one of on"),
        (TABLE + "options = { 'threads=0' = 'x' }", "has the key `threads=0`: `threads` must be an integer"),
        (TABLE + "options = { 'compile=*' = 'x' }", "has the key `compile=*`: `compile` must be one of on"),
        (TABLE + "options = { 'compile=on' = 1 }", "`tool.advisor.benchmark.options` `compile=on` is not a string"),
        (TABLE + "options = { 'compile=on' = ' ' }", "`tool.advisor.benchmark.options` `compile=on` is empty"),
        (TABLE + "options = { 'compile=on' = \"'\" }", "`compile=on` cannot be split into words: No closing quotation"),
    ],
)
def test_a_wrong_definition_is_refused_with_its_key(
    advisor_here: Advisor, project: Path, monkeypatch: pytest.MonkeyPatch, table: str, message: str
) -> None:
    (project / "pyproject.toml").write_text(PROJECT + table)
    monkeypatch.chdir(project)

    completed = advisor_here("pi", "run", "--benchmark", *PINS)

    assert completed.returncode == 2
    assert message in completed.stderr


def test_without_indicators_and_without_benchmark_nothing_is_measured(advisor_here: Advisor) -> None:
    without_indicator = advisor_here("pi", "run", "--stack", "numpy")
    without_stack = advisor_here("pi", "run", "sort")

    assert (without_indicator.returncode, without_stack.returncode) == (2, 2)
    assert "no indicator is named\nhint: `advisor pi list` lists them; `--benchmark`" in without_indicator.stderr
    assert "no stack is named" in without_stack.stderr


RUN = ("pi", "run", "--benchmark", *PINS)
INIT = ("benchmark", "init", "--replace", "--yes", "--command", "python bench.py")
RESUMABLE = "interrupted: the observations so far are stored; continue with `--resume "


@pytest.mark.parametrize(
    ("arguments", "number", "message"),
    [
        (RUN, signal.SIGINT, RESUMABLE),
        pytest.param(RUN, signal.SIGTERM, RESUMABLE, marks=pytest.mark.slow),
        pytest.param(INIT, signal.SIGINT, "", marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_command_leaves_no_process_and_no_files(
    project: Path,
    index: PackageIndex,
    tmp_path: Path,
    knowledge_file: Path,
    arguments: tuple[str, ...],
    number: signal.Signals,
    message: str,
) -> None:
    scratch, started = tmp_path / "scratch", tmp_path / "started"
    scratch.mkdir()
    (project / "bench.py").write_text(
        f"import os, pathlib, time\npathlib.Path({str(started)!r}).write_text(str(os.getpid()))\ntime.sleep(600)\n"
    )
    definition = (project / "pyproject.toml").read_bytes()

    words = (*arguments, "--index-url", index.url)
    with start(*words, cwd=project, knowledge=knowledge_file, TMPDIR=str(scratch)) as process:
        while process.poll() is None and not (started.exists() and started.read_text()):
            time.sleep(0.1)
        process.send_signal(number)
        errors = process.communicate(timeout=300)[1]

    assert process.returncode == 130, errors
    assert message in errors
    assert (project / "pyproject.toml").read_bytes() == definition
    assert list(scratch.iterdir()) == []
    assert ends_within(int(started.read_text()), seconds=10.0)


def test_observations_of_a_benchmark_leave_the_knowledge_base_only_by_the_name_of_their_block(
    run: Run, advisor: Advisor, tmp_path: Path
) -> None:
    completed = run(*PINS, *QUICK, "--no-aa")
    block = completed.stderr.partition("block `")[2].partition("`")[0]

    everything = advisor("knowledge", "export", "all.jsonl")
    one = advisor("knowledge", "export", "one.jsonl", "--block", block)
    imported = advisor("knowledge", "import", "one.jsonl", "--knowledge", f"sqlite:///{tmp_path / 'other.sqlite'}")

    assert (everything.returncode, one.returncode) == (0, 0)
    assert block not in (tmp_path / "all.jsonl").read_text()
    assert "4 observations of benchmarks are private and were left out" in everything.stderr
    assert (tmp_path / "one.jsonl").read_text().count('"slot"') == 4
    assert "4 added, 0 already stored\n" in imported.stdout


def test_the_api_measures_the_same(project: Path, index: PackageIndex, tmp_path: Path, first_knowledge: Path) -> None:
    knowledge = tmp_path / "own.sqlite"
    knowledge.write_bytes(first_knowledge.read_bytes())

    observations = advisor.api.measure_benchmark(
        project,
        ["lib==2.0", "lib==1.0"],
        sampling=SamplingOptions(rounds=2, samples=1, controls=False),
        indexes=IndexOptions(index_url=index.url, cache_directory=tmp_path / "cache"),
        resolution=ResolutionOptions(knowledge=f"sqlite:///{knowledge}"),
    )

    assert [(o.arm, o.reference, o.samples) for o in observations] == [(0, True, (0.05,)), (1, False, (0.1,))] * 2
    assert [o.environment["stack"] for o in observations] == ["lib==2.0", "lib==1.0"] * 2


def test_without_stacks_the_baseline_is_compared_with_the_recommended_stack(
    run: Run, advisor: Advisor, index: PackageIndex, project: Path
) -> None:
    # The harness runs isolated: the newest version fails there, is avoided therefore, and works in the benchmark.
    failing = "import sys\nif sys.flags.isolated: raise ImportError('not here')\nSPEED = 10"
    index.add("numpy", "9.0", code=failing)
    index.add("numpy", "8.0", code="SPEED = 20")
    (project / "pyproject.toml").write_text(PROJECT.replace("lib", "numpy") + TABLE)
    (project / "bench.py").write_text(PROGRAM.replace("lib", "numpy"))
    measured = advisor("pi", "run", "sort", "--stack", "numpy==9.0", "--rounds", "1", "--no-aa", "-i", index.url)
    assert measured.returncode == 0, measured.stderr

    completed = run(*QUICK)

    assert completed.returncode == 0, completed.stderr
    rows = [line.split(" | ") for line in completed.stdout.splitlines() if "images/s |" in line]
    assert [(row[0], row[1], row[6]) for row in rows] == [
        ("| `baseline`", "10 images/s", "reference"),
        ("| `recommended`", "20 images/s", "2.000"),
        ("| A/A `baseline`", "10 images/s", "1.000"),
    ]


@pytest.fixture
def numeric_project(project: Path, index: PackageIndex) -> Path:
    """A project whose only version of NumPy is the baseline and the recommendation; its speed depends on threads."""
    index.add("numpy", "8.0", code="")
    (project / "pyproject.toml").write_text(PROJECT.replace("lib", "numpy") + TABLE)
    (project / "bench.py").write_text("import os\nprint('speed:', os.environ.get('OPENBLAS_NUM_THREADS', 8))\n")
    return project


def test_a_setting_reaches_the_program_as_an_environment_variable(
    run: Run, numeric_project: Path, tmp_path: Path
) -> None:
    plain = int(os.environ.get("OPENBLAS_NUM_THREADS", "8"))

    completed = run("--settings", "threads=4,16", *QUICK)

    assert completed.returncode == 0, completed.stderr
    rows = [line.split(" | ") for line in completed.stdout.splitlines() if "images/s |" in line]
    assert [(row[0], row[1], row[6]) for row in rows] == [
        ("| `recommended`", f"{plain} images/s", "reference"),
        ("| `recommended [threads=4]`", "4 images/s", f"{4 / plain:.3f}"),
        ("| `recommended [threads=16]`", "16 images/s", f"{16 / plain:.3f}"),
        ("| A/A `recommended`", f"{plain} images/s", "1.000"),
    ]
    with open_knowledge_base(knowledge_of(tmp_path)) as store:
        settings = [dict(o.settings) for o in store.observations(indicator="benchmark") if o.round == 0]
    assert settings == [{}, {"threads": 4}, {"threads": 16}, {}]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("compile=on", "no framework of the stack `recommended` has the setting `compile=on`"),
        ("threads=none", "`threads` must be an integer of at least 1"),
        ("speed=high", "there is no setting `speed`"),
    ],
)
def test_a_setting_that_the_stack_does_not_have_is_refused(
    run: Run, numeric_project: Path, setting: str, message: str
) -> None:
    completed = run("--settings", setting, *QUICK)

    assert completed.returncode == 2
    assert message in completed.stderr


@pytest.fixture
def torch_project(numeric_project: Path, index: PackageIndex) -> Path:
    """A project whose framework has a setting that is a call; its speed depends on it, and on an option."""
    index.add(
        "torch",
        "9.0",
        code="precision = 'highest'\n"
        "def set_float32_matmul_precision(value):\n    global precision\n    precision = value\n"
        "def get_float32_matmul_precision():\n    return precision\n",
    )
    (numeric_project / "pyproject.toml").write_text(PROJECT.replace("lib", "torch") + TABLE)
    (numeric_project / "bench.py").write_text(
        "import sys, torch\nspeed = {'highest': 2, 'medium': 4}[torch.get_float32_matmul_precision()]\n"
        "print('speed:', speed * (2 if '--compile' in sys.argv else 1) * len(sys.argv))\n"
    )
    return numeric_project


def rows_of(completed: subprocess.CompletedProcess[str]) -> list[tuple[str, str]]:
    rows = [line.split(" | ") for line in completed.stdout.splitlines() if "images/s |" in line]
    return [(row[0].strip("| `"), row[1].removesuffix(" images/s")) for row in rows]


def test_a_setting_that_is_a_call_is_applied_after_the_import(run: Run, torch_project: Path) -> None:
    completed = run("--settings", "matmul_precision=medium", *QUICK)

    assert completed.returncode == 0, completed.stderr
    assert rows_of(completed) == [
        ("recommended", "2"),
        ("recommended [matmul_precision=medium]", "4"),
        ("A/A `recommended", "2"),
    ]


def test_a_call_that_fails_is_no_measurement_of_the_setting(run: Run, torch_project: Path) -> None:
    completed = run("--settings", "onednn=off", *QUICK)

    assert completed.returncode == 0, completed.stderr
    reason = "unsupported: `onednn=off` cannot be applied: AttributeError: "
    assert f"failed: `recommended [onednn=off]` benchmark: {reason}" in completed.stdout
    assert rows_of(completed) == [("recommended", "2"), ("A/A `recommended", "2")]


def test_a_setting_that_needs_code_is_refused_with_the_code_and_an_option_applies_it(
    run: Run, torch_project: Path
) -> None:
    refused = run("--settings", "compile=on", *QUICK)
    identity = read_benchmark(torch_project).identity
    with (torch_project / "pyproject.toml").open("a") as file:
        file.write('options = { "compile=on" = "--compile", "threads=*" = "--threads {value}" }\n')
    completed = run("--settings", "compile=on", *QUICK)

    assert refused.returncode == 2
    assert "`compile=on` needs code in the program" in refused.stderr
    assert '`options = { "compile=on" = "--compile" }`; the code is `model = torch.compile(model)`' in refused.stderr
    assert completed.returncode == 0, completed.stderr
    assert rows_of(completed) == [("recommended", "2"), ("recommended [compile=on]", "8"), ("A/A `recommended", "2")]
    assert read_benchmark(torch_project).identity == identity


def test_an_option_takes_the_place_of_the_call_and_can_contain_the_number(run: Run, torch_project: Path) -> None:
    with (torch_project / "pyproject.toml").open("a") as file:
        file.write('options = { "matmul_precision=medium" = "--precision=medium", "threads=*" = "-t {value}" }\n')

    completed = run("--settings", "matmul_precision=medium", "--settings", "threads=5", *QUICK)

    assert completed.returncode == 0, completed.stderr
    # Three words more, and the precision of the program is not changed.
    assert rows_of(completed)[1:2] == [("recommended [matmul_precision=medium threads=5]", "8")]


@pytest.mark.slow
def test_ratios_of_an_older_option_for_a_setting_do_not_count(run: Run, torch_project: Path, tmp_path: Path) -> None:
    project = torch_project / "pyproject.toml"
    table = project.read_text()
    ratios = []
    for options in ('"--compile"', '"--other"'):
        project.write_text(f'{table}options = {{ "compile=on" = {options} }}\n')
        assert run("--settings", "compile=on", *QUICK).returncode == 0
        time.sleep(1.1)  # times of observations have seconds
        with open_knowledge_base(knowledge_of(tmp_path)) as store:
            contrasts = benchmark_contrasts(store, read_benchmark(torch_project).identity)
        ratios.append([round(c.mean, 3) for c in contrasts if not c.is_control])

    assert ratios == [[1.386], [0.693]]


def test_a_file_without_a_printable_name_is_refused(project: Path) -> None:
    (project / os.fsdecode(b"\xff.py")).touch()

    with pytest.raises(InputError, match=r"selects `'\\udcff.py'`, whose name is not printable"):
        read_benchmark(project)


def test_the_identity_of_a_benchmark_changes_with_its_files_only(project: Path) -> None:
    first = read_benchmark(project)
    (project / "notes.txt").write_text("not a Python file")
    with_notes = read_benchmark(project)
    (project / "bench.py").write_text(PROGRAM + "#")

    assert with_notes.identity == first.identity
    assert read_benchmark(project).identity != first.identity
    (project / "bench.py").unlink()
    with pytest.raises(InputError, match="matches no file of the project"):
        read_benchmark(project)


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.usefixtures("network")
def test_real_numpy_stacks_run_the_program_of_a_project(advisor: Advisor, project: Path, tmp_path: Path) -> None:
    (project / "pyproject.toml").write_text(
        PROJECT.replace("lib", "numpy>=1.26") + '[tool.advisor.benchmark]\ncommand = "python bench.py"\n'
    )
    (project / "bench.py").write_text("import numpy\nnumpy.linalg.norm(numpy.ones((500, 500)))\n")

    completed = advisor("pi", "run", "--benchmark", "--stack", "numpy<2", "--stack", "numpy<2.3", *QUICK, cwd=project)

    assert completed.returncode == 0, completed.stderr
    with open_knowledge_base(knowledge_of(tmp_path)) as store:
        observations = tuple(store.observations(indicator="benchmark"))
    assert {(o.status, o.framework, len(o.stack.packages)) for o in observations} == {("ok", "numpy", 1)}
    assert [str(o.stack.version_of("numpy")).split(".")[0] for o in observations if o.round == 0] == ["1", "2", "1"]
    assert all(0.01 < seconds < 60 for o in observations for seconds in o.samples)


@pytest.mark.parametrize(
    ("printed", "status", "message"),
    [
        ("print('loss: 0.25'); print('loss: 0.125')", "ok", ""),
        ("print('loss: nan')", "wrong-result", "the result of the program is `nan`"),
        ("print('no result')", "error", "no line of the output matches the pattern `loss: (.*)` of the result"),
    ],
)
def test_the_last_result_of_the_program_is_stored_and_must_be_a_number(
    run: Run, project: Path, tmp_path: Path, printed: str, status: str, message: str
) -> None:
    (project / "pyproject.toml").write_text(PROJECT + TABLE + "result = 'loss: (.*)'\n")
    (project / "bench.py").write_text(PROGRAM + printed + "\n")
    run(*PINS, "--rounds", "1", "--samples", "1", "--no-aa")

    with open_knowledge_base(knowledge_of(tmp_path)) as store:
        observations = tuple(store.observations(indicator="benchmark"))
    assert {o.status for o in observations} == {status}
    assert all(message in o.failure for o in observations)
    assert [o.metrics.get("result") for o in observations] == [0.125 if status == "ok" else None] * 2
