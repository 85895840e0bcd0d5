"""`advisor pi status`, `cancel`, `retry`, `collect`, `forget` and `work`: commands for existing campaigns."""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.campaign import AttemptsOption, EngineOption
from advisor.cli.campaign_monitor import Following, HomeOption, campaigns_folder, coordinated, engine_options, follow
from advisor.cli.console import redraw, say, warn
from advisor.cli.knowledge_sync import TokenOption, warn_of_quarantine
from advisor.cli.option_groups import expand_options
from advisor.cli.options import FormatOption, KnowledgeOption, check_format
from advisor.domain.words import count

if TYPE_CHECKING:
    from advisor.campaign.coordinator import Coordinator
    from advisor.campaign.directory import CampaignDirectory
    from knowledge.domain.errors import UnavailableError
    from knowledge.service.client import KnowledgeService

CampaignArgument = Annotated[
    str | None,
    typer.Argument(metavar="[CAMPAIGN]", help="Campaign name or a unique prefix; optional if there is only one."),
]
_WATCH_SECONDS = 2.0
_PATIENCE_SECONDS = 60.0


def status(
    campaign: CampaignArgument = None,
    home: HomeOption = None,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat until the campaign is complete or stops.")] = False,
    format: FormatOption = "text",
    knowledge: KnowledgeOption = None,
) -> None:
    """Print the progress of campaigns: queued, running, done and failed, per stack and per node."""
    import json

    from advisor.report.campaign import campaign_status, text

    check_format(format)
    if campaign is None and home is None:
        _list(knowledge, format)
        return
    place = _find(campaign, home, knowledge)
    while True:
        coordinator = _reader(place)
        coordinator.poll()
        progress = campaign_status(coordinator)
        if format == "json":
            typer.echo(json.dumps(progress.record(), indent=None if watch else 2))
        else:
            show = redraw if watch and sys.stdout.isatty() else typer.echo
            show(text(progress))
        if not watch or progress.state != "running":
            return
        time.sleep(_WATCH_SECONDS)


def _list(knowledge: str | None, format: str) -> None:
    """Print every campaign in one line."""
    import json

    from advisor.campaign.directory import CampaignDirectory
    from advisor.report.campaign import campaign_status

    folder = campaigns_folder(knowledge)
    campaigns = []
    for path in sorted(folder.glob("*/campaign.json")):
        campaigns.append(campaign_status(_reader(CampaignDirectory(path.parent))))
    if format == "json":
        typer.echo(json.dumps({"schema_version": 1, "campaigns": [o.record() for o in campaigns]}, indent=2))
        return
    for o in campaigns:
        measured = o.total["done"] + o.total["failed"]
        typer.echo(f"{o.name}: {o.state}, {measured} of {o.total.total()} measured")
    if not campaigns:
        typer.echo(f"there are no campaigns in `{folder}`")


def cancel(campaign: CampaignArgument = None, home: HomeOption = None, knowledge: KnowledgeOption = None) -> None:
    """Cancel running and waiting tasks; the observations so far are stored."""
    from knowledge.domain.errors import UnavailableError

    place = _find(campaign, home, knowledge)
    following = Following(home=place, plan=place.plan(), knowledge=knowledge)
    (place.path / "cancelled").touch()
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with place.lock_coordinator() as alone:
            mine = alone
        if not mine:
            # The process that coordinates the campaign sees the file, and cancels the tasks.
            time.sleep(0.5)
            continue
        with coordinated(following) as coordinator:
            coordinator.cancel()
            while coordinator.step(None) and coordinator.is_active:
                time.sleep(0.2)
            results = len(place.cells(place.stored))
        typer.echo(f"cancelled; {count(results, 'result')} stored")
        return
    raise UnavailableError(
        f"the process that looks after `{following.plan.name}` does not end it", hint="end that process, then try again"
    )


def retry(
    campaign: CampaignArgument = None,
    failed: Annotated[bool, typer.Option("--failed", help="Also tasks that were given up.")] = False,
    executor: Annotated[
        str | None,
        typer.Option("--executor", "-e", metavar="local|slurm|kubernetes", help="Another engine than before."),
    ] = None,
    engine: EngineOption = None,
    attempts: AttemptsOption = 3,
    home: HomeOption = None,
    knowledge: KnowledgeOption = None,
) -> None:
    """Continue a campaign: submit missing tasks again, with the same options.

    A stack that crashed or could not be installed is an observation, and is not measured again.
    """
    from advisor.campaign.engines import open_engine
    from knowledge.domain.errors import InputError

    place = _find(campaign, home, knowledge)
    agreed = place.plan()
    before = _reader(place).submissions()
    if not before and executor is None:
        raise InputError(f"nothing of `{agreed.name}` was submitted", hint="name an `--executor`")
    name = executor or before[-1].engine
    options = dict(before[-1].options) if before and before[-1].engine == name else {}
    following = Following(
        home=place,
        plan=agreed,
        knowledge=knowledge,
        attempts=attempts,
        engine=open_engine(name, {**options, **_underscored(engine_options(engine))}, place, agreed),
    )
    with coordinated(following) as coordinator:
        coordinator.resume(retry=failed)
        complete = follow(following, coordinator)
    if not complete:
        raise typer.Exit(4)


def _underscored(options: dict[str, str]) -> dict[str, str]:
    return {name.replace("-", "_"): value for name, value in options.items()}


def collect(
    campaign: CampaignArgument = None,
    logs: Annotated[
        list[Path] | None, typer.Option("--logs", metavar="FILE", help="Output of tasks that was saved (repeatable).")
    ] = None,
    home: HomeOption = None,
    knowledge: KnowledgeOption = None,
) -> None:
    """Store the observations so far; nothing is submitted."""
    from advisor.report.campaign import campaign_status, text

    place = _find(campaign, home, knowledge)
    following = Following(home=place, plan=place.plan(), knowledge=knowledge)
    with coordinated(following) as coordinator:
        before = len(place.cells(place.stored))
        for path in logs or ():
            coordinator.read_output(_bytes(path).decode("utf-8", "replace"))
        coordinator.step(None)
        gained = len(place.cells(place.stored)) - before
        progress = campaign_status(coordinator)
    typer.echo(text(progress))
    waiting = len(place.cells(place.spool))
    typer.echo(f"{count(gained, 'result')} collected{f', {waiting} not yet stored' if waiting else ''}")
    if waiting:
        raise typer.Exit(4)


def forget(
    campaign: CampaignArgument = None,
    home: HomeOption = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also if tasks run, or results were not stored in the knowledge base.")
    ] = False,
    knowledge: KnowledgeOption = None,
) -> None:
    """Delete the directory of a campaign; its observations stay in the knowledge base."""
    import shutil

    from knowledge.domain.errors import InputError

    place = _find(campaign, home, knowledge)
    plan = place.plan()
    with place.lock_coordinator() as alone:
        if not alone:
            raise InputError(
                f"another process coordinates campaign `{plan.name}`", hint="cancel it with `advisor pi cancel`"
            )
        if not force and place.cells(place.spool):
            raise InputError(
                f"campaign `{plan.name}` has results that are not stored",
                hint="store them with `advisor pi collect`, or add `--force`",
            )
        if not force and _reader(place).is_active:
            raise InputError(
                f"campaign `{plan.name}` has tasks that run or wait",
                hint="cancel them with `advisor pi cancel`, or add `--force`",
            )
        shutil.rmtree(place.path)
    typer.echo(f"forgot campaign `{plan.name}`: deleted `{place.path}`")


@dataclass(frozen=True, kw_only=True)
class WorkGroup:
    """Options of a worker."""

    environments: Annotated[
        Path | None, typer.Option("--environments", help="Directory of environments; by default a temporary one.")
    ] = None
    keep_environments: Annotated[
        bool, typer.Option("--keep-environments/--remove-environments", help="Keep environments for the next task.")
    ] = False
    memory_limit: Annotated[
        float | None, typer.Option("--memory-limit", metavar="GB", help="Maximum memory of one process.")
    ] = None
    push: Annotated[
        str | None, typer.Option("--push", metavar="URL", help="Also deliver to the service of a knowledge base.")
    ] = None
    token: TokenOption = ""
    print_cells: Annotated[
        bool, typer.Option("--print", help="Also print the observations, for engines that keep only the output.")
    ] = False


@expand_options
def work(
    folder: Annotated[Path, typer.Argument(metavar="HOME", help="Directory of the campaign, or one of this worker.")],
    task: Annotated[int, typer.Argument(metavar="TASK", min=0, help="Number of the task.")],
    options: WorkGroup,
    plan: Annotated[Path | None, typer.Option("--plan", help="File of the plan, if it is not in HOME.")] = None,
) -> None:
    """Measure one task of a campaign on this machine: what batch jobs run."""
    from advisor.campaign.directory import CampaignDirectory, Cell, read_plan
    from advisor.campaign.worker import WorkerSettings, cell_line, run_task
    from knowledge.domain.errors import InputError
    from knowledge.hardware.detect import detect
    from knowledge.service.client import KnowledgeService

    home = CampaignDirectory(folder)
    agreed = home.plan() if plan is None else read_plan(_bytes(plan), where=str(plan))
    if task >= len(agreed.tasks):
        raise InputError(f"campaign `{agreed.name}` has no task {task}", hint=f"it has {len(agreed.tasks)}, from 0")
    home.create(agreed)

    service = KnowledgeService(options.push, options.token) if options.push else None
    waiting: list[bytes] = []

    def deliver(cell: Cell, content: bytes) -> None:
        if options.print_cells:
            typer.echo(cell_line(cell, content))
        if service is not None:
            waiting.append(content)
            _push(service, waiting)

    _make(options.environments)
    with tempfile.TemporaryDirectory(
        prefix="seshat-", dir=None if options.keep_environments else options.environments
    ) as own:
        settings = WorkerSettings(
            hardware=detect(),
            environments=options.environments if options.keep_environments and options.environments else Path(own),
            keep_environments=options.keep_environments,
            memory_limit_bytes=None if options.memory_limit is None else options.memory_limit * 1e9,
        )
        observations = run_task(home, agreed, task, settings, deliver=deliver, progress=say)
    say(f"task {task}: {observations} observations")
    if service is not None and (problem := _push(service, waiting)) is not None:
        raise problem


def _push(service: KnowledgeService, waiting: list[bytes]) -> UnavailableError | None:
    """Deliver what waits, oldest first; return why some of it still does."""
    from knowledge.domain.errors import UnavailableError

    while waiting:
        try:
            delivery = service.deliver(waiting[0])
        except UnavailableError as error:
            # Measuring continues: all observations are on the disk and in the output.
            warn(error.message, hint=f"{len(waiting)} deliveries wait")
            return error
        warn_of_quarantine(delivery.quarantined)
        del waiting[0]
    return None


def _make(folder: Path | None) -> None:
    from knowledge.domain.errors import UnavailableError

    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnavailableError(
                f"`{folder}` cannot be created on this node: {error.strerror}",
                hint="name another folder for environments",
            ) from None


def _bytes(path: Path) -> bytes:
    from knowledge.domain.errors import InputError

    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"`{path}` cannot be read: {error.strerror}") from None


class _NoSink:
    """Refuses observations: commands that only read must not write."""

    def add(self, observations: object) -> None:
        raise AssertionError("a command that only reads stored observations")


def _reader(place: CampaignDirectory) -> Coordinator:
    """Return a coordinator that only reads."""
    from advisor.campaign.coordinator import Coordinator

    return Coordinator(place, place.plan(), sink=_NoSink(), warn=lambda message, hint: warn(message, hint=hint))


def _find(campaign: str | None, home: Path | None, knowledge: str | None) -> CampaignDirectory:
    """Return the folder of a campaign.

    Raises:
        InputError: If there is none of that name, or several.
    """
    from advisor.campaign.directory import CampaignDirectory
    from knowledge.domain.errors import InputError

    if home is not None:
        return CampaignDirectory(home)
    folder = campaigns_folder(knowledge)
    names = [path.parent.name for path in sorted(folder.glob("*/campaign.json"))]
    matches = [name for name in names if campaign in (None, name)] or [n for n in names if n.startswith(campaign or "")]
    if len(matches) == 1:
        return CampaignDirectory(folder / matches[0])
    if not matches:
        raise InputError(
            f"there is no campaign `{campaign}` in `{folder}`" if campaign else f"there is no campaign in `{folder}`",
            hint="`advisor pi status` lists them; `--home` names the folder of another one",
        )
    raise InputError(
        f"`{campaign}` matches {', '.join(matches)}" if campaign else f"there are {len(matches)} campaigns",
        hint=f"name one, such as `{matches[0]}`",
    )
