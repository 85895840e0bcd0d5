"""Checks of a cache or a knowledge base inside the repository: a change must not supply its own."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from advisor.gate.base import read_file_at
from advisor.gate.base_policy import BasePolicy
from advisor.gate.findings import Finding, Place
from advisor.gate.git_objects import tracked_files
from knowledge.domain.errors import InputError

_SQLITE = re.compile(r"sqlite(\+\w+)?:///")


def refuse_tracked_cache(directory: Path, cache: Path) -> None:
    """Refuse a cache whose files are part of the repository, since cached results are trusted.

    Args:
        directory: The project's directory.
        cache: The cache's directory.

    Raises:
        InputError: If the repository tracks a file of the cache.
    """
    if files := tracked_files(directory, cache):
        raise InputError(
            f"the cache `{cache}` contains files of the repository, such as `{files[0]}`: a change could replace "
            "cached results of the gate",
            hint="use a cache outside of the checkout (`--cache-dir`), or remove these files from the repository",
        )


@dataclass(frozen=True, kw_only=True)
class BaseKnowledge:
    """The knowledge base that a change is checked with.

    Attributes:
        address: Its address; none for the user's own.
        changes: Findings about the change's own version of it, if it differs.
    """

    address: str | None
    changes: tuple[Finding, ...] = ()


def base_knowledge(base_policy: BasePolicy, reference: str, directory: Path, address: str | None) -> BaseKnowledge:
    """Return the knowledge base of a base; one that is not a file of the repository is returned unchanged.

    Args:
        base_policy: The policy of the base.
        reference: Commit, branch or tag of the base.
        directory: The project's directory.
        address: Address of the knowledge base; none for the user's own.

    Raises:
        InputError: If only the change has it.
    """
    path = Path(_SQLITE.sub("", address or "").partition("?")[0])
    if address is None or "://" in str(path):
        return BaseKnowledge(address=address)
    content = read_file_at(reference, directory, Path(os.path.relpath(path, directory)))
    if content is None:
        if tracked_files(directory, path):
            raise InputError(
                f"the knowledge base `{path}` is part of the change, but not of {base_policy.name}",
                hint="merge it first, or name another one with `--knowledge`",
            )
        return BaseKnowledge(address=address)
    copy = base_policy.directory / ".knowledge" / path.name
    copy.parent.mkdir(exist_ok=True)
    copy.write_bytes(content)
    same = path.is_file() and path.read_bytes() == content
    changes = () if same else (base_policy.finding(f"`{path}` differs from that of {base_policy.name}", _at(path)),)
    return BaseKnowledge(address=f"sqlite:///{copy}", changes=changes)


def _at(path: Path) -> Place:
    return Place(path=str(path), line=1)
