"""`advisor advise --measure`: real locks, environments and processes of small packages that a local index serves."""

from __future__ import annotations

import fcntl
import json
import platform
import re
import signal
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.api.measurements.experiment import open_experiment
from advisor.api.measurements.options import ExperimentOptions
from advisor.api.options import IndexOptions, ProjectOptions, ResolutionOptions
from advisor.experiment.arms import MOST_RELEASES, with_changes
from advisor.project.workload.file import write_workload
from knowledge.domain.stack import PackageVersion, make_stack
from knowledge.domain.workload import ProfiledWorkload, WorkloadPart
from tests.advisor.measured_project import NOISE, PROGRAM, PROJECT, error_of, make_project
from tests.conftest import Advisor
from tests.knowledge.samples import observation
from tests.package_index import PackageIndex
from tests.processes import start
from tests.slurm.cluster import Cluster


@pytest.fixture
def project(tmp_path: Path, index: PackageIndex) -> Path:
    """A project with five releases of a package: one is 15 % faster than the newest, and two fail."""
    for version, code in (
        ("1.0", NOISE.format(1.0)),
        ("1.1", NOISE.format(1.0 / 1.15)),
        ("1.2", "raise ImportError('lib 1.2 is broken')"),
        ("1.3", "def seconds():\n    raise SystemExit('lib 1.3 crashes')"),
        ("1.4", NOISE.format(1.0)),
        # The project does not admit these, which are as many as there are arms of a package.
        *((f"2.{minor}", NOISE.format(0.5)) for minor in range(MOST_RELEASES)),
    ):
        index.add("lib", version, code=code)
    return make_project(tmp_path / "project", ["lib<2"])


def test_the_faster_release_is_found_locked_and_certified(advisor: Advisor, index: PackageIndex, project: Path) -> None:
    command = ("advise", "--measure", "4m", "--max-load", "100", "--index-url", index.url)
    completed = advisor(*command, cwd=project)

    assert completed.returncode == 0, completed.stderr
    text = " ".join(completed.stdout.split())
    assert re.search(r"lib==1\.1: 1\.\d\d times as fast \[1\.\d\d, 1\.\d\d\] as the newest versions", text)
    assert "within 2 % of the best of 5 arms with 95 % confidence" in text
    assert re.search(r"; a run varies by \d+\.\d %", text)
    lock = tomllib.loads((project / "pylock.toml").read_text())
    assert [(p["name"], p["version"]) for p in lock["packages"]] == [("lib", "1.1")]
    certificate = lock["tool"]["advisor"]["certificate"]
    again = advisor(*command, "--format", "html", "--dry-run", cwd=project)
    assert "within 2 % of the best of 5 arms" in again.stdout
    assert re.search(r'<td class="mono">lib==1\.2</td><td>failed</td>', again.stdout)
    assert certificate["is-certain"] is True
    assert (certificate["arms"], certificate["measured-arms"]) == (5, 3)
    # The certificate is void for another lock, and for another program.
    path = project / "pylock.toml"

    def void() -> list[str]:
        checked = advisor("check", "--format", "json", "--index-url", index.url, cwd=project)
        findings = json.loads(checked.stdout)["findings"]
        return [f["message"].partition(": ")[2] for f in findings if f["code"] == "ADV040"]

    assert void() == []
    measured = path.read_text()
    path.write_text(measured.replace('version = "1.1"', 'version = "1.0"').replace("lib-1.1-", "lib-1.0-"))
    assert void() == ["the lock has other versions or settings than those that were measured"]
    path.write_text(measured)
    (project / "bench.py").write_text(PROGRAM + "print('done')\n")
    assert void() == ["the program that was measured has changed"]


@pytest.mark.parametrize("required", ["scipy", "image"])
def test_a_release_without_a_documented_slow_down_is_an_arm_that_runs_first(
    index: PackageIndex, tmp_path: Path, knowledge_file: Path, required: str
) -> None:
    index.add("image", "1.0", requires=["scipy"], code="")
    # SciPy 1.12 to 1.15 has a slow `nnls`, which was compared with 1.11.4.
    series = ("1.14.1", "1.13.1", "1.12.0", "1.11.9", "1.10.1")
    assert len(series) == MOST_RELEASES
    for version in ("1.15.3", *series, "1.11.4"):
        index.add("scipy", version, code="")
    indexes = IndexOptions(index_url=index.url, cache_directory=tmp_path / "cache")
    knowledge = ResolutionOptions(knowledge=f"sqlite:///{knowledge_file}")
    options = ProjectOptions.of(make_project(tmp_path / "project", [required]), None, indexes, knowledge)

    with open_experiment(options, ExperimentOptions(budget_seconds=60)) as experiment:
        arms, request = experiment.laboratory.arms, experiment.session.select().request
        # The time of the search is over, but not that of the experiment.
        request.effort.limit.interrupt()
        assert with_changes(arms[0], arms[1].changes, request) == arms[1]
    labels = [arm.label for arm in arms]

    assert set(labels[1:4]) == {f"scipy=={version}" for version in ("1.11.9", "1.11.4", "1.10.1")}
    assert set(labels[4:]) == {f"scipy=={version}" for version in ("1.14.1", "1.13.1", "1.12.0")}


TORCH = """
class backends:
    class mkldnn:
        enabled = True
        def is_available(): return True
"""


@pytest.mark.slow
def test_settings_that_are_calls_and_options_of_the_command_are_arms(
    advisor: Advisor, index: PackageIndex, project: Path
) -> None:
    index.add("torch", "9.0", code=TORCH)
    options = '\n[tool.advisor.benchmark.options]\n"compile=on" = "--compile"\n'
    (project / "pyproject.toml").write_text(PROJECT.replace('"lib"', '"torch"') + options)
    (project / "bench.py").write_text(
        "import random, sys, torch\nseconds = random.gauss(1, 0.004) * (1 if torch.backends.mkldnn.enabled else 0.7)\n"
        "print('seconds:', seconds * (0.6 if '--compile' in sys.argv else 1))\n"
    )

    def measured_settings() -> set[str]:
        completed = advisor("advise", "--measure", "4m", "--max-load", "100", "--index-url", index.url, cwd=project)
        assert completed.returncode == 0, completed.stderr
        settings = tomllib.loads((project / "pylock.toml").read_text())["tool"]["advisor"]["settings"]
        return {f"{s['name']}={s['value']}" for s in settings}

    assert {"compile=on", "onednn=off"} <= measured_settings()
    # Runs with another option for the same setting say nothing about this one.
    path = project / "pyproject.toml"
    path.write_text(path.read_text().replace("--compile", "--other"))
    settings = measured_settings()
    assert "compile=on" not in settings
    assert "onednn=off" in settings


@pytest.mark.slow
def test_an_interrupted_experiment_keeps_its_runs_and_writes_nothing_and_the_next_one_continues(
    index: PackageIndex, project: Path, knowledge_file: Path
) -> None:
    command = ("advise", "--measure", "4m", "--max-load", "100", "--index-url", index.url)
    with start(*command, cwd=project, knowledge=knowledge_file) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("round 3"):
                process.send_signal(signal.SIGINT)
                break
        output, _ = process.communicate(timeout=300)

    assert process.returncode == 130
    assert "nothing (interrupted)" in output
    assert not (project / "pylock.toml").exists()
    with start(*command, cwd=project, knowledge=knowledge_file) as process:
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert re.search(r"^[5-9] runs of earlier experiments count$", errors, re.MULTILINE)


@pytest.mark.parametrize(
    ("program", "budget", "status", "message"),
    [
        ("raise SystemExit('no data')", "4m", 2, "the program fails with the newest stack: exit status 1: no data"),
        ("print('nothing')", "4m", 2, "the program fails with the newest stack: no line of the output matches"),
        ("import time; time.sleep(9)", "2s", 2, "the budget of 2 s is too small: one run takes longer"),
        (
            "import time; time.sleep(0.8); print('seconds: 1')",
            "2s",
            2,
            r"the budget of 2 s is too small: one run takes about \d+\.\d s, and the first run of an arm \d+\.\d s",
        ),
        ("", "soon", 2, "`soon` is not a duration"),
    ],
)
def test_a_wrong_program_or_budget_is_one_clear_error(
    advisor: Advisor, index: PackageIndex, project: Path, program: str, budget: str, status: int, message: str
) -> None:
    (project / "bench.py").write_text(program)
    completed = advisor("advise", "--measure", budget, "--max-load", "100", "--index-url", index.url, cwd=project)

    assert completed.returncode == status
    assert re.search(message, error_of(completed))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--hardware", "cpu-zen4"), "`--measure` measures on this machine, so its target cannot be another one"),
        (("--python", "best"), "`--measure` measures with one interpreter"),
        (("--update",), "`--measure` and `--update` contradict each other"),
        (("--targets", "all"), "`--measure` and `--targets` contradict each other"),
    ],
)
def test_options_that_contradict_a_measurement_are_refused(
    advisor: Advisor, index: PackageIndex, project: Path, options: tuple[str, ...], message: str
) -> None:
    completed = advisor("advise", "--measure", "1m", *options, "--index-url", index.url, cwd=project)

    assert completed.returncode == 2
    assert f"error: {message}" in completed.stderr


def test_a_project_without_a_benchmark_learns_how_to_make_one(
    advisor: Advisor, index: PackageIndex, project: Path
) -> None:
    (project / "pyproject.toml").write_text(PROJECT.partition("[tool.advisor.benchmark]")[0])
    completed = advisor("advise", "--measure", "1m", "--index-url", index.url, cwd=project)

    assert completed.returncode == 2
    assert "error: the project has nothing that could be measured: no benchmark, and no workload" in completed.stderr
    assert "`advisor benchmark init`" in completed.stderr


def test_models_that_nobody_confirmed_are_not_measured(advisor: Advisor, index: PackageIndex, project: Path) -> None:
    (project / "pyproject.toml").write_text(PROJECT.partition("[tool.advisor.benchmark]")[0])
    (project / "train.py").write_text("import torchvision\nmodel = torchvision.models.resnet50()\nmodel.train()\n")
    completed = advisor("advise", "--measure", "1m", "--index-url", index.url, cwd=project)

    assert completed.returncode == 2
    assert "error: the project has no benchmark; only models that stand for `timm/resnet50`" in completed.stderr
    assert "resnet50 (inference, batch 4, size 224); mobilenet_v2 (" in completed.stderr
    assert "could be measured" in completed.stderr


def test_limits_of_the_download_and_a_second_experiment(
    advisor: Advisor, index: PackageIndex, project: Path, tmp_path: Path
) -> None:
    arguments = ("advise", "--measure", "1m", "--max-load", "100", "--index-url", index.url)
    completed = advisor(*arguments, "--max-download", "1kB", cwd=project)
    assert completed.returncode == 0, completed.stderr
    text = " ".join(completed.stdout.split())
    assert re.search(r"lib==1\.1 not tried: .* exceeds `--max-download 1\.0 kB`", text)
    # Nothing is known about what was not tried.
    assert "within 2 % of the best of 1 arm with 95 % confidence 4 other arms could not be tried" in text

    lock = next(tmp_path.rglob("experiment.lock"))
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        second = advisor(*arguments, cwd=project)
    assert second.returncode == 4
    assert "error: another experiment runs on this machine" in second.stderr


_NO_NETWORK = "import socket; socket.create_connection(('index.invalid', 80), timeout=9)"


@pytest.mark.parametrize(
    ("program", "status", "message", "hint"),
    [
        ("open('/dev/full', 'w').write(9999 * 'x')", 4, "the disk was full while the program ran", "free disk space"),
        (_NO_NETWORK, 2, "exit status 1: socket.gaierror", "the program needs the network"),
    ],
)
def test_a_program_without_disk_or_network_is_one_clear_error(
    advisor: Advisor, index: PackageIndex, project: Path, program: str, status: int, message: str, hint: str
) -> None:
    (project / "bench.py").write_text(program)
    completed = advisor("advise", "--measure", "1m", "--max-load", "100", "--index-url", index.url, cwd=project)

    assert completed.returncode == status
    assert "Traceback" not in completed.stderr
    [error] = [line for line in completed.stderr.splitlines() if line.startswith("error: ")]
    assert message in error
    assert f"hint: {hint}" in completed.stderr
    assert not (project / "pylock.toml").exists()


def test_a_full_disk_is_the_failure_of_an_arm_and_a_changed_program_makes_its_certificate_void(
    advisor: Advisor, index: PackageIndex, project: Path
) -> None:
    program = (
        "import lib, importlib.metadata\n"
        f"open({str(project / 'bench.py')!r}, 'a').write('# more')\n"
        "if importlib.metadata.version('lib') == '1.1': open('/dev/full', 'w').write(9999 * 'x')\n"
        "print('seconds:', lib.seconds())\n"
    )
    (project / "bench.py").write_text(program)
    completed = advisor("advise", "--measure", "1m", "--max-load", "100", "--index-url", index.url, cwd=project)

    assert completed.returncode == 0, completed.stderr
    text = " ".join(completed.stdout.split())
    assert "lib==1.1 not tried: the disk was full while the program ran on `lib==1.1`" in text
    assert "warning: the benchmark's files have changed since the experiment began" in completed.stderr


@pytest.mark.parametrize("executor", ["local", pytest.param("slurm", marks=pytest.mark.slow)])
def test_limits_hold_for_all_executors(
    request: pytest.FixtureRequest, index: PackageIndex, project: Path, executor: str
) -> None:
    if executor == "slurm":
        request.getfixturevalue("slurm")
    advisor: Advisor = request.getfixturevalue("advisor")
    arguments = ("advise", "--measure", "5m", "--max-load", "100", "--index-url", index.url, "--executor", executor)
    completed = advisor(*arguments, "--max-download", "0.1kB", cwd=project)
    assert completed.returncode == 2
    assert "error: the newest stack cannot be measured: its environment needs" in completed.stderr

    completed = advisor(*arguments, "--max-disk", "3kB", cwd=project)
    assert completed.returncode == 0, completed.stderr
    assert re.search(r"and the others [\d.]+ kB, which exceeds `--max-disk 3.0 kB`", " ".join(completed.stdout.split()))


def test_downloads_of_pods_without_a_cache_cannot_be_limited(
    advisor: Advisor, index: PackageIndex, project: Path
) -> None:
    arguments = ("advise", "--measure", "1m", "--max-download", "1GB", "--index-url", index.url)
    completed = advisor(*arguments, "--executor", "kubernetes", "--engine", "image=runner:1", cwd=project)

    assert completed.returncode == 2
    assert "error: `--max-download` needs a cache on Kubernetes" in completed.stderr
    assert "hint: name a volume for it" in completed.stderr


@pytest.mark.slow
def test_rounds_run_at_once_on_the_nodes_of_a_cluster(
    slurm: Cluster, advisor: Advisor, index: PackageIndex, project: Path, tmp_path: Path
) -> None:
    completed = advisor(
        *("advise", "--measure", "10m", "--max-load", "100", "--index-url", index.url),
        *("--executor", "slurm", "--engine", f"scratch={tmp_path}/scratch"),
        cwd=project,
    )

    assert completed.returncode == 0, completed.stderr
    text = " ".join(completed.stdout.split())
    assert re.search(r"lib==1\.1: 1\.\d\d times as fast", text)
    assert "within 2 % of the best of 5 arms" in text
    # Each round ran on one node, and four of them at once.
    batches = sorted((tmp_path / "home" / "campaigns").rglob("batch-*/campaign.json"))
    assert len(batches) >= 2
    assert all(len(json.loads(path.read_text())["plan"]["blocks"][0]["arms"]) >= 3 for path in batches)


PARTS = {"few": {"rows": 64, "columns": 64}, "many": {"rows": 16, "columns": 256}}


def test_runs_of_a_profiled_workload_count_in_the_next_experiment_and_certify_a_lock(
    advisor_here: Advisor, index: PackageIndex, tmp_path: Path
) -> None:
    for version in ("9.0", "9.1"):
        index.add("numpy", version, code="")
    (tmp_path / "pyproject.toml").write_text(
        f'[project]\nname = "demo"\nversion = "1"\ndependencies = ["numpy"]\n\n[tool.uv]\nindex-url = "{index.url}"\n'
    )
    shares = {"few": 0.9, "many": 0.1}
    parts = tuple(WorkloadPart(indicator="sort", share=shares[name], parameters=PARTS[name]) for name in shares)
    workload = ProfiledWorkload(name="step", framework="numpy", parts=parts, unattributed=0.0)
    write_workload(tmp_path, workload)
    options = ProjectOptions.of(tmp_path, None, IndexOptions(), ResolutionOptions())
    limits = ExperimentOptions(budget_seconds=1.0)

    # One release takes half the time of the part with the large share, and three times that of the small one.
    with open_experiment(options, limits) as first:
        for round_ in range(8):
            noise = 1 + 0.001 * round_
            for arm, (few, many) in enumerate(((0.2, 0.001), (0.1 * noise, 0.003))):
                packages = [PackageVersion(name="numpy", version=f"9.{1 - arm}")]
                for run, seconds in zip(first.laboratory.locked_arm(0).indicators, (few, many), strict=True):
                    sample = observation(seconds=seconds, round=round_, arm=arm, reference=arm == 0, block="earlier")
                    first.laboratory.store.add(
                        [
                            replace(
                                sample,
                                indicator=run,
                                stack=make_stack(packages, python=platform.python_version(), platform="x"),
                                hardware=first.laboratory.hardware,
                                started_at=f"2026-01-02T10:{5 * round_ + arm:02}:00Z",
                                metrics={"result": 0.5},
                                schema=2,
                            )
                        ]
                    )
    with open_experiment(options, limits) as experiment:
        experiment.session.select().request.effort.limit.interrupt()
        result = experiment.run(lambda *_: pytest.fail("no run fits into the budget"))
        experiment.session.write_locks([tmp_path / "pylock.toml"])

    assert experiment.experiment.earlier_runs == 16
    assert [number for number, _ in experiment.laboratory.earlier_runs(0)] == [*range(-8, 0)]
    assert result.choice.ratio is not None
    assert result.choice.ratio.speedup == pytest.approx(1 / (0.9 * 0.5 + 0.1 * 3), rel=0.01)
    assert result.choice.results == (0.5,) * 8
    assert (result.certificate.measured_on, result.certificate.minutes) == ("2026-01-02", 36.0)

    # The certificate is valid until the workload changes.
    def void() -> list[str]:
        findings = json.loads(advisor_here("check", "--format", "json").stdout)["findings"]
        return [f["message"].partition(": ")[2] for f in findings if f["code"] == "ADV040"]

    assert void() == []
    write_workload(tmp_path, replace(workload, parts=parts[:1], unattributed=0.1))
    assert void() == ["the program that was measured has changed"]
