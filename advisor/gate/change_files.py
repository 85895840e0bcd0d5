"""Files beside the project that a change could bring: a cache, a knowledge base, a configuration of pip.

They must not be the change's own.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from advisor.gate.base import content_at
from advisor.gate.base_policy import BasePolicy
from advisor.gate.findings import Finding, Place
from advisor.gate.git_objects import tracked_files
from knowledge.domain.errors import InputError

_SQLITE = re.compile(r"sqlite(\+\w+)?:///")


def refuse_tracked_cache(directory: Path, cache: Path) -> None:
    """Make sure that no file of a cache is part of the repository: what it holds is believed.

    Args:
        directory: The project's directory.
        cache: The cache's directory.

    Raises:
        InputError: If a file of it is.
    """
    if files := tracked_files(directory, cache):
        raise InputError(
            f"the cache `{cache}` holds files of the repository, such as `{files[0]}`: a change could decide what the "
            "gate remembers",
            hint="keep the cache outside of the checkout (`--cache-dir`), or remove these files from the repository",
        )


def refuse_changed_configuration(name: str, reference: str, directory: Path) -> None:
    """Make sure that pip's configuration, where it is a file of the repository, is that of the base: it names indexes.

    Args:
        name: The base, for people.
        reference: What names the base for git.
        directory: The project's directory.

    Raises:
        InputError: If the change has it otherwise.
    """
    path = Path(os.environ.get("PIP_CONFIG_FILE") or os.devnull)
    if not tracked_files(directory, path) or not path.is_file():
        return
    if content_at(reference, directory, Path(os.path.relpath(path, directory))) != path.read_bytes():
        raise InputError(
            f"the change has another `{path}` than {name}, and `PIP_CONFIG_FILE` names it: its indexes would count",
            hint="merge it first, or keep pip's configuration outside of the checkout",
        )


@dataclass(frozen=True, kw_only=True)
class BaseKnowledge:
    """The knowledge base that a change is judged by.

    Attributes:
        address: Its address; none for the user's own.
        changes: What the change has otherwise.
    """

    address: str | None
    changes: tuple[Finding, ...] = ()


def base_knowledge(ruling: BasePolicy, reference: str, directory: Path, address: str | None) -> BaseKnowledge:
    """Return a knowledge base as a base has it; one that is no file of the repository as it is.

    Args:
        ruling: The policy of the base.
        reference: What names the base for git.
        directory: The project's directory.
        address: Address of the knowledge base; none for the user's own.

    Raises:
        InputError: If only the change has it.
    """
    path = Path(_SQLITE.sub("", address or "").partition("?")[0])
    if address is None or "://" in str(path):
        return BaseKnowledge(address=address)
    content = content_at(reference, directory, Path(os.path.relpath(path, directory)))
    if content is None:
        # What lies in a log beside it, SQLite writes into it.
        for part in (path, Path(f"{path}-wal"), Path(f"{path}-journal")):
            if tracked_files(directory, part):
                raise InputError(
                    f"the knowledge base `{part}` is part of the change, and {ruling.name} does not have it",
                    hint="merge it first, or name another one with `--knowledge`",
                )
        return BaseKnowledge(address=address)
    copy = ruling.directory / ".knowledge" / path.name
    copy.parent.mkdir(exist_ok=True)
    copy.write_bytes(content)
    same = path.is_file() and path.read_bytes() == content
    changes = () if same else (ruling.finding(f"the change has another `{path}` than {ruling.name}", _at(path)),)
    return BaseKnowledge(address=f"sqlite:///{copy}", changes=changes)


def _at(path: Path) -> Place:
    return Place(path=str(path), line=1)
