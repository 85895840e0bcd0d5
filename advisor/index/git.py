"""Reads repositories with the program `git`: the commit of a branch or tag, and the files of a commit."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from advisor.index.access import IndexAccess, OfflineError
from advisor.index.configuration import without_credentials
from advisor.index.limits import GIT_SECONDS
from knowledge.domain.errors import UnavailableError

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_OPTIONS = (
    # A repository may not run programs here: no hooks, no file system monitor, no transport that is a command.
    *("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "protocol.ext.allow=never"),
    *("-c", "advice.detachedHead=false", "-c", "init.defaultBranch=main"),
)

_REPOSITORY_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY")


class GitError(UnavailableError):
    """Raised when a repository cannot be read."""

    code = "git"


class GitRepositories:
    """Reads repositories. Safe for many threads; the commit of a revision is looked up once.

    A `GitError` is raised if a repository cannot be read or has no such revision, and an `OfflineError` if it is needed
    while offline.
    """

    def __init__(self, access: IndexAccess) -> None:
        self._access = access
        self._commits: dict[tuple[str, str], str] = {}

    def commit_of(self, url: str, revision: str) -> str:
        """Return the commit of a branch, tag or commit of a repository; an empty revision is the default branch."""
        if _COMMIT.fullmatch(revision):
            return revision
        if (url, revision) not in self._commits:
            self._commits[url, revision] = self._look_up(url, revision)
        return self._commits[url, revision]

    def check_out(self, url: str, commit: str, folder: Path, *, history: bool = False) -> None:
        """Write the files of a commit to a folder.

        Args:
            url: Address of the repository.
            commit: The commit.
            folder: A folder that does not exist.
            history: Whether the history and the tags are fetched, too, from which some build backends take the version,
                and the submodules.
        """
        if self._access.offline:
            raise self._missing(url)
        _git(["init", "--quiet", str(folder)], url)
        within = ["-C", str(folder)]
        try:
            if history:
                raise GitError("the whole history is needed")
            _git([*within, "fetch", "--quiet", "--depth=1", "--no-tags", "--", url, commit], url)
        except GitError:
            # Some servers give single commits only by branch or tag.
            every = ["+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*"]
            _git([*within, "fetch", "--quiet", "--force", "--", url, *every], url)
        _git([*within, "checkout", "--quiet", "--detach", commit], url)
        if history and (folder / ".gitmodules").is_file():
            # A build may need the files of submodules, as pip and uv give it.
            _git([*within, "submodule", "--quiet", "update", "--init", "--recursive", "--depth=1"], url)

    def _look_up(self, url: str, revision: str) -> str:
        key = f"{url} {revision}"
        if self._access.offline:
            stored = self._access.cache.read("commits", key)
            if stored is None:
                raise self._missing(url)
            return stored.decode()
        lines = (line.partition("\t") for line in _git(["ls-remote", "--", url], url).splitlines())
        commits = {name: commit for commit, _, name in lines}
        names = [f"refs/tags/{revision}^{{}}", f"refs/tags/{revision}", f"refs/heads/{revision}", revision]
        commit = commits.get("HEAD") if not revision else next((commits[n] for n in names if n in commits), None)
        commit = commit or _commit_of_prefix(url, revision)
        self._access.cache.write("commits", key, commit.encode())
        return commit

    def _missing(self, url: str) -> OfflineError:
        return self._access.missing(f"the repository `{without_credentials(url)}`")


def _commit_of_prefix(url: str, revision: str) -> str:
    """Return the commit whose hash starts with some digits; it is an error if there is none, or several."""
    if re.fullmatch(r"[0-9a-f]{4,}", revision):
        with tempfile.TemporaryDirectory(prefix="seshat-git-", ignore_cleanup_errors=True) as folder:
            _git(["clone", "--quiet", "--bare", "--", url, folder], url)
            try:
                return _git(["-C", folder, "rev-parse", "--verify", f"{revision}^{{commit}}"], url).strip()
            except GitError:
                pass
    raise GitError(
        f"the repository `{without_credentials(url)}` has no branch, tag or commit `{revision or 'HEAD'}`",
        hint="`git ls-remote` lists them",
    )


def _git(arguments: Sequence[str], url: str) -> str:
    """Run git without questions to the user, and return its output; an error contains the last line of it."""
    # A git hook sets variables that name its repository.
    environment = {name: value for name, value in os.environ.items() if name not in _REPOSITORY_VARIABLES}
    environment |= {"GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "1", "LC_ALL": "C"}
    if not {"GIT_SSH", "GIT_SSH_COMMAND"} & set(os.environ):
        environment["GIT_SSH_COMMAND"] = "ssh -oBatchMode=yes"
    where = f"the repository `{without_credentials(url)}` cannot be read"
    try:
        process = subprocess.run(
            ["git", *_OPTIONS, *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            encoding="utf-8",
            errors="replace",
            env=environment,
            timeout=GIT_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise GitError(f"{where}: the program `git` is not installed", hint="install git") from None
    except subprocess.TimeoutExpired:
        raise GitError(f"{where}: git took more than {GIT_SECONDS} seconds") from None
    if process.returncode:
        lines = [line for line in process.stderr.splitlines() if line.strip()]
        reason = " ".join((lines[-1] if lines else f"exit status {process.returncode}").split())
        raise GitError(f"{where}: {reason.replace(url, without_credentials(url))[:200]}")
    return process.stdout
