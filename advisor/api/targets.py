"""Recommend a stack for each target of a project, each with a lock of its own or several in one lock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from advisor.api.locked_stack import SolvedStack
from advisor.api.session import AdviceResult, AdviceSession
from advisor.domain.progress import activity
from advisor.domain.time_limit import TimeLimit
from advisor.domain.words import quoted
from advisor.locks.registry import default_format, format_to_write
from advisor.locks.settings_table import locked_settings
from advisor.resolve.explanation.prices import Price, agreement_price
from advisor.resolve.explanation.recommended_settings import values_to_set
from advisor.resolve.recommendation.agreement import Agreement, agree, share_versions
from advisor.resolve.recommendation.solved_targets import SolvedTargets
from knowledge.domain.errors import AdvisorError, InputError
from knowledge.domain.shared_files import write_all


@dataclass(frozen=True, kw_only=True)
class TargetResults:
    """The advice for several targets.

    Attributes:
        advice: The advice by the name of the target.
        agreement: The versions that the targets have in common; ``None`` if each has its own best stack.
        prices: What each target loses by the agreement.
    """

    advice: Mapping[str, AdviceResult]
    agreement: Agreement | None = None
    prices: Mapping[str, Price] = field(default_factory=dict)


def advise_targets(sessions: Sequence[AdviceSession], *, agrees: bool = False, dry_run: bool = False) -> TargetResults:
    """Recommend a stack for each target, and write the locks when all of them are known.

    Targets with the same lock share versions where possible, and all targets do if they are to agree; see
    :mod:`advisor.resolve.recommendation.agreement`.

    Raises:
        InputError: If targets cannot share a lock, a lock cannot be written, or one target is to agree with others.
        AdvisorError: If there is no stack for a target; the message names the target.
    """
    if agrees and len(sessions) < 2:
        raise InputError("`--targets all` needs several targets", hint="define them with `[tool.advisor.targets.NAME]`")
    owners = _owners(sessions)
    recommend_all(sessions, reads_sizes=not agrees)
    agreement, prices = _agree(sessions) if agrees else (None, {})
    texts: dict[Path, str] = {}
    for path, sharing in owners.items():
        if len(sharing) > 1:
            _share_versions(sharing)
        if not dry_run:
            texts |= {path: _shared_lock(path, sharing)} if len(sharing) > 1 else sharing[0].lock_texts([path])
    write_all(texts)
    advice = {
        session.context.name: session.result(outputs=[] if dry_run else [session.context.default_lock])
        for session in sessions
    }
    return TargetResults(advice=advice, agreement=agreement, prices=prices)


def recommend_all(sessions: Sequence[AdviceSession], *, reads_sizes: bool) -> None:
    """Recommend a stack for each target; targets that differ in the machine only share what they have in common.

    Raises:
        AdvisorError: If there is no stack for a target; the message names the target.
    """
    for session, error in recommend_each(sessions, reads_sizes=reads_sizes):
        with _named(session):
            if error is not None:
                raise error


def recommend_each(
    sessions: Sequence[AdviceSession], *, reads_sizes: bool
) -> Iterator[tuple[AdviceSession, AdvisorError | None]]:
    """Recommend a stack for each target, and yield it with the error if there is no stack; see `recommend_all`."""
    others = SolvedTargets(sessions[0].context.allowed)
    for session in sessions:
        session.reads_sizes, session.others = reads_sizes, others
        try:
            session.recommend()
            others.add(session.solved())
            yield session, None
        except AdvisorError as error:
            yield session, error


def _agree(sessions: Sequence[AdviceSession]) -> tuple[Agreement, dict[str, Price]]:
    """Recommend stacks with common versions for all targets; return these, and what each target loses by them."""
    own = {session.context.name: session.solved() for session in sessions}
    with activity("looking for versions that all targets can have"):
        agreement = agree(own, limit=TimeLimit(sessions[0].context.options.time_limit))
    prices: dict[str, Price] = {}
    for session in sessions:
        name = session.context.name
        session.replace_request(agreement.requests[name])
        session.reads_sizes = True
        with _named(session):
            prices[name] = agreement_price(name, session.solved(), own[name])
    return agreement, prices


@contextmanager
def _named(session: AdviceSession) -> Iterator[None]:
    """Add the name of a target to errors."""
    try:
        yield
    except AdvisorError as error:
        error.message = f"target `{session.context.name}`: {error.message}"
        raise


def _owners(sessions: Sequence[AdviceSession]) -> dict[Path, list[AdviceSession]]:
    """Return the targets of each lock."""
    owners: dict[Path, list[AdviceSession]] = {}
    for session in sessions:
        owners.setdefault(session.context.default_lock, []).append(session)
    for path, sharing in owners.items():
        lock_format = format_to_write(path)
        if len(sharing) < 2:
            continue
        names = quoted([session.context.name for session in sharing])
        try:
            markers = lock_format.target_markers([session.context.target for session in sharing])
        except InputError as error:
            error.message = f"the targets {names} have the same lock `{path}`: {error.message}"
            raise
        if markers is None:
            raise InputError(
                f"the targets {names} have the same lock `{path}`, which is no `{default_format().name}`",
                hint="give each a `lock` of its own, or name one `--target`",
            )
    return owners


def _share_versions(sessions: Sequence[AdviceSession]) -> None:
    """Recommend stacks with common versions for targets with one lock."""
    solved = {session.context.name: session.solved() for session in sessions}
    with activity("looking for versions that the targets can share"):
        requests = share_versions(solved, limit=TimeLimit(sessions[0].context.options.time_limit))
    for session in sessions:
        session.replace_request(requests[session.context.name])


def _shared_lock(path: Path, sessions: Sequence[AdviceSession]) -> str:
    stacks = []
    for session in sessions:
        settings = locked_settings(values_to_set(session.settings())) or None
        with activity("reading hashes and sizes"):
            stacks.append(SolvedStack.of(session.solved(), session.inputs.client).to_lock(settings))
    return format_to_write(path).write(path, stacks)
