"""Locks of a project that no target checks."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from advisor.gate.findings import Finding, Place
from advisor.gate.policy import GatePolicy
from advisor.locks.registry import lock_formats

CODES = ("ADV022",)


def find_unchecked_locks(
    directory: Path, policy: GatePolicy, *, checked: Collection[Path], base: Path | None
) -> Iterator[Finding]:
    """Yield a note for each lock that no target checks; with a base, only for locks that the change adds or edits.

    Args:
        directory: The project's directory.
        policy: The policy.
        checked: The locks that are checked, and the files with the project's requirements.
        base: The project's directory in the base; `None` without a base.
    """
    for path in (path for lock_format in lock_formats() for path in lock_format.all(directory)):
        if path in checked:
            continue
        before = base / path.name if base is not None else None
        if before is None or not before.is_file() or before.read_bytes() != path.read_bytes():
            yield Finding(
                code="ADV022",
                level=policy.level_of("ADV022"),
                message=f"the lock `{path.name}` is not checked: set it as the `lock` of a target, or use `--current`",
                place=Place(path=str(path), line=1),
                subject=path.name,
            )
