"""`advisor pi plan` and `advisor pi campaign`: a matrix of stacks, settings and indicators."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.campaign_monitor import (
    Following,
    HomeOption,
    campaigns_folder,
    coordinated,
    engine_options,
    follow,
    observations,
)
from advisor.cli.console import say
from advisor.cli.measure import (
    BudgetOption,
    OutputOption,
    PrometheusOption,
    choose_device,
    disk_budget,
    write_output,
)
from advisor.cli.options import (
    CacheOption,
    ExtraIndexUrlOption,
    FindLinksOption,
    HardwareOption,
    IndexUrlOption,
    KnowledgeOption,
    OfflineOption,
    open_client,
    open_store,
)
from advisor.cli.user_directories import cache_directory

if TYPE_CHECKING:
    from advisor.campaign.directory import CampaignPlan, Home
    from advisor.campaign.plan import Campaign
    from advisor.index.client import IndexClient
    from knowledge.domain.hardware import HardwareProfile
    from pi_runners.matrix_file import Matrix

MatrixArgument = Annotated[Path, typer.Argument(metavar="MATRIX", help="Matrix file (TOML).")]
MostOption = Annotated[
    int, typer.Option("--max-runs", min=1, help="Most indicator runs a round that the matrix may expand to.")
]
PythonOption = Annotated[
    str,
    typer.Option(
        "--python", help="Interpreter where the matrix names none: path or version.", show_default="the running one"
    ),
]
AgainOption = Annotated[
    int, typer.Option("--repetition", min=1, help="Which repetition: another number takes the campaign anew.")
]
ExecutorOption = Annotated[
    str, typer.Option("--executor", "-e", metavar="local|slurm|kubernetes", help="What runs the tasks.")
]
EngineOption = Annotated[
    list[str] | None,
    typer.Option(
        "--engine", metavar="NAME=VALUE", help="Option of the executor, such as `partition=gpu` (repeatable)."
    ),
]


def plan(
    matrix: MatrixArgument,
    most: MostOption = 20000,
    python: PythonOption = sys.executable,
    repetition: AgainOption = 1,
    hardware: HardwareOption = None,
    knowledge: KnowledgeOption = None,
    index_url: IndexUrlOption = None,
    extra_index_url: ExtraIndexUrlOption = None,
    find_links: FindLinksOption = None,
    cache_dir: CacheOption = None,
    offline: OfflineOption = False,
) -> None:
    """Print what a matrix expands to, what is dropped and why, and about what it takes. Nothing is installed."""
    from advisor.campaign.plan import estimate, history_of
    from pi_runners.matrix_file import read_matrix

    client = _client(index_url, extra_index_url, find_links, cache_dir, offline)
    machine = _target(hardware)
    planned = _plan(read_matrix(matrix), client, machine, most=most, python=python, repetition=repetition)
    with open_store(knowledge) as store:
        history = history_of(store.observations())
    total = 0.0
    for block in planned.blocks:
        e = estimate(block, client, history)
        total += e.seconds
        typer.echo(
            f"block `{block.name}`: {len(block.arms)} arms x {block.rounds} rounds = {e.processes} processes, "
            f"{e.runs} runs; download at most {e.download_bytes / 1e9:.2f} GB, disk {e.disk_bytes / 1e9:.2f} GB, "
            f"about {e.seconds / 60:.0f} min"
        )
        for arm in block.arms:
            mark = " (reference)" if arm.reference else ""
            typer.echo(f"  {arm.number:3} {arm.label}{mark}: {len(arm.indicators)} runs")
    for dropped in planned.dropped:
        typer.echo(f"dropped {dropped.label}: {dropped.reason}")
    typer.echo(f"in all about {total / 3600:.1f} h; {len(planned.dropped)} combinations dropped")


def campaign(
    matrix: MatrixArgument,
    executor: ExecutorOption = "local",
    engine: EngineOption = None,
    most: MostOption = 20000,
    python: Annotated[
        str | None,
        typer.Option(
            "--python", help="Interpreter where the matrix names none: a path, or a version for other machines."
        ),
    ] = None,
    repetition: AgainOption = 1,
    hardware: HardwareOption = None,
    attempts: Annotated[
        int, typer.Option("--attempts", min=1, help="Give up on a task after this many attempts without a new result.")
    ] = 3,
    detach: Annotated[
        bool, typer.Option("--detach", help="Submit and return; `advisor pi collect` brings the observations home.")
    ] = False,
    render: Annotated[
        Path | None,
        typer.Option("--render", metavar="DIR", help="Write Kubernetes manifests there, and submit nothing."),
    ] = None,
    home: HomeOption = None,
    keep_environments: Annotated[
        bool, typer.Option("--keep-environments/--remove-environments", help="Keep environments when it is done.")
    ] = False,
    budget: BudgetOption = None,
    prometheus: PrometheusOption = None,
    output: OutputOption = None,
    knowledge: KnowledgeOption = None,
    index_url: IndexUrlOption = None,
    extra_index_url: ExtraIndexUrlOption = None,
    find_links: FindLinksOption = None,
    cache_dir: CacheOption = None,
    offline: OfflineOption = False,
) -> None:
    """Measure what a matrix expands to: here, on Slurm, or on Kubernetes.

    After an interruption the same command goes on. A task is one round of one block on one machine. A task whose
    machine is lost is tried again; a stack that crashes, hangs or cannot be installed is an observation.
    """
    from advisor.campaign.directory import CampaignPlan, Home
    from advisor.campaign.engines import open_engine
    from advisor.campaign.plan import campaign_name, check_disk, estimate
    from pi_runners.matrix_file import read_matrix

    content, machine = read_matrix(matrix), _target(hardware)
    # An image has an interpreter of its own.
    here = sys.executable if executor != "kubernetes" else f"{sys.version_info.major}.{sys.version_info.minor}"
    python = python or here
    name = campaign_name(content, hardware=machine, python=python, repetition=repetition)
    place = Home(home or campaigns_folder(knowledge) / name)
    environments = cache_directory(cache_dir) / "environments"
    given = engine_options(engine)
    if executor == "local":
        given = {"environments": str(environments), **given}
    if place.exists:
        agreed = _same(place, name)
        say(f"campaign `{name}` goes on: {place.folder}")
    else:
        # A mistake in the engine's options is told before the index is asked.
        open_engine(executor, given, place, CampaignPlan(name=name, blocks=()))
        client = _client(index_url, extra_index_url, find_links, cache_dir, offline)
        planned = _plan(
            content,
            client,
            machine,
            most=most,
            python=python,
            repetition=repetition,
            elsewhere=executor != "local",
        )
        for dropped in planned.dropped:
            say(f"dropped {dropped.label}: {dropped.reason}")
        if executor == "local":
            estimates = [estimate(b, client, {}) for b in planned.blocks]
            check_disk(estimates, environments, budget_bytes=disk_budget(budget))
        agreed = CampaignPlan(name=name, blocks=planned.blocks)
    if render is not None:
        _render(render, executor, given, place, agreed)
        return
    following = Following(
        home=place,
        plan=agreed,
        knowledge=knowledge,
        prometheus=prometheus,
        attempts=attempts,
        engine=open_engine(executor, given, place, agreed),
    )
    with coordinated(following) as coordinator:
        coordinator.resume(retry=False)
        for block in agreed.blocks:
            say(f"block `{block.name}`: {len(block.arms)} arms, {block.rounds} rounds")
        complete = follow(following, coordinator, detach=detach)
    if complete and executor == "local" and not keep_environments:
        _remove_environments(agreed, environments)
    if output is not None:
        write_output(output, observations(following))
    if complete or detach:
        return
    raise typer.Exit(4)


def _render(folder: Path, executor: str, given: dict[str, str], place: Home, planned: CampaignPlan) -> None:
    """Write the manifests of a whole campaign, with a kustomization that names them."""
    import json
    import shlex

    import yaml

    from advisor.campaign.engines import open_engine
    from advisor.campaign.submission_log import batch_of
    from knowledge.domain.atomic_file import write_atomically
    from knowledge.domain.errors import InputError
    from pi_runners.executors.kubernetes import KubernetesExecutor

    place.create(planned)
    engine = open_engine(executor, given, place, planned)
    if not isinstance(engine.executor, KubernetesExecutor):
        raise InputError("only Kubernetes has manifests", hint="add `--executor kubernetes`")
    batch = batch_of(place, planned, engine, number="001", tasks=tuple(range(len(planned.tasks))))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"`{folder}` cannot be written: {error.strerror}") from None
    names = []
    for manifest in engine.executor.manifests(batch):
        names.append(f"{manifest['kind'].lower()}.yaml")
        # As JSON and back: what is said twice is written twice, not as a reference.
        plain = json.loads(json.dumps(manifest))
        write_atomically(folder / names[-1], yaml.safe_dump(plain, sort_keys=False, width=10_000))
    kustomization = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": names}
    write_atomically(folder / "kustomization.yaml", yaml.safe_dump(kustomization, sort_keys=False))
    typer.echo(f"kubectl apply -k {shlex.quote(str(folder))}")
    typer.echo(f"kubectl logs --tail=-1 -l app.kubernetes.io/instance={batch.name} > output.log")
    typer.echo(f"advisor pi collect {shlex.quote(planned.name)} --logs output.log")


def _same(place: Home, name: str) -> CampaignPlan:
    """Return the plan of a folder, which must be this campaign's.

    Raises:
        InputError: If it is another one's.
    """
    from knowledge.domain.errors import InputError

    held = place.plan()
    if held.name != name:
        raise InputError(
            f"`{place.folder}` holds the campaign `{held.name}`, not `{name}`",
            hint="the matrix, the interpreter or the hardware has changed: name another `--home`",
        )
    return held


def _remove_environments(planned: CampaignPlan, environments: Path) -> None:
    from pi_runners.environment import remove_environment

    for block in planned.blocks:
        for arm in block.arms:
            remove_environment(arm.lock, environments)


def _target(hardware: str | None) -> HardwareProfile:
    """Return the hardware to plan for: this machine, unless another one is named."""
    from knowledge.hardware.profiles import find_profile

    return find_profile(hardware or "detect")


def _plan(
    content: Matrix,
    client: IndexClient,
    hardware: HardwareProfile,
    *,
    most: int,
    python: str,
    repetition: int,
    elsewhere: bool = False,
) -> Campaign:
    from advisor.campaign.plan import plan_campaign

    return plan_campaign(
        content,
        client=client,
        hardware=hardware,
        device=choose_device(content.content.device, hardware),
        python=python,
        most=most,
        repetition=repetition,
        elsewhere=elsewhere,
        progress=say,
    )


def _client(
    index_url: str | None,
    extra_index_url: Sequence[str] | None,
    find_links: Sequence[str] | None,
    cache_dir: Path | None,
    offline: bool,
) -> IndexClient:
    return open_client(
        Path.cwd(),
        index_url=index_url,
        extra_index_url=extra_index_url,
        find_links=find_links,
        cache_dir=cache_dir,
        offline=offline,
    )
