"""`advisor pi plan` and `advisor pi campaign`: a matrix of stacks, settings and indicators."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.api.context import make_client, open_writable_store
from advisor.api.measurement import choose_device
from advisor.cli.campaign_monitor import (
    Following,
    HomeOption,
    campaigns_folder,
    coordinated,
    engine_options,
    follow,
    observations,
)
from advisor.cli.console import duration, say
from advisor.cli.measure import BudgetOption, ResultGroup, disk_budget, write_output
from advisor.cli.option_groups import IndexUrlOptions, expand_options
from advisor.cli.options import HardwareOption, KnowledgeOption
from advisor.domain.words import count
from advisor.user_directories import cache_directory

if TYPE_CHECKING:
    from advisor.campaign.directory import CampaignDirectory, CampaignPlan
    from advisor.campaign.plan import Campaign
    from knowledge.domain.hardware import HardwareProfile
    from pi_runners.matrix_file import Matrix

EngineOption = Annotated[
    list[str] | None,
    typer.Option(
        "--engine", metavar="NAME=VALUE", help="Option of the executor, such as `partition=gpu` (repeatable)."
    ),
]
AttemptsOption = Annotated[
    int, typer.Option("--attempts", min=1, help="Give up on a task after this many attempts without a new result.")
]


@dataclass(frozen=True, kw_only=True)
class MatrixGroup:
    """Options of what a campaign measures."""

    matrix: Annotated[Path, typer.Argument(metavar="MATRIX", help="Matrix file (TOML).")]
    most: Annotated[
        int, typer.Option("--max-runs", min=1, help="Maximum number of indicator runs per round of the matrix.")
    ] = 20000
    python: Annotated[
        str | None,
        typer.Option(
            "--python",
            help="Interpreter if the matrix names none: a path, or a version for other machines.",
            show_default="the running one",
        ),
    ] = None
    repetition: Annotated[
        int,
        typer.Option("--repetition", min=1, help="Number of the repetition: a new number measures everything again."),
    ] = 1
    hardware: HardwareOption = None


@dataclass(frozen=True, kw_only=True)
class ExecutorGroup:
    """Options of where a campaign runs."""

    executor: Annotated[
        str, typer.Option("--executor", "-e", metavar="local|slurm|kubernetes", help="Engine that runs the tasks.")
    ] = "local"
    engine: EngineOption = None
    attempts: AttemptsOption = 3
    detach: Annotated[
        bool, typer.Option("--detach", help="Submit and return; `advisor pi collect` fetches the observations.")
    ] = False
    render: Annotated[
        Path | None,
        typer.Option("--render", metavar="DIR", help="Write Kubernetes manifests to DIR, and submit nothing."),
    ] = None
    home: HomeOption = None


@expand_options
def plan(group: MatrixGroup, index_urls: IndexUrlOptions, knowledge: KnowledgeOption = None) -> None:
    """Print what a matrix expands to, which combinations are dropped and why, and the cost. Nothing is installed."""
    from advisor.campaign.plan import estimate, run_seconds_by_label
    from pi_runners.matrix_file import read_matrix

    client = make_client(index_urls.indexes(), Path.cwd())
    matrix = read_matrix(group.matrix)
    planned = _plan(matrix, group, index_urls, _hardware(group), python=group.python or sys.executable)
    with open_writable_store(knowledge) as store:
        history = run_seconds_by_label(store.observations())
    total = 0.0
    for block in planned.blocks:
        e = estimate(block, client, history)
        total += e.seconds
        size = f"{count(len(block.arms), 'arm')} x {count(block.rounds, 'round')} = {e.processes} processes"
        space = f"download at most {e.download_bytes / 1e9:.2f} GB, disk {e.disk_bytes / 1e9:.2f} GB"
        typer.echo(f"block `{block.name}`: {size}, {count(e.runs, 'run')}; {space}, {duration(e.seconds)}")
        for arm in block.arms:
            mark = " (reference)" if arm.reference else ""
            typer.echo(f"  {arm.number:3} {arm.label}{mark}: {count(len(arm.indicators), 'run')}")
    for dropped in planned.dropped:
        typer.echo(f"dropped {dropped.label}: {dropped.reason}")
    typer.echo(f"in total {duration(total)}; {len(planned.dropped)} combinations dropped")


@expand_options
def campaign(
    group: MatrixGroup,
    executor: ExecutorGroup,
    results: ResultGroup,
    index_urls: IndexUrlOptions,
    keep_environments: Annotated[
        bool, typer.Option("--keep-environments/--remove-environments", help="Keep environments when it is complete.")
    ] = False,
    budget: BudgetOption = None,
) -> None:
    """Measure what a matrix expands to: here, on Slurm, or on Kubernetes.

    After an interruption the same command continues. A task is one round of one block on one machine. A task whose
    machine is lost is tried again; a stack that crashes, hangs or cannot be installed is an observation.
    """
    from advisor.campaign.directory import CampaignDirectory, CampaignPlan
    from advisor.campaign.engines import open_engine
    from advisor.campaign.plan import campaign_name, check_disk, estimate
    from pi_runners.matrix_file import read_matrix

    matrix, hardware = read_matrix(group.matrix), _hardware(group)
    local = executor.executor == "local"
    # An image has an interpreter of its own.
    here = f"{sys.version_info.major}.{sys.version_info.minor}" if executor.executor == "kubernetes" else sys.executable
    python = group.python or here
    name = campaign_name(matrix, hardware=hardware, python=python, repetition=group.repetition)
    home = CampaignDirectory(executor.home or campaigns_folder(results.knowledge) / name)
    environments = cache_directory(index_urls.cache_dir) / "environments"
    options = engine_options(executor.engine)
    if local:
        options = {"environments": str(environments), **options}
    if home.exists:
        agreed = _stored_plan(home, name)
        say(f"campaign `{name}` continues: {home.path}")
    else:
        # Wrong options are reported before anything is resolved.
        open_engine(executor.executor, options, home, CampaignPlan(name=name, blocks=()))
        planned = _plan(matrix, group, index_urls, hardware, python=python, elsewhere=not local)
        for dropped in planned.dropped:
            say(f"dropped {dropped.label}: {dropped.reason}")
        if local:
            client = make_client(index_urls.indexes(), Path.cwd())
            costs = [estimate(block, client, {}) for block in planned.blocks]
            check_disk(costs, environments, budget_bytes=disk_budget(budget))
        agreed = CampaignPlan(name=name, blocks=planned.blocks)
    if executor.render is not None:
        _render(executor.render, executor.executor, options, home, agreed)
        return
    engine = open_engine(executor.executor, options, home, agreed)
    if not home.exists:
        # A campaign that cannot be submitted from here leaves no directory.
        engine.executor.check()
    following = Following(
        home=home,
        plan=agreed,
        knowledge=results.knowledge,
        prometheus=results.prometheus,
        attempts=executor.attempts,
        engine=engine,
    )
    with coordinated(following) as coordinator:
        coordinator.resume(retry=False)
        for block in agreed.blocks:
            say(f"block `{block.name}`: {count(len(block.arms), 'arm')}, {count(block.rounds, 'round')}")
        complete = follow(following, coordinator, detach=executor.detach)
    if complete and local and not keep_environments:
        _remove_environments(agreed, environments)
    if results.output is not None:
        write_output(results.output, observations(following))
    if complete or executor.detach:
        return
    raise typer.Exit(4)


def _render(
    folder: Path, executor: str, options: dict[str, str], home: CampaignDirectory, planned: CampaignPlan
) -> None:
    """Write the manifests of a whole campaign, with a kustomization that names them."""
    import json
    import shlex

    import yaml

    from advisor.campaign.engines import open_engine
    from advisor.campaign.submission_log import batch_of
    from knowledge.domain.atomic_file import write_atomically
    from knowledge.domain.errors import InputError
    from pi_runners.executors.kubernetes import KubernetesExecutor

    home.create(planned)
    engine = open_engine(executor, options, home, planned)
    if not isinstance(engine.executor, KubernetesExecutor):
        raise InputError("only Kubernetes has manifests", hint="add `--executor kubernetes`")
    batch = batch_of(home, planned, engine, number="001", tasks=tuple(range(len(planned.tasks))))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"`{folder}` cannot be written: {error.strerror}") from None
    names = []
    for manifest in engine.executor.manifests(batch):
        names.append(f"{manifest['kind'].lower()}.yaml")
        # Through JSON, so that YAML repeats equal values instead of writing references.
        plain = json.loads(json.dumps(manifest))
        write_atomically(folder / names[-1], yaml.safe_dump(plain, sort_keys=False, width=10_000))
    kustomization = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": names}
    write_atomically(folder / "kustomization.yaml", yaml.safe_dump(kustomization, sort_keys=False))
    typer.echo(f"kubectl apply -k {shlex.quote(str(folder))}")
    typer.echo(f"kubectl logs --tail=-1 -l app.kubernetes.io/instance={batch.name} > output.log")
    typer.echo(f"advisor pi collect {shlex.quote(planned.name)} --logs output.log")


def _stored_plan(home: CampaignDirectory, name: str) -> CampaignPlan:
    """Return the plan of a directory, which must be of this campaign.

    Raises:
        InputError: If it is of another one.
    """
    from knowledge.domain.errors import InputError

    stored = home.plan()
    if stored.name != name:
        raise InputError(
            f"`{home.path}` holds the campaign `{stored.name}`, not `{name}`",
            hint="the matrix, the interpreter or the hardware has changed: name another `--home`",
        )
    return stored


def _remove_environments(planned: CampaignPlan, environments: Path) -> None:
    from pi_runners.environment import remove_environment

    for block in planned.blocks:
        for arm in block.arms:
            remove_environment(arm.lock, environments)


def _hardware(group: MatrixGroup) -> HardwareProfile:
    """Return the hardware to plan for: this machine, unless another one is named."""
    from knowledge.hardware.profiles import find_profile

    return find_profile(group.hardware or "detect")


def _plan(
    matrix: Matrix,
    group: MatrixGroup,
    index_urls: IndexUrlOptions,
    hardware: HardwareProfile,
    *,
    python: str,
    elsewhere: bool = False,
) -> Campaign:
    from advisor.campaign.plan import CampaignTarget, plan_campaign

    target = CampaignTarget(
        hardware=hardware,
        device=choose_device(matrix.content.device, hardware),
        python=python,
        is_remote=elsewhere,
    )
    return plan_campaign(
        matrix,
        target,
        client=make_client(index_urls.indexes(), Path.cwd()),
        max_runs=group.most,
        repetition=group.repetition,
        progress=say,
    )
