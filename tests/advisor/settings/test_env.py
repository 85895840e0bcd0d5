"""`advisor env`: what it prints, evaluated by the programs that read it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from advisor.api.run_plan import RunMachine, plan_run
from advisor.locks.registry import SETTINGS_FILE
from advisor.locks.setting_value import AppliedSetting
from advisor.locks.settings_table import locked_settings, settings_text
from advisor.report.environment import docker_text, kubernetes_text, shell_text, slurm_text
from knowledge.hardware.profiles import find_profile
from tests.advisor.inputs import is_error
from tests.conftest import Advisor
from tests.forked import run_forked
from tests.slurm.cluster import Cluster

VALUES: dict[str, dict[str, int | str]] = {
    "torch": {"threads": 2, "isa": "avx2", "amp": "bfloat16"},
    "jax": {"isa": "avx2", "cpu_scheduler": "concurrency"},
}
VARIABLES = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_NUM_THREADS": "2",
    "OMP_NUM_THREADS": "2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "XLA_FLAGS": "--xla_cpu_max_isa=AVX2 --xla_cpu_enable_concurrency_optimized_scheduler=true",
}
PRINT = f"{shlex.quote(sys.executable)} -c 'import os, json; print(json.dumps(dict(os.environ)))'"
# Each shell with the option that runs a text, and with an evaluation of a file that an option of it names.
SHELLS = [
    pytest.param(shell, shell, marks=pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is missing"))
    for shell in ("bash", "sh", "dash", "zsh", "fish", "pwsh")
]
AWKWARD = "a 'b' \"c\" \\ $HOME `d` \u2019 $(e) !f # g; h & i * ~ {j} \u00e4"

BARE = RunMachine(system="linux", libraries=lambda names: {}, detect=lambda: find_profile("cpu-haswell"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with a settings file."""
    (tmp_path / SETTINGS_FILE).write_text(settings_text(locked_settings(VALUES)))
    return tmp_path


def evaluated(shell: str, text: str, folder: Path) -> dict[str, str]:
    """Return the environment of a program that a shell starts after it has evaluated a text."""
    program = "& " if shell == "pwsh" else ""
    option = "-Command" if shell == "pwsh" else "-c"
    result = subprocess.run(
        [shell, option, f"{text}\n{program}{PRINT}"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    environment: dict[str, str] = json.loads(result.stdout)
    return environment


def awkward_setting() -> AppliedSetting:
    """A setting whose variable has a value with every special character of a shell."""
    return AppliedSetting(framework="torch", name="isa", value="avx2", numerics="exact", environment={"NAME": AWKWARD})


@pytest.mark.parametrize(("shell", "name"), SHELLS)
def test_a_shell_sets_the_variables(shell: str, name: str, folder: Path, advisor: Advisor) -> None:
    result = advisor("env", "--shell", name)

    assert result.stderr == ""
    assert VARIABLES.items() <= evaluated(shell, result.stdout, folder).items()


@pytest.mark.parametrize(("shell", "name"), SHELLS)
def test_a_shell_gets_every_character(shell: str, name: str, tmp_path: Path) -> None:
    text = shell_text([awkward_setting()], name, present={}, machine=BARE)

    assert evaluated(shell, text, tmp_path)["NAME"] == AWKWARD


def test_fish_and_powershell_have_their_own_quotes() -> None:
    fish, powershell = (
        shell_text([awkward_setting()], shell, present={}, machine=BARE).splitlines()[-1]
        for shell in ("fish", "powershell")
    )

    assert fish.startswith("set -gx NAME 'a \\'b\\' \"c\" \\\\ $HOME")
    assert powershell.startswith("$env:NAME = 'a ''b'' \"c\" \\ $HOME `d` \u2019\u2019 $(e)")


@pytest.mark.parametrize(("path", "start"), [("/usr/bin/fish", "set -gx"), ("/bin/zsh", "export"), ("", "export")])
def test_the_shell_comes_from_the_environment(path: str, start: str, folder: Path) -> None:
    result = run_env(folder, {"SHELL": path})

    assert result.stdout.splitlines()[-1].startswith(start)


def run_env(folder: Path, environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    variables = {"PATH": os.environ["PATH"], **environment}
    return run_forked(("env", *arguments), cwd=folder, environment=variables, timeout=60)


def test_flags_of_the_shell_stay(folder: Path) -> None:
    result = run_env(folder, {"XLA_FLAGS": "--one --xla_cpu_max_isa=AVX512"}, "--shell", "bash")

    assert evaluated("bash", result.stdout, folder)["XLA_FLAGS"] == f"--one {VARIABLES['XLA_FLAGS']}"


def test_what_needs_code_is_a_comment() -> None:
    machine = RunMachine(detect=lambda: find_profile("cpu-sapphirerapids"))
    lines = shell_text(locked_settings(VALUES), "bash", present={}, machine=machine).splitlines()

    assert "# needs code: amp=bfloat16 (torch), reduced precision" in lines
    assert "#   with torch.autocast(next(model.parameters()).device.type, dtype=torch.bfloat16): ..." in lines
    assert "# threads=2 (torch), results differ by rounding: MKL_NUM_THREADS, OMP_NUM_THREADS" in lines


def test_a_library_that_is_not_installed_is_left_out() -> None:
    settings = locked_settings({"torch": {"allocator": "tcmalloc", "threads": 2}})

    text = shell_text(settings, "bash", present={}, machine=BARE)

    assert "LD_PRELOAD" not in text
    assert "# allocator=tcmalloc is left out: `libtcmalloc" in text
    assert "export OMP_NUM_THREADS=2" in text


def test_a_setting_that_overrides_a_variable_of_another_does_so_as_in_a_run() -> None:
    settings = locked_settings({"tensorflow": {"interop_threads": 1, "threads": 4}})

    variables = plan_run(settings, present={}, machine=BARE).variables

    assert variables["TF_NUM_INTEROP_THREADS"] == "1"
    assert "export TF_NUM_INTEROP_THREADS=1" in shell_text(settings, "bash", present={}, machine=BARE)
    assert 'ENV TF_NUM_INTEROP_THREADS="1"' in docker_text(settings)


def test_an_allocator_of_the_shell_stays() -> None:
    settings = locked_settings({"torch": {"allocator": "tcmalloc"}})
    libraries = {"libtcmalloc_minimal.so.4": Path("/lib/libtcmalloc_minimal.so.4")}
    machine = RunMachine(system="linux", libraries=lambda names: libraries)

    text = shell_text(settings, "bash", present={"LD_PRELOAD": "/lib/libjemalloc.so.2"}, machine=machine)

    assert text == "# allocator=tcmalloc is left out: the environment has `LD_PRELOAD=/lib/libjemalloc.so.2` already"


def test_what_this_machine_lacks_is_left_out() -> None:
    settings = locked_settings({"torch": {"isa": "avx512", "threads": 2}, "*": {"numa": 99}})

    text = shell_text(settings, "bash", present={"OMP_NUM_THREADS": "8"}, machine=BARE)

    assert "# numa=99 is left out: this machine has no NUMA node 99" in text
    assert "export ONEDNN_MAX_CPU_ISA" not in text
    assert "# isa=avx512 (torch) is left out: it needs avx512bw" in text
    assert "export OMP_NUM_THREADS=2" in text


def test_kubernetes_reads_the_list(folder: Path, advisor: Advisor) -> None:
    document = yaml.safe_load(advisor("env", "--format", "kubernetes").stdout)

    assert {entry["name"]: entry["value"] for entry in document["env"]} == VARIABLES
    assert yaml.safe_load(kubernetes_text([awkward_setting()]))["env"][0]["value"] == AWKWARD.replace("$(", "$$(")
    assert yaml.safe_load(kubernetes_text([])) == {"env": []}


def test_an_env_file_has_a_variable_in_each_line(folder: Path, advisor: Advisor) -> None:
    lines = advisor("env", "--format", "dotenv").stdout.splitlines()

    assert dict(line.split("=", 1) for line in lines if not line.startswith("#")) == VARIABLES


def test_a_dotenv_file_names_the_library_that_it_needs(advisor: Advisor) -> None:
    text = advisor("env", "--settings", "allocator=tcmalloc", "--framework", "torch", "--format", "dotenv").stdout

    assert "# the machine needs the library `libtcmalloc_minimal.so.4` for allocator=tcmalloc" in text


def test_docker_reads_the_lines(folder: Path, advisor: Advisor) -> None:
    lines = [line for line in advisor("env", "--format", "docker").stdout.splitlines() if not line.startswith("#")]

    assert lines == [f'ENV {name}="{text}"' for name, text in VARIABLES.items()]
    assert docker_text([awkward_setting()]).endswith(
        'ENV NAME="a \'b\' \\"c\\" \\\\ \\$HOME `d` \u2019 \\$(e) !f # g; h & i * ~ {j} \u00e4"'
    )


def test_containers_are_bound_to_processors_from_outside() -> None:
    settings = locked_settings({"jax": {"threads": 4}})

    assert "docker run --cpuset-cpus=0-3" in docker_text(settings)
    assert "`cpu: 4`" in kubernetes_text(settings)


def test_a_batch_script_has_options_before_its_commands() -> None:
    lines = slurm_text(locked_settings({"torch": {"threads": 2}, "jax": {"threads": 4}})).splitlines()
    node = slurm_text(locked_settings({"torch": {"numa": 1}})).splitlines()

    assert lines[:2] == ["#!/bin/bash", "#SBATCH --cpus-per-task=4"]
    assert lines[-1] == 'srun --cpus-per-task=4 --cpu-bind=cores "$@"'
    assert node[-1] == 'srun --cpu-bind=map_ldom:1 --mem-bind=local "$@"'


@pytest.mark.slow
def test_slurm_runs_the_batch_script(slurm: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text(slurm_text(locked_settings({"torch": {"threads": 1, "isa": "avx2"}})))

    output = tmp_path / "output"
    subprocess.run(
        ["sbatch", "--wait", f"--output={output}", str(script), "env"], cwd=tmp_path, check=True, capture_output=True
    )

    assert {"OMP_NUM_THREADS=1", "ONEDNN_MAX_CPU_ISA=AVX2"} <= set(output.read_text().splitlines())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--shell", "nushell"), "the shell `nushell` is not known"),
        (("--format", "podman"), "there is no format `podman`"),
        (("--format", "docker", "--shell", "fish"), "`--shell` and `--format docker` contradict each other"),
        (("--lock", "absent.txt"), "`absent.txt` does not exist"),
    ],
)
def test_wrong_input_is_one_sentence(arguments: tuple[str, ...], message: str, folder: Path, advisor: Advisor) -> None:
    result = advisor("env", *arguments)

    assert result.returncode == 2
    assert is_error(result.stderr)
    assert message in result.stderr.splitlines()[0]
    assert result.stdout == ""


def test_an_unknown_shell_of_the_user_is_reported(folder: Path) -> None:
    result = run_env(folder, {"SHELL": "/usr/bin/nu"})

    assert result.returncode == 2
    assert "the shell `nu` in `$SHELL` is not known" in result.stderr
