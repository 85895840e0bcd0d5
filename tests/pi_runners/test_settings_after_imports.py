"""Settings that are applied after an import of a program: real programs in real processes."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

import pi_runners
from pi_runners.hooks import sitecustomize as hook
from pi_runners.plan.arm_settings import import_request
from tests.pi_runners.benchmarks import benchmark_of, run_benchmark

LIBRARY = "MODE = 'slow'\ndef speed():\n    return {'slow': 2, 'fast': 4, 'other': 8}[MODE]\n"
FAST = {"setting": "mode=fast", "module": "library", "code": "import library\nlibrary.MODE = 'fast'"}
CHECK = "library.MODE == 'fast'"


def result_of(tmp_path: Path, program: str, *, library: str = LIBRARY, **changes: str) -> dict[str, Any]:
    """Run a program of a project, whose library has a setting, as a block does; the metric is 1 / its speed."""
    benchmark = benchmark_of(tmp_path / "project", program)
    (tmp_path / "project" / "library.py").write_text(library)
    settings = {"statements": [{**FAST, "check": CHECK, **changes}], "import_settings": ["mode=fast"]}
    [result] = run_benchmark(tmp_path, benchmark, runs=1, settings=settings).results
    return result


def last_line(result: dict[str, Any]) -> str:
    return str(result["failure"].splitlines()[-1])


@pytest.mark.parametrize(
    "program",
    [
        "import library\nprint('throughput:', library.speed())",
        "from library import speed\nprint('throughput:', speed())",
        # Looks for the module first, as libraries do that can do without it.
        "import importlib.util\nassert importlib.util.find_spec('library')\nimport library\n"
        "print('throughput:', library.speed())",
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import library; "
        'print("throughput:", library.speed())\'], check=True)',
        "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'bench_module'], check=True)",
        "import multiprocessing\ndef work(queue):\n    import library\n    queue.put(library.speed())\n"
        "if __name__ == '__main__':\n    context = multiprocessing.get_context('spawn')\n    queue = context.Queue()\n"
        "    process = context.Process(target=work, args=(queue,))\n    process.start()\n"
        "    print('throughput:', queue.get())\n    process.join()",
        "import threading, library\nthread = threading.Thread(target=lambda: print('throughput:', library.speed()))\n"
        "thread.start(); thread.join()",
    ],
    ids=["import", "from", "find_spec", "child", "module", "spawn", "thread"],
)
def test_the_statements_run_after_the_import_in_every_process(tmp_path: Path, program: str) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "bench_module.py").write_text("import library\nprint('throughput:', library.speed())")

    result = result_of(tmp_path, program)

    assert (result["status"], result.get("samples")) == ("ok", [0.25]), result


def test_the_programs_own_sitecustomize_runs_and_may_import_the_module(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "sitecustomize.py").write_text("import library\nFACTOR = 2")

    result = result_of(
        tmp_path, "import library, sitecustomize\nprint('throughput:', library.speed() * sitecustomize.FACTOR)"
    )

    assert result["samples"] == [0.125], result


def test_an_import_that_fails_first_is_waited_for(tmp_path: Path) -> None:
    library = f"import os\nif 'READY' not in os.environ: raise ImportError('not ready')\n{LIBRARY}"
    program = (
        "import os\ntry:\n    import library\nexcept ImportError:\n    os.environ['READY'] = '1'\n    import library\n"
        "print('throughput:', library.speed())"
    )

    assert result_of(tmp_path, program, library=library)["samples"] == [0.25]


def test_a_module_in_a_zip_file_and_one_of_c_code_have_them_too(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "packages.zip", "w") as archive:
        archive.writestr("zipped.py", "MODE = 'slow'")
        archive.writestr("other.py", "")
    zipped = "import sys\nsys.path.append({!r})\nimport other, zipped\nprint('throughput:', len(zipped.MODE) * 2)"
    program = zipped.format(str(tmp_path / "packages.zip"))

    in_zip = result_of(
        tmp_path, program, module="zipped", code="import zipped\nzipped.MODE = 'x'", check="zipped.MODE == 'x'"
    )
    in_c = result_of(
        tmp_path,
        "import _testcapi\nprint('throughput:', _testcapi.MODE)",
        module="_testcapi",
        code="import _testcapi\n_testcapi.MODE = 5",
        check="_testcapi.MODE == 5",
    )

    assert in_zip["samples"] == [0.5], in_zip
    assert in_c["samples"] == [0.2], in_c


@pytest.mark.parametrize(
    ("program", "changes", "reason"),
    [
        (
            "try:\n    import library\nexcept BaseException:\n    pass\nprint('throughput: 1')",
            {"code": "import library\nlibrary.speed(1)"},
            "`mode=fast` cannot be applied: TypeError: speed() takes 0 positional arguments but 1 was given",
        ),
        (
            "import library\nprint('throughput: 1')",
            {"code": "import library"},
            "`mode=fast` cannot be applied: it has no effect here",
        ),
        (
            "import library\nlibrary.MODE = 'other'\nprint('throughput:', library.speed())",
            {},
            "the program changes `mode=fast` itself, so that it has no effect",
        ),
        (
            "print('throughput: 1')",
            {},
            "`mode=fast` was not applied: no Python of the stack's environment imported `library`",
        ),
        (
            "import pathlib\nif pathlib.Path('done').exists():\n    print('throughput: 1')\nelse:\n"
            "    import library\n    pathlib.Path('done').touch()\n    print('throughput:', library.speed())",
            {},
            "`mode=fast` was not applied: no Python of the stack's environment imported `library`",
        ),
        (
            "import subprocess, sys\nsubprocess.run([sys.executable, '-I', '-c', 'import sys; "
            'sys.path.append("."); import library; print("throughput:", library.speed())\'])',
            {},
            "`mode=fast` was not applied: no Python of the stack's environment imported `library`",
        ),
    ],
    ids=["fails", "no-effect", "reset", "never", "first-run-only", "isolated-child"],
)
def test_a_setting_that_was_not_applied_is_a_failure_and_no_measurement(
    tmp_path: Path, program: str, changes: dict[str, str], reason: str
) -> None:
    result = result_of(tmp_path, program, **changes)

    assert (result["status"], "samples" in result) == ("unsupported", False)
    assert last_line(result) == reason


def test_a_program_that_fails_before_the_import_has_its_own_reason(tmp_path: Path) -> None:
    result = result_of(tmp_path, "raise ValueError('no such model')")

    assert (result["status"], last_line(result)) == ("error", "exit status 1: ValueError: no such model")


def test_an_import_in_another_environment_does_not_count(tmp_path: Path) -> None:
    other = tmp_path / "other"
    venv.create(other, symlinks=True)
    # What the other environment runs is no file of the project, and no package of the stack.
    (tmp_path / "elsewhere.py").write_text("library = 1")
    child = f"import sys; sys.path[:0] = [{str(tmp_path)!r}]; import elsewhere"
    program = (
        f"import subprocess\nsubprocess.run([{str(other / 'bin' / 'python')!r}, '-c', {child!r}], check=True)\n"
        "print('throughput: 1')"
    )

    result = result_of(tmp_path, program, module="elsewhere", code="import elsewhere", check="True")

    assert last_line(result).endswith("no Python of the stack's environment imported `elsewhere`")


def test_settings_of_the_caller_do_not_reach_a_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hook.SETTINGS, "not JSON")
    benchmark = benchmark_of(tmp_path / "project", "import os\nprint('throughput:', 4)")
    [result] = run_benchmark(tmp_path, benchmark, runs=1).results

    assert result["status"] == "ok", result


TORCH = """
import torch
{}
print("throughput:", {{"highest": 2, "high": 4, "medium": 8}}[torch.get_float32_matmul_precision()])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "program", "outcome"),
    [
        ({"matmul_precision": "medium"}, TORCH.format(""), [0.125]),
        ({"onednn": "off"}, TORCH.format("assert not torch.backends.mkldnn.enabled"), [0.5]),
        ({"interop_threads": 7}, TORCH.format("assert torch.get_num_interop_threads() == 7"), [0.5]),
        (
            {"matmul_precision": "medium"},
            TORCH.format("torch.set_float32_matmul_precision('high')"),
            "the program changes `matmul_precision=medium` itself, so that it has no effect",
        ),
        (
            {"onednn": "off", "cudnn_benchmark": "on"},
            "print('throughput: 1')",
            "`onednn=off` was not applied: no Python of the stack's environment imported `torch`",
        ),
        (
            {"matmul_precision": "medium"},
            "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'torch.distributed.run', '--standalone', "
            "'--nproc-per-node=1', 'work.py'], check=True)",
            [0.125],
        ),
    ],
    ids=["precision", "onednn", "number", "reset", "never", "torchrun"],
)
def test_settings_of_pytorch(tmp_path: Path, settings: dict[str, Any], program: str, outcome: Any) -> None:
    pytest.importorskip("torch")
    benchmark = benchmark_of(tmp_path / "project", program)
    (tmp_path / "project" / "work.py").write_text(TORCH.format(""))
    [result] = run_benchmark(tmp_path, benchmark, runs=1, settings=import_request(settings, ["torch"])).results

    assert (result["samples"] if result["status"] == "ok" else last_line(result)) == outcome, result


def test_what_applies_later_says_when(tmp_path: Path) -> None:
    later: dict[str, str] = {"code": "import library\nlibrary.speed = lambda: use() or 8", "check": ""}
    never = {**later, "code": "import library"}
    refused = {**later, "code": "import library\nlibrary.speed = lambda: use() or refuse('it is slow') or 8"}
    program = "import library\nprint('throughput:', library.speed())"

    assert result_of(tmp_path, program, **later)["samples"] == [0.125]
    assert last_line(result_of(tmp_path, program, **never)) == (
        "`mode=fast` was not applied: no Python of the stack's environment called a model of `library`"
    )
    assert last_line(result_of(tmp_path, program, **refused)) == "`mode=fast` cannot be applied: it is slow"


def test_an_interpreter_without_the_import_is_as_it_was(tmp_path: Path) -> None:
    program = "import json, sys; print(json.dumps([sorted(sys.modules), sys.path]))"
    folder = str(Path(hook.__file__).parent)
    statements = json.dumps([{**FAST, "check": CHECK}])
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    before, after = (
        json.loads(subprocess.run([sys.executable, "-c", program], env=e, capture_output=True, check=True).stdout)
        for e in (plain, {**plain, "PYTHONPATH": folder, hook.SETTINGS: statements})
    )

    assert "library" not in after[0]
    assert after[1] == before[1]


def test_the_hooks_are_python_3_8() -> None:
    folders = [Path(folder) for folder in pi_runners.__path__]
    paths = [path for folder in folders for path in (*folder.glob("hooks/*.py"), *folder.rglob("profile/hooks/*.py"))]

    assert len(paths) >= 4
    for path in paths:
        ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
