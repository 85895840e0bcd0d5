"""`advisor run` with real programs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from advisor.locks.registry import SETTINGS_FILE
from advisor.locks.settings_table import locked_settings, settings_text
from knowledge.hardware.this_machine import installed_libraries
from tests.advisor.inputs import is_error
from tests.forked import run_forked

ADVISOR = (sys.executable, "-m", "advisor", "run")
ROOT = Path(__file__).parents[3]
ALLOCATORS = installed_libraries(["libtcmalloc_minimal.so.4", "libjemalloc.so.2", "libmimalloc.so.2"])
ENVIRONMENT = "import os, json; print(json.dumps(dict(os.environ)))"

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run `advisor run` in a temporary directory, with these variables only."""

    def run(
        *arguments: str, environment: Mapping[str, str] | None = None, input: str = ""
    ) -> subprocess.CompletedProcess[str]:
        variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **(environment or {})}
        words = ("run", *arguments)
        return run_forked(words, cwd=tmp_path, environment=variables, timeout=60, standard_input=input)

    return run


def write_settings(folder: Path, **values: dict[str, int | str]) -> None:
    (folder / SETTINGS_FILE).write_text(settings_text(locked_settings(values)))


def test_a_program_gets_the_variables_of_the_lock_and_nothing_else_changes(run: Run, tmp_path: Path) -> None:
    write_settings(tmp_path, torch={"threads": 2, "isa": "avx2", "memory_format": "channels_last"})
    plain = subprocess.run(
        ["env"], env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )

    result = run("--", "env")

    assert result.returncode == 0
    assert sorted(result.stdout.splitlines()) == sorted(
        [
            *plain.stdout.splitlines(),
            "OMP_NUM_THREADS=2",
            "MKL_NUM_THREADS=2",
            "ONEDNN_MAX_CPU_ISA=AVX2",
            "ATEN_CPU_CAPABILITY=avx2",
        ]
    )
    (line,) = result.stderr.splitlines()
    assert line.startswith("applied: isa=avx2 (torch), threads=2 (torch) [ATEN_CPU_CAPABILITY=avx2 MKL_NUM_THREADS=2")
    assert line.endswith("not applied, needs code: memory_format=channels_last (torch) (`advisor env` prints it)")


def test_named_settings_replace_those_of_the_named_lock(run: Run, tmp_path: Path) -> None:
    write_settings(tmp_path, torch={"threads": 2, "isa": "avx2"})
    command = ("--", sys.executable, "-c", ENVIRONMENT)

    both = json.loads(run("--lock", SETTINGS_FILE, "--settings", "threads=1", *command).stdout)
    only = json.loads(run("--settings", "threads=1", "--framework", "torch", *command).stdout)

    assert (both["OMP_NUM_THREADS"], both["ONEDNN_MAX_CPU_ISA"]) == ("1", "AVX2")
    assert (only["OMP_NUM_THREADS"], only.get("ONEDNN_MAX_CPU_ISA")) == ("1", None)


def test_default_leaves_out_a_setting_of_the_lock(run: Run, tmp_path: Path) -> None:
    write_settings(tmp_path, torch={"threads": 2, "isa": "avx2"})
    command = ("--", sys.executable, "-c", ENVIRONMENT)

    result = run("--lock", SETTINGS_FILE, "--settings", "threads=default,allocator=default", *command)

    variables = json.loads(result.stdout)
    assert (variables.get("OMP_NUM_THREADS"), variables["ONEDNN_MAX_CPU_ISA"]) == (None, "AVX2")


def test_default_alone_sets_nothing(run: Run) -> None:
    result = run("--settings", "allocator=default", "--", "true")

    assert (result.returncode, result.stderr.strip()) == (0, "applied: no setting")


def test_the_program_gets_its_input_its_arguments_and_its_directory(run: Run, tmp_path: Path) -> None:
    program = "import os, sys; print(sys.stdin.read(), sys.argv[1:], os.getcwd())"

    result = run("--settings", "xla=auto", sys.executable, "-c", program, "--lock", "x", "--", "-h", input="typed")

    assert result.stdout == f"typed ['--lock', 'x', '--', '-h'] {tmp_path}\n"


@pytest.mark.parametrize("code", [0, 1, 2, 77, 255])
def test_the_exit_code_is_that_of_the_program(code: int, run: Run) -> None:
    assert run("--settings", "xla=auto", "--", "sh", "-c", f"exit {code}").returncode == code


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGINT", "SIGSEGV"])
def test_a_killed_program_ends_as_if_started_directly(name: str, run: Run) -> None:
    number = getattr(signal, name)

    assert run("--settings", "xla=auto", "--", "sh", "-c", f"kill -{number:d} $$").returncode == -number


def test_a_signal_reaches_the_program_itself(tmp_path: Path) -> None:
    program = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(42))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [*ADVISOR, "--settings", "xla=auto", "--", sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.terminate()

        assert process.wait(timeout=30) == 42


def test_the_program_ends_when_its_reader_does(tmp_path: Path) -> None:
    """Python ignores SIGPIPE; a program that inherited this would not end."""
    advisor = " ".join(ADVISOR)
    script = f"{advisor} --settings xla=auto -- yes | head -1; echo ${{PIPESTATUS[0]}}"

    result = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert result.stdout.split() == ["y", str(128 + signal.SIGPIPE)]


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system has no processor affinity")
def test_jax_threads_are_a_number_of_processors(run: Run) -> None:
    program = "import os; print(sorted(os.sched_getaffinity(0)))"
    allowed = sorted(os.sched_getaffinity(0))

    one = run("--settings", "threads=1", "--framework", "jax", "--", sys.executable, "-c", program)
    more = run("--settings", f"threads={len(allowed) + 1}", "--framework", "jax", "--", sys.executable, "-c", program)

    assert one.stdout == f"{allowed[:1]}\n"
    assert f"[processors {allowed[0]}]" in one.stderr
    assert more.stdout == f"{allowed}\n"
    assert f"the program may use {len(allowed)} processor" in more.stderr


@pytest.mark.skipif(not Path("/sys/devices/system/node/node0").exists(), reason="the kernel describes no NUMA nodes")
def test_a_program_is_bound_to_a_numa_node(run: Run) -> None:
    program = "import os; print(len(os.sched_getaffinity(0)))"

    first = run("--settings", "numa=0", "--", sys.executable, "-c", program)
    absent = run("--settings", "numa=4096", "--", sys.executable, "-c", program)

    assert 1 <= int(first.stdout) <= len(os.sched_getaffinity(0))
    assert "applied: numa=0" in first.stderr
    assert "`numa=4096` is not applied: this machine has no NUMA node 4096" in absent.stderr
    assert absent.returncode == 0


@pytest.mark.skipif(not ALLOCATORS, reason="no allocator of the catalogue is installed")
def test_an_installed_library_is_loaded_before_the_program(run: Run) -> None:
    file, path = next(iter(ALLOCATORS.items()))
    name = next(name for name in ("tcmalloc", "jemalloc", "mimalloc") if name in file)

    result = run("--settings", f"allocator={name}", "--", "cat", "/proc/self/maps")

    assert str(path.resolve()) in result.stdout


def test_a_library_that_is_not_installed_is_skipped_with_a_warning(run: Run) -> None:
    missing = [
        name
        for name, file in {"tcmalloc": "libtcmalloc_minimal.so.4", "mimalloc": "libmimalloc.so.2"}.items()
        if file not in ALLOCATORS
    ]
    if not missing:
        pytest.skip("all allocators of the catalogue are installed")

    result = run("--settings", f"allocator={missing[0]}", "--", "env")

    assert "LD_PRELOAD" not in result.stdout
    assert "are not installed" in result.stderr
    assert result.returncode == 0


def test_code_that_overrides_a_setting_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import sys\n\nif 'torch' in sys.modules:\n    import torch\n    torch.set_num_threads(1)\n"
    )

    result = run("--settings", "threads=2", "--framework", "torch", "--", sys.executable, "train.py")
    module = run("--settings", "threads=2", "--framework", "torch", "--", sys.executable, "-X", "utf8", "-m", "train")
    argument = run("--settings", "threads=2", "--framework", "torch", "--", sys.executable, "-c", "", "-m", "train")
    same = run("--settings", "threads=1", "--framework", "torch", "--", sys.executable, "train.py")

    assert result.returncode == module.returncode == same.returncode == 0
    warning = "`train.py:5` sets `threads` to `1` under a condition, so `threads=2` has no effect"
    assert warning in " ".join(result.stderr.split())
    assert warning in " ".join(module.stderr.split())
    assert "has no effect" not in same.stderr + argument.stderr


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system has no processor affinity")
def test_more_threads_than_processors_are_not_applied(run: Run) -> None:
    result = run("--settings", "threads=9999", "--framework", "torch", "--", sys.executable, "-c", ENVIRONMENT)

    assert result.returncode == 0
    assert "OMP_NUM_THREADS" not in json.loads(result.stdout)
    assert "`threads=9999 (torch)` is not applied: the program may use " in " ".join(result.stderr.split())


def test_what_the_caller_has_set_stays(run: Run) -> None:
    environment = {"OMP_NUM_THREADS": "1", "XLA_FLAGS": "--one --xla_cpu_max_isa=AVX512"}
    command = ("--", sys.executable, "-c", ENVIRONMENT)

    torch = run("--settings", "threads=2", "--framework", "torch", *command, environment=environment)
    jax = run("--settings", "isa=avx2,cpu_scheduler=memory", "--framework", "jax", *command, environment=environment)

    assert "`threads=2 (torch)` is not applied: the environment has `OMP_NUM_THREADS=1` already" in torch.stderr
    assert json.loads(torch.stdout)["OMP_NUM_THREADS"] == "1"
    assert "MKL_NUM_THREADS" not in json.loads(torch.stdout)
    assert "`isa=avx2 (jax)` is not applied" in jax.stderr
    assert json.loads(jax.stdout)["XLA_FLAGS"] == (
        "--one --xla_cpu_max_isa=AVX512 --xla_cpu_enable_concurrency_optimized_scheduler=false"
    )


def test_flags_are_added_to_those_of_the_caller(run: Run) -> None:
    result = run(
        "--settings",
        "isa=avx2",
        "--framework",
        "jax",
        "--",
        "printenv",
        "XLA_FLAGS",
        environment={"XLA_FLAGS": "--one"},
    )

    assert result.stdout == "--one --xla_cpu_max_isa=AVX2\n"


def test_a_lock_of_an_advice_without_settings_runs_the_program(run: Run, tmp_path: Path) -> None:
    write_settings(tmp_path)

    result = run("--", "echo", "done")

    assert (result.stdout, result.stderr) == ("done\n", "applied: no setting\n")


def test_a_program_that_does_not_exist_ends_as_in_a_shell(run: Run, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    (tmp_path / "script").write_text("#!/does/not/exist\n")
    (tmp_path / "script").chmod(0o755)

    missing = [run("--settings", "xla=auto", "--", name) for name in ("no-such-program", "./no-such-program", "")]
    refused = [run("--settings", "xla=auto", "--", name) for name in ("./data", str(tmp_path))]
    no_interpreter = run("--settings", "xla=auto", "--", "./script")

    for result, code in [*((r, 127) for r in missing), *((r, 126) for r in refused)]:
        assert result.returncode == code
        assert is_error(result.stderr)
        assert len(result.stderr.splitlines()) == 2
    assert no_interpreter.returncode == 127
    assert "the interpreter of `./script` does not exist" in no_interpreter.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "there is no `pylock.toml` or `advisor-settings.toml` in this directory"),
        (("--lock", "absent.toml"), "`absent.toml` does not exist"),
        (("--lock", "pylock.toml"), "`pylock.toml` has no run-time settings"),
        (("--lock", "damaged.toml"), "is not valid TOML"),
        (("--settings", "threads"), "`--settings threads` has no value"),
        (("--settings", "threads=0", "--framework", "torch"), "`threads` must be an integer of at least 1"),
        (("--settings", "threads=--5", "--framework", "torch"), "`threads` must be an integer of at least 1"),
        (("--settings", f"threads={'9' * 5000}", "--framework", "torch"), "`threads` must be an integer of at least 1"),
        (("--settings", "threads=\u0663", "--framework", "torch"), "`threads` must be an integer of at least 1"),
        (("--settings", "threads=4294967296", "--framework", "torch"), "at most 2147483647"),
        (("--settings", "threads=2,threads=3", "--framework", "torch"), "`--settings` has two values of `threads`"),
        (("--lock", "pipe.toml"), "`pipe.toml` is not a regular file"),
        (("--settings", "speed=high"), "there is no setting `speed`"),
        (("--settings", "threads=2"), "does not say which framework it is for"),
        (("--settings", "threads=2", "--framework", "torhc"), "there is no framework `torhc`"),
        (("--settings", "xla=auto", "--framework", "torch"), "`xla` is not a setting of `torch`"),
        (
            ("--settings", "tf32=on,matmul_precision=high", "--framework", "torch"),
            "`matmul_precision=high` and `tf32=on` contradict each other",
        ),
        (
            ("--lock", "advisor-settings.both.toml"),
            "`threads=4` of `numpy` and `threads=2` of `torch` contradict each other: both set `MKL_NUM_THREADS`",
        ),
        (("--lock", "pylock.old.toml"), "`compile=on` needs torch>=2.0, and the lock has 1.13.1"),
    ],
)
def test_wrong_input_is_one_sentence_before_anything_runs(
    arguments: tuple[str, ...], message: str, run: Run, tmp_path: Path
) -> None:
    if arguments:
        (tmp_path / "pylock.toml").write_text("")
    (tmp_path / "damaged.toml").write_text("[")
    os.mkfifo(tmp_path / "pipe.toml")
    table = settings_text(locked_settings({"torch": {"compile": "on"}})).replace("[settings", "[tool.advisor.settings")
    (tmp_path / "pylock.old.toml").write_text(
        '[[packages]]\nname = "torch"\nversion = "1.13.1"\n[tool.advisor]\n' + table
    )
    both = locked_settings({"numpy": {"threads": 4}, "torch": {"threads": 2}})
    (tmp_path / "advisor-settings.both.toml").write_text(settings_text(both))

    result = run(*arguments, "--", "touch", "started")

    assert result.returncode == 2
    assert is_error(result.stderr)
    assert message in result.stderr.splitlines()[0]
    assert len(result.stderr.splitlines()) <= 2
    assert not (tmp_path / "started").exists()


def test_a_record_that_differs_from_the_catalogue_is_reported(run: Run, tmp_path: Path) -> None:
    write_settings(tmp_path, torch={"threads": 2})
    path = tmp_path / SETTINGS_FILE
    path.write_text(path.read_text().replace("MKL_NUM_THREADS", "PYTHONSTARTUP"))

    result = run("--", "env")

    assert "records other variables or lines for `threads=2` than this program applies" in result.stderr
    assert "PYTHONSTARTUP" not in result.stdout


TORCH = """
class backends:
    class mkldnn:
        enabled = True
"""
WITHOUT_ONEDNN = ("--settings", "onednn=off", "--framework", "torch", "--", sys.executable)
PRINT = "import torch; print(torch.backends.mkldnn.enabled)"


def test_a_setting_that_is_a_call_is_applied_after_the_import(run: Run, tmp_path: Path) -> None:
    write_settings(tmp_path, torch={"onednn": "off", "memory_format": "channels_last"})
    (tmp_path / "torch.py").write_text(TORCH)
    (tmp_path / "train.py").write_text(PRINT)

    result = run("--", sys.executable, "train.py")

    assert (result.returncode, result.stdout) == (0, "False\n")
    assert result.stderr == (
        "applied: onednn=off (torch) [code after `import torch`]; "
        "not applied, needs code: memory_format=channels_last (torch) (`advisor env` prints it)\n"
    )


def test_what_a_lock_records_as_code_never_runs(run: Run, tmp_path: Path) -> None:
    write_settings(tmp_path, torch={"onednn": "off"})
    path = tmp_path / SETTINGS_FILE
    path.write_text(path.read_text().replace("torch.backends", "open('stolen', 'w'); torch.backends"))
    (tmp_path / "torch.py").write_text(TORCH)

    result = run("--", sys.executable, "-c", PRINT)

    assert (result.returncode, result.stdout) == (0, "False\n")
    assert "records other variables or lines for `onednn=off`" in result.stderr
    assert not (tmp_path / "stolen").exists()


@pytest.mark.parametrize("value", ["off; open('stolen', 'w')", "Off", ""])
def test_a_value_that_the_catalogue_does_not_have_is_refused(value: str, run: Run, tmp_path: Path) -> None:
    write_settings(tmp_path, torch={"onednn": "off"})
    path = tmp_path / SETTINGS_FILE
    path.write_text(path.read_text().replace('value = "off"', f'value = "{value}"'))

    result = run("--", sys.executable, "-c", "open('started', 'w')")

    assert result.returncode == 2
    assert is_error(result.stderr)
    assert "`onednn` must be one of on, off" in result.stderr
    assert not (tmp_path / "started").exists()


def test_a_call_that_fails_ends_the_program_with_the_reason(run: Run, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("")

    result = run(*WITHOUT_ONEDNN, "-c", "import torch; open('started', 'w')")

    assert result.returncode == 1
    assert "advisor: `onednn=off` cannot be applied: AttributeError: " in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "started").exists()


def test_a_program_that_changes_a_setting_itself_is_reported(run: Run, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(TORCH)

    result = run(*WITHOUT_ONEDNN, "-c", "import torch; torch.backends.mkldnn.enabled = True")

    assert result.returncode == 0
    assert result.stderr.splitlines()[-1] == "advisor: the program has changed `onednn=off` itself"


@pytest.mark.parametrize(("option", "is_warned"), [("-I", True), ("-sE", True), ("-u", False), ("-XI", False)])
def test_options_of_python_that_prevent_it_are_reported(option: str, is_warned: bool, run: Run) -> None:
    result = run(*WITHOUT_ONEDNN, option, "-c", "")

    text = "Python with `-I`, `-E` or `-S` runs no code at its start, so onednn=off (torch) has no effect"
    assert (text in " ".join(result.stderr.split())) == is_warned
    assert result.returncode == 0


def test_the_search_path_of_the_caller_stays(run: Run, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "torch.py").write_text(TORCH)
    (own / "sitecustomize.py").write_text("import builtins\nbuiltins.hello = 'own'\n")

    result = run(
        *WITHOUT_ONEDNN,
        *("-c", f"import sys; {PRINT}; print(hello, sys.path[1])"),
        environment={"PYTHONPATH": f"{own}{os.pathsep}{ROOT}"},
    )

    assert result.stdout.split() == ["False", "own", str(own)]


@pytest.mark.skipif(shutil.which("script") is None, reason="`script` is not installed")
def test_the_program_has_the_terminal(tmp_path: Path) -> None:
    command = " ".join([*ADVISOR, "--settings", "xla=auto", "--", "tty"])

    result = subprocess.run(
        ["script", "-qec", command, "/dev/null"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert "/dev/pts/" in result.stdout
