"""Lock files of a stack: their texts, and the files of packages that they pin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.utils import NormalizedName

    from advisor.index.client import IndexClient
    from advisor.index.pages.page import DistributionFile
    from advisor.locks.setting_value import AppliedSetting
    from advisor.resolve.candidates.problem import Candidate
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
        settings: Run-time settings; none if they are not recommended at all.

    Raises:
        InputError: If a path has no known format, or its directory does not exist.
    """
    from advisor.api.lock_writers.formats import check_lock_path, lock_text

    if not paths:
        return {}
    for path in paths:
        check_lock_path(path)
    stack: Sequence[Candidate] = optimum.stack
    files = pinned_files(stack, client)
    texts = {
        path: lock_text(
            path, stack, files, problem=request.problem, source=request.source, client=client, settings=settings or None
        )
        for path in paths
    }
    if settings is not None:
        from advisor.locks.settings_table import settings_texts

        texts |= settings_texts(paths, settings)
    return texts


def pinned_files(stack: Sequence[Candidate], client: IndexClient) -> dict[NormalizedName, DistributionFile]:
    """Return the file of each package with size and hash; a repository or a directory has none."""
    with_files = [c for c in stack if c.direct is None or c.direct.kind == "archive"]
    client.prefetch_sizes(c.file for c in with_files)
    return {c.name: client.pinned(c.file) for c in with_files}


def write_locks(texts: Mapping[Path, str]) -> None:
    """Write locks, of which all were rendered before the first is written.

    Raises:
        InputError: If a file cannot be written.
    """
    from knowledge.domain.shared_files import write_atomically

    for path, text in texts.items():
        write_atomically(path, text)
