"""Checks of a cache, a knowledge base or a pip configuration in the repository: a change must not supply its own."""

from __future__ import annotations

import os
import re
from pathlib import Path

from advisor.gate.base.commit import read_file_at
from advisor.gate.base.git_objects import submodule_of, tracked_files
from advisor.gate.base.policy import BasePolicy
from advisor.gate.findings import Finding, Place
from knowledge.domain.errors import InputError

_SQLITE = re.compile(r"sqlite(\+\w+)?:///")


def refuse_tracked_cache(directory: Path, cache: Path) -> None:
    """Refuse a cache whose files are part of the repository, since cached results are trusted.

    Raises:
        InputError: If the repository tracks a file of the cache, or the cache is in a submodule.
    """
    _refuse_submodule(directory, cache, f"the cache `{cache}`")
    if files := tracked_files(directory, cache):
        raise InputError(
            f"the cache `{cache}` contains files of the repository, such as `{files[0]}`: a change could replace "
            "cached results of the gate",
            hint="use a cache outside of the checkout (`--cache-dir`), or remove these files from the repository",
        )


def refuse_changed_configuration(name: str, reference: str, directory: Path) -> None:
    """Make sure that a change does not edit pip's configuration, if that is in the repository: it names indexes.

    The base has a name for people, and a reference for git.

    Raises:
        InputError: If the change has it otherwise, or it is in a submodule.
    """
    path = Path(os.environ.get("PIP_CONFIG_FILE") or os.devnull)
    _refuse_submodule(directory, path, f"the configuration of pip `{path}`")
    if not tracked_files(directory, path) or not path.is_file():
        return
    if read_file_at(reference, directory, Path(os.path.relpath(path, directory))) != path.read_bytes():
        raise InputError(
            f"the change has another `{path}` than {name}, and `PIP_CONFIG_FILE` names it: its indexes would count",
            hint="merge it first, or keep pip's configuration outside of the checkout",
        )


def base_knowledge(
    base_policy: BasePolicy, reference: str, directory: Path, address: str | None
) -> tuple[str | None, tuple[Finding, ...]]:
    """Return the address of a base's knowledge base, with findings if the change has another version of it.

    The address of one that is not a file of the repository is returned unchanged; `None` is the user's own.

    Raises:
        InputError: If only the change has it, or it is in a submodule.
    """
    path = Path(_SQLITE.sub("", address or "").partition("?")[0])
    if address is None or "://" in _SQLITE.sub("", address):
        return address, ()
    _refuse_submodule(directory, path, f"the knowledge base `{path}`")
    content = read_file_at(reference, directory, Path(os.path.relpath(path, directory)))
    if content is None:
        # SQLite writes the content of a log file into the database that it belongs to.
        for part in (path, Path(f"{path}-wal"), Path(f"{path}-journal")):
            if tracked_files(directory, part):
                raise InputError(
                    f"the knowledge base `{part}` is part of the change, but not of {base_policy.name}",
                    hint="merge it first, or name another one with `--knowledge`",
                )
        return address, ()
    copy = base_policy.directory / ".knowledge" / path.name
    copy.parent.mkdir(exist_ok=True)
    copy.write_bytes(content)
    same = path.is_file() and path.read_bytes() == content
    place = Place(path=str(path), line=1)
    change = base_policy.finding(f"`{path}` differs from that of {base_policy.name}", place)
    return f"sqlite:///{copy}", () if same else (change,)


def _refuse_submodule(directory: Path, path: Path, name: str) -> None:
    """Refuse a file of a submodule: a change chooses the submodule's commit and repository."""
    if (submodule := submodule_of(directory, path)) is not None:
        raise InputError(
            f"{name} is in the submodule `{submodule}` of the repository: a change could replace it",
            hint="use one outside of the checkout",
        )
