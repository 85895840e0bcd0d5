"""Recommend a stack for each target of a project, each with a lock of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from advisor.api.session import AdviceResult, AdviceSession, write_locks
from knowledge.domain.errors import AdvisorError, InputError


def advise_targets(sessions: Sequence[AdviceSession], *, dry_run: bool = False) -> dict[str, AdviceResult]:
    """Recommend a stack for each target, and write the locks when all of them are known.

    Args:
        sessions: The targets.
        dry_run: Whether to write no lock.

    Returns:
        The results by the name of the target.

    Raises:
        InputError: If two targets have the same lock, or a lock cannot be written.
        AdvisorError: If there is no stack for a target; the message names the target.
    """
    locks = {session.context.name: session.context.default_lock for session in sessions}
    _check_locks(locks)
    texts: dict[Path, str] = {}
    for session in sessions:
        try:
            session.recommend()
            if not dry_run:
                texts |= session.lock_texts([locks[session.context.name]])
        except AdvisorError as error:
            error.message = f"target `{session.context.name}`: {error.message}"
            raise
    write_locks(texts)
    return {
        session.context.name: session.result(outputs=[] if dry_run else [locks[session.context.name]])
        for session in sessions
    }


def _check_locks(locks: dict[str, Path]) -> None:
    """Raise an error if a lock has no known format, or two targets have the same one."""
    from advisor.lock.formats import check_lock_path

    owners: dict[Path, str] = {}
    for name, path in locks.items():
        check_lock_path(path)
        if path in owners:
            raise InputError(
                f"the targets `{owners[path]}` and `{name}` have the same lock `{path}`",
                hint="give each a `lock` of its own, or name one `--target`",
            )
        owners[path] = name
