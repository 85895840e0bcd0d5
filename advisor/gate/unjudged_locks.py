"""Locks of a project that no target judges."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from advisor.gate.findings import Finding, Place
from advisor.gate.policy import GatePolicy
from advisor.project.current import LOCKS, PINNED, is_pinned
from knowledge.domain.errors import InputError


def unjudged_locks(
    directory: Path, policy: GatePolicy, *, known: Collection[Path], base: Path | None
) -> Iterator[Finding]:
    """Yield a note on each lock of a project that nothing judges; with a base, where the change has it otherwise.

    Args:
        directory: The project's directory.
        policy: What is let pass.
        known: The locks that are judged, and the files that say what the project requires.
        base: The project's directory as the base has it; none without one.
    """
    found = [*(directory / name for name in LOCKS), *sorted(directory.glob("pylock.*.toml")), directory / PINNED]
    for path in found:
        if path in known or not path.is_file() or (path.name == PINNED and not _may_be_lock(path)):
            continue
        before = base / path.name if base is not None else None
        if before is None or not before.is_file() or before.read_bytes() != path.read_bytes():
            yield Finding(
                code="ADV022",
                level=policy.level_of("ADV022"),
                message=f"the lock `{path.name}` is not judged: name it as the `lock` of a target, or with `--current`",
                place=Place(path=str(path), line=1),
                subject=path.name,
            )


def _may_be_lock(path: Path) -> bool:
    try:
        return is_pinned(path)
    except InputError:
        return True
