"""Special characters of shells, sbatch and Kubernetes in names, paths and commands are passed unchanged."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from advisor.campaign.directory import CampaignDirectory
from advisor.campaign.engines import Engine
from knowledge.domain.errors import InputError
from pi_runners.executors.base import Batch, Executor, RefusedError, shell_command
from pi_runners.executors.local import LocalExecutor
from pi_runners.executors.manifests import KubernetesOptions, manifests
from pi_runners.executors.slurm import SlurmExecutor, SlurmOptions
from tests.examples import examples
from tests.kubernetes_double.cluster import expand
from tests.kubernetes_double.schema import violation
from tests.pi_runners.executors.engines import wait_until_final

HOSTILE = (
    "a b",
    "",
    "'",
    '"',
    'it\'s "quoted" \\',
    "$HOME ${HOME} $(id) $((1+1)) `id`",
    "$(TASKS) $$(TASKS) $$ $",
    "-x",
    "--job-name=other",
    "two\nlines\n#SBATCH --partition=closed\n",
    "a\rb\tc\x0b\x85\u2028d",
    "; exit 3 # & | < > * ? [a] ~ !",
    "%j %a %%",
    "{task} {other} x{task}",
    "ünï→ 测量 \U0001f40d",
    "a=b",
)
WORDS = st.lists(
    st.one_of(
        st.sampled_from(HOSTILE),
        st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=20),
    ),
    max_size=6,
)
SETTINGS = settings(max_examples=examples(50), deadline=None, suppress_health_check=list(HealthCheck))


def batch_in(folder: Path, *words: str, tasks: tuple[int, ...] = (7,)) -> Batch:
    """Return a batch whose tasks print their arguments, as JSON."""
    code = "import json, sys; print(json.dumps(sys.argv[1:]))"
    # A new name each time, because an executor runs the batch of a name once.
    return Batch(
        name=f"test-{uuid.uuid4().hex[:12]}",
        command=(sys.executable, "-c", code, *words),
        tasks=tasks,
        folder=folder,
        home=folder.parent,
    )


def printf_batch(folder: Path, words: list[str]) -> Batch:
    """Return a batch that prints its arguments, each followed by a zero byte: faster than starting Python."""
    return Batch(
        name="test-hostile", command=("printf", "%s\\0", *words, "{task}"), tasks=(3, 7), folder=folder, home=folder
    )


def split_output(output: bytes) -> list[str]:
    return output.decode().split("\0")[:-1]


@SETTINGS
@given(words=WORDS)
@example(words=list(HOSTILE))
def test_a_shell_passes_every_word_unchanged(words: list[str]) -> None:
    batch = printf_batch(Path("/x"), words)

    run = subprocess.run(["/bin/sh", "-c", f"n=7; {shell_command(batch, '$n')}"], capture_output=True)

    assert split_output(run.stdout) == [*("7" if word == "{task}" else word for word in words), "7"]


@SETTINGS
@given(words=WORDS)
@example(words=list(HOSTILE))
def test_kubernetes_passes_every_word_unchanged(words: list[str]) -> None:
    config, job = manifests(printf_batch(Path("/x"), words), KubernetesOptions(image="x"), None)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    variables = {"JOB_COMPLETION_INDEX": "1", "HOME": "/wrong", "PATH": os.environ["PATH"]}
    for entry in container["env"]:
        variables[entry["name"]] = expand(entry.get("value", "node"), variables)

    run = subprocess.run([expand(word, variables) for word in container["command"]], capture_output=True, env=variables)

    assert split_output(run.stdout) == [*("7" if word == "{task}" else word for word in words), "7"]
    for manifest in (config, job):
        assert violation(manifest, "1.33") is None


@pytest.fixture(scope="module")
def srun_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an ``srun`` that runs the command after its options, as that of Slurm."""
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "srun"
    program.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n')
    program.chmod(0o755)
    return folder


@SETTINGS
@given(words=WORDS, name=st.one_of(st.sampled_from(HOSTILE), st.text(max_size=10)), cache=st.sampled_from(HOSTILE))
def test_a_job_script_passes_every_word_unchanged_and_sets_no_option(
    words: list[str], name: str, cache: str, srun_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    name = re.sub(r"[/\x00\ud800-\udfff]", "", name).strip(".")[:50] or "plain"
    folder = tmp_path_factory.mktemp("job") / name
    folder.mkdir()
    batch = printf_batch(folder, words)
    script = SlurmExecutor(SlurmOptions(cpu_bind=cache, uv_cache=cache)).script(batch)
    variables = {"SLURM_ARRAY_TASK_ID": "7", "SLURM_JOB_ID": "1", "SLURMD_NODENAME": "n1"}
    variables["PATH"] = f"{srun_folder}:{os.environ['PATH']}"

    run = subprocess.run(["/bin/bash", "-c", script], capture_output=True, env=variables, cwd="/")

    assert split_output(run.stdout) == [*("7" if word == "{task}" else word for word in words), "7"]
    assert run.stderr == b""
    assert [path.name for path in folder.iterdir()] == ["exit-7"]
    assert (folder / "exit-7").read_text() == "0 n1\n"
    # sbatch reads options up to the first line that is not a comment.
    first, second, *_ = script.split("\n")
    assert (first, second.startswith("#")) == ("#!/bin/bash", False)


@SETTINGS
@given(text=st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(exclude_characters="\x00"), max_size=20)))
def test_an_option_of_slurm_stays_one_word(text: str) -> None:
    batch = batch_in(Path("/shared/x"), "{task}")
    options = SlurmOptions(
        partition=text, account=text, qos=text, constraint=text, gres=text, nodelist=text, memory=text
    )

    words = SlurmExecutor(options).arguments(batch)

    expected = ("partition", "account", "qos", "constraint", "gres", "nodelist", "mem")
    assert [f"--{name}={text}" in words for name in expected] == [bool(text)] * len(expected)
    assert all(word.startswith("--") for word in words)
    assert "#SBATCH" not in SlurmExecutor(options).script(batch)


@SETTINGS
@given(title=st.one_of(st.sampled_from(HOSTILE), st.text(max_size=60)), place=st.sampled_from(HOSTILE))
def test_the_batch_of_every_campaign_has_a_name_that_engines_accept(title: str, place: str) -> None:
    engine = Engine(executor=LocalExecutor(), command=("x",))

    directory = CampaignDirectory(Path("/c") / (place or "x"))
    batch = engine.batch(directory, f"{title}-1234abcd-1", number="001", tasks=(0,))

    # Rules for labels and names of Jobs: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-label-names
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", batch.name)


@pytest.mark.parametrize("name", ["", "-x", "x-", "A", "a_b", "a,b", "a b", "a\n", "x" * 51, "é"])
def test_a_batch_name_that_an_engine_does_not_support_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="is not a valid name of a batch"):
        replace(batch_in(Path("/x"), "{task}"), name=name)


@pytest.mark.parametrize("command", [(), ("",), ("-c", "x"), ("x", "a\x00b")])
def test_an_invalid_command_is_refused(command: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="is not a valid command"):
        replace(batch_in(Path("/x"), "{task}"), command=command)


def test_text_that_is_not_unicode_is_refused_by_kubernetes() -> None:
    with pytest.raises(RefusedError, match="not valid UTF-8"):
        manifests(batch_in(Path("/x"), os.fsdecode(b"\xff")), KubernetesOptions(image="x"), None)


@pytest.mark.parametrize("selector", ["zone", "zone=a,pool", "=a"])
def test_a_node_selector_without_a_label_is_refused(selector: str) -> None:
    with pytest.raises(InputError, match="node-selector"):
        manifests(batch_in(Path("/x"), "{task}"), KubernetesOptions(image="x", node_selector=selector), None)


def test_hostile_words_and_folders_work_on_every_executor(executor: Executor, tmp_path: Path) -> None:
    folder = tmp_path / "a b'c\"d $(id) `id` %j {task}\n#SBATCH --hold ü" / "-engine"
    batch = batch_in(folder, *HOSTILE, "{task}")

    handle = executor.submit(batch)
    statuses = wait_until_final(executor, batch, handle)

    assert [s.state for s in statuses.values()] == ["done"], executor.output(batch, handle, 7)
    assert json.loads(executor.output(batch, handle, 7)) == [*HOSTILE, "7"]


@pytest.mark.usefixtures("slurm")
def test_slurm_refuses_an_option_that_contains_other_options(tmp_path: Path) -> None:
    executor = SlurmExecutor(SlurmOptions(partition="pi --hold\n#SBATCH --job-name=other"))

    with pytest.raises(RefusedError, match="partition"):
        executor.submit(batch_in(tmp_path / "x", "{task}"))


def test_a_folder_with_a_backslash_is_refused_for_slurm(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="backslash"):
        SlurmExecutor().arguments(batch_in(tmp_path / "a\\b", "{task}"))


def test_a_home_with_a_colon_is_refused_for_containers() -> None:
    executor = SlurmExecutor(SlurmOptions(container_image="image"))

    with pytest.raises(InputError, match="colon or a comma"):
        executor.script(batch_in(Path("/shared/a:b/x"), "{task}"))


def test_a_container_on_slurm_sees_the_home_and_the_inputs() -> None:
    executor = SlurmExecutor(SlurmOptions(container_image="image", container_mounts="/data:/data"))
    batch = replace(batch_in(Path("/shared/x"), "{task}"), inputs=(Path("/shared/project.zip"),))

    mounts = "--container-mounts=/shared:/shared,/shared/project.zip:/shared/project.zip,/data:/data"
    assert mounts in executor.script(batch)
