"""The output and the errors of `advisor workload`."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from pathlib import Path

import pytest

from advisor.project.workload.file import WORKLOAD_FILE, read_workloads, write_workload
from knowledge.domain.workload import ProfiledWorkload
from tests.advisor.inputs import is_error
from tests.conftest import Advisor
from tests.package_index import PackageIndex
from tests.pi_runners.profile.programs import MODULE, PROGRAM, TRACES


def test_a_trace_is_imported_listed_shown_and_drawn(advisor: Advisor, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    shutil.copy(TRACES / "torch-cnn.json.gz", project / "cnn.pt.trace.json.gz")

    imported = advisor("workload", "import", "cnn.pt.trace.json.gz", "--framework", "torch==2.13.0", cwd=project)
    listed = advisor("workload", "list", cwd=project)
    details = advisor("workload", "show", "--plot", "cnn.svg", cwd=project)

    assert imported.stderr == f"wrote the workload `cnn` in `{WORKLOAD_FILE}`\n"
    assert imported.stdout.splitlines()[:3] == [
        "workload   cnn",
        "framework  torch 2.13.0 on cpu",
        "source     cnn.pt.trace.json.gz",
    ]
    assert listed.stdout.startswith("cnn  torch 2.13.0 on cpu: ")
    assert "1 x conv2d [batch=4,channels=3,filters=32,kernel=3,size=32] float32 backward" in details.stdout
    assert "DNN library" in details.stdout
    assert "without an indicator" in (project / "cnn.svg").read_text()
    assert "replaced" in advisor("workload", "import", "cnn.pt.trace.json.gz", cwd=project).stderr


def test_the_json_has_the_values_of_the_file(advisor: Advisor, tmp_path: Path) -> None:
    advisor("workload", "import", str(TRACES / "onnxruntime-cnn.json.gz"), "--name", "service")

    listed = json.loads(advisor("workload", "list", "--format", "json").stdout)
    details = json.loads(advisor("workload", "show", "service", "--format", "json").stdout)

    (workload,) = read_workloads(tmp_path)
    assert listed == {"schema_version": 1, "workloads": [details["workload"]]}
    assert details["schema_version"] == 1
    assert details["workload"]["framework"] == "onnxruntime"
    assert [part["share"] for part in details["workload"]["part"]] == [part.share for part in workload.parts]


def test_a_program_is_profiled_with_its_own_options(advisor: Advisor, tmp_path: Path) -> None:
    (tmp_path / "onnxruntime.py").write_text(MODULE)
    (tmp_path / "profile.json").write_bytes(gzip.decompress((TRACES / "onnxruntime-cnn.json.gz").read_bytes()))
    (tmp_path / "serve.py").write_text(PROGRAM + "print(sys.argv[2:])\n")

    result = advisor("workload", "profile", "--warm-up", "2", sys.executable, "serve.py", "9", "--steps", "x")

    assert result.returncode == 0
    assert "['--steps', 'x']" in result.stderr
    assert "warning: 7 steps were profiled instead of 20" in result.stderr
    assert "workload   serve" in result.stdout
    (workload,) = read_workloads(tmp_path)
    assert workload.command == (sys.executable, "serve.py", "9", "--steps", "x")
    assert workload.hardware


def test_a_program_that_changes_its_own_files_is_reported(advisor: Advisor, tmp_path: Path) -> None:
    (tmp_path / "onnxruntime.py").write_text(MODULE)
    (tmp_path / "profile.json").write_bytes(gzip.decompress((TRACES / "onnxruntime-cnn.json.gz").read_bytes()))
    (tmp_path / "serve.py").write_text(PROGRAM)
    (tmp_path / "changing.py").write_text("open('serve.py', 'a').write('# x\\n')\nimport serve\n")

    result = advisor("workload", "profile", sys.executable, "changing.py", "1000000")

    assert (
        "warning: the program changed its own source files: `serve.py`; the profile may be of another program"
        in result.stderr
    )


def test_errors_name_what_to_do(advisor: Advisor, tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_text("")
    trace = str(TRACES / "torch-cnn.json.gz")
    expected = [
        (("workload", "import", "empty.json"), "`empty.json` is empty"),
        (("workload", "import", trace, "--framework", "torch"), "not a framework with a version"),
        (("workload", "import", trace, "--framework", "jax==0.9"), "is of `torch`, not of `jax`"),
        (("workload", "import", trace, "--name", "a b"), "not a valid name"),
        (("workload", "show"), "has no profiled workloads"),
        (("workload", "profile", "pyhton", "train.py"), "there is no program `pyhton`"),
    ]

    for arguments, message in expected:
        result = advisor(*arguments)
        assert is_error(result.stderr)
        assert message in result.stderr
        assert result.returncode == 2
    assert advisor("workload", "list").stdout == ""


def test_an_invalid_file_is_reported_before_the_program_runs(advisor: Advisor, tmp_path: Path) -> None:
    (tmp_path / WORKLOAD_FILE).write_text("schema_version = 2\n")
    (tmp_path / "train.py").write_text("open('ran', 'w')\n")

    result = advisor("workload", "profile", sys.executable, "train.py")

    assert is_error(result.stderr)
    assert "`schema_version`" in result.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("device", "hardware", "warned"), [("cuda", "NVIDIA H100", True), ("cpu", "zen4", False)])
def test_advice_for_a_profile_of_another_machine_is_a_warning(
    advisor_here: Advisor, tmp_path: Path, index: PackageIndex, device: str, hardware: str, warned: bool
) -> None:
    index.add("a", "1.0")
    (tmp_path / "requirements.txt").write_text("a\n")
    workload = ProfiledWorkload(
        name="train", framework="torch", parts=(), unattributed=1.0, device=device, hardware=hardware
    )
    write_workload(tmp_path, workload)

    result = advisor_here("advise", "--dry-run", "--hardware", "cpu-zen4", "--index-url", index.url)

    assert result.returncode == 0, result.stderr
    assert ("was profiled on NVIDIA H100" in result.stderr) is warned
