"""Lock files of a stack: their texts, and writing all of them or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.api.context import TargetContext
from advisor.index.client import IndexClient
from advisor.locks.registry import format_to_write
from knowledge.domain.errors import InputError
from knowledge.domain.shared_files import write_atomically

if TYPE_CHECKING:
    from advisor.locks.setting_value import AppliedSetting
    from advisor.resolve.optimum.request import ResolutionRequest
    from advisor.resolve.optimum.result import Optimum


def lock_texts(
    paths: Sequence[Path],
    optimum: Optimum,
    request: ResolutionRequest,
    client: IndexClient,
    settings: Sequence[AppliedSetting] | None = None,
) -> dict[Path, str]:
    """Return the text of a lock of a stack for each path, and of the settings files next to locks that need them.

    Args:
        paths: The locks.
        optimum: The stack.
        request: What was resolved.
        client: The indexes.
        settings: Run-time settings; ``None`` if they are not recommended at all.

    Raises:
        InputError: If a path has no known format, or its directory does not exist.
    """
    from advisor.api.locked_stack import stack_to_lock
    from advisor.locks.settings_table import settings_texts

    formats = {path: format_to_write(path) for path in paths}
    if not formats:
        return {}
    stack = stack_to_lock(optimum.stack, request.problem, request.source, client, settings=settings or None)
    texts = {path: lock_format.write(path, [stack]) for path, lock_format in formats.items()}
    return texts if settings is None else texts | settings_texts(paths, settings)


def write_locks(texts: Mapping[Path, str]) -> None:
    """Write locks that were all rendered before the first is written.

    Raises:
        InputError: If a file cannot be written.
    """
    for path, text in texts.items():
        write_atomically(path, text)


def check_only_target(context: TargetContext, paths: Sequence[Path]) -> None:
    """Check that no other target has one of the locks that are written for a target.

    Raises:
        InputError: If writing one would remove another target from it.
    """
    tables = context.project.settings.get("targets", {})
    for name, table in tables.items():
        lock = context.files.directory / str(table["lock"]) if "lock" in table else None
        if name != context.name and lock is not None and lock in paths:
            raise InputError(
                f"`{lock}` is the lock of target `{name}`, too, and would lose it",
                hint="run `advisor advise` without `--target`, or name another file with `--output`",
            )
