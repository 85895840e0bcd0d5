"""Where a package comes from if it does not come from an index (PEP 440, PEP 610)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from knowledge.domain.errors import without_secrets

VCS = ("git", "hg", "svn", "bzr")
"""Version control systems of addresses such as `git+https://...`."""

_ARCHIVES = (".whl", ".zip", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_SCP = re.compile(r"(?P<user>[\w.-]+@)?(?P<host>[\w.-]+):(?P<path>[^/\\:][^:]*)")
"""An address of `git` without a scheme: `git@github.com:owner/name.git`."""
_OTHER_HASHES = frozenset({"md5", "sha1", "sha224", "sha384", "sha512", "blake2b"})
_may_read_environment = ContextVar("may_read_environment", default=True)


@contextmanager
def without_variables() -> Iterator[None]:
    """Leave variables (`${NAME}`) in addresses as they are: only the user's own files may read the environment."""
    token = _may_read_environment.set(False)
    try:
        yield
    finally:
        _may_read_environment.reset(token)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class DirectReference:
    """A package that comes from a repository, an archive or a directory.

    Attributes:
        kind: ``vcs``, ``archive`` (a wheel or sdist), or ``directory``.
        url: Address of the repository or archive, without fragment and revision; of a directory or a file of this
            machine, its absolute path.
        vcs: Version control system of a repository.
        revision: Requested branch, tag or commit of a repository; empty for the default branch.
        commit: Commit that the revision is; empty if it is not known yet.
        subdirectory: Directory of the project in the repository or archive.
        editable: Whether a directory or repository is installed so that changes apply immediately.
        sha256: Required SHA-256 of an archive; empty if none is required.
    """

    kind: Literal["vcs", "archive", "directory"]
    url: str
    vcs: str = ""
    revision: str = ""
    commit: str = ""
    subdirectory: str = ""
    editable: bool = False
    sha256: str = ""

    @property
    def address(self) -> str:
        """The address as in a requirement: ``git+https://...@commit#subdirectory=...``."""
        fragment = f"#subdirectory={self.subdirectory}" if self.subdirectory else ""
        if self.kind == "vcs":
            revision = self.commit or self.revision
            return f"{self.vcs}+{self.url}{f'@{revision}' if revision else ''}{fragment}"
        url = Path(self.url).as_uri() if Path(self.url).is_absolute() else self.url
        return f"{url}{fragment}"

    @property
    def printable(self) -> str:
        """The address for messages: without passwords."""
        return without_secrets(self.address)

    @property
    def filename(self) -> str:
        """Name of the file of an archive; of the directory or repository otherwise."""
        name = unquote(PurePosixPath(urlsplit(self.url).path).name) if "://" in self.url else Path(self.url).name
        return name.removesuffix(".git") if self.kind == "vcs" else name

    @property
    def is_exact(self) -> bool:
        """Whether it names one content: a commit of a repository, or an archive or directory as it is."""
        return self.kind != "vcs" or _COMMIT.fullmatch(self.commit or self.revision) is not None

    @property
    def is_local(self) -> bool:
        """Whether it is a directory or a file of this machine."""
        return self.kind == "directory" or (self.kind == "archive" and "://" not in self.url)

    @property
    def guessed_name(self) -> str:
        """A name for the package if none is written: the name of the file, the directory or the repository."""
        if self.filename.endswith(".whl"):
            name = self.filename.partition("-")[0]
        elif self.kind == "archive":
            name = re.split(r"-\d|\.", self.filename, maxsplit=1)[0]
        else:
            name = PurePosixPath(self.subdirectory).name or self.filename
        return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._") or "unnamed"

    def is_same_source(self, other: DirectReference) -> bool:
        """Whether two references are of the same repository, archive or directory; revisions are not compared."""

        def parts(reference: DirectReference) -> tuple[str, ...]:
            url = re.sub(r"//[^/@]*@", "//", reference.url).rstrip("/").removesuffix(".git")
            return reference.kind, reference.vcs, url, reference.subdirectory

        return parts(self) == parts(other)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedReference:
    """A direct reference as it was written.

    Attributes:
        reference: The reference.
        name: Name of the package in the fragment (``#egg=name``); empty if it is not written.
        extras: Extras in the fragment or behind a path.
    """

    reference: DirectReference
    name: str = ""
    extras: frozenset[str] = frozenset()


def is_direct_reference(text: str) -> bool:
    """Whether a line names an address or a path instead of a package: it has a scheme or starts like a path."""
    return (
        "://" in text.partition(" ")[0]
        or text.startswith((".", "/", "~", "file:"))
        or text.partition("#")[0].split("[")[0].lower().endswith(_ARCHIVES)
        or bool(re.match(r"[A-Za-z]:[\\/]", text))
    )


def parse_direct_reference(text: str, folder: Path, *, editable: bool = False) -> ParsedReference:
    """Parse an address or a path.

    Args:
        text: The address or path, such as ``git+https://host/name.git@v1#egg=name`` or ``./name[extra]``.
        folder: Folder that a relative path starts at.
        editable: Whether the package is installed so that changes apply immediately.

    Raises:
        ValueError: If it is neither; the message contains the reason.
    """
    text = _expanded(text.strip(), folder) if _may_read_environment.get() else text.strip()
    scheme, separator, _ = text.partition("://")
    vcs, plus, transport = scheme.partition("+")
    if separator and plus:
        if vcs not in VCS:
            raise ValueError(f"`{vcs}` is not a version control system that is supported")
        return _parse_vcs(vcs, f"{transport}{text[len(scheme) :]}", editable=editable)
    if separator and scheme in ("http", "https"):
        return _parse_archive(text)
    if separator and scheme != "file":
        raise ValueError(f"`{scheme}` is not a scheme that is supported")
    if text.startswith("git+") and (match := _SCP.match(text.removeprefix("git+"))):
        return _parse_vcs("git", f"ssh://{match['user'] or ''}{match['host']}/{match['path']}", editable=editable)
    return _parse_path(text, folder, editable=editable)


def _expanded(text: str, folder: Path) -> str:
    """Return an address with its variables (`${NAME}`) replaced by their values, as pip does."""
    variables = {"PROJECT_ROOT": folder.absolute().as_posix(), **os.environ}
    for name in _VARIABLE.findall(text):
        if name not in variables:
            raise ValueError(f"the variable `{name}` is not set")
    return _VARIABLE.sub(lambda match: variables[match[1]], text)


def _parse_vcs(vcs: str, url: str, *, editable: bool) -> ParsedReference:
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.fragment))
    path, _, revision = parts.path.rpartition("@") if "@" in parts.path else (parts.path, "", "")
    name, extras = _split_extras(options.get("egg", ""))
    reference = DirectReference(
        kind="vcs",
        vcs=vcs,
        url=urlunsplit((parts.scheme, parts.netloc, path, parts.query, "")),
        revision=unquote(revision),
        subdirectory=_inside(options.get("subdirectory", "")),
        editable=editable,
    )
    return ParsedReference(reference=reference, name=name, extras=extras)


def _parse_archive(url: str) -> ParsedReference:
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.fragment))
    name, extras = _split_extras(options.get("egg", ""))
    reference = DirectReference(
        kind="archive",
        url=urlunsplit((*parts[:4], "")),
        subdirectory=_inside(options.get("subdirectory", "")),
        sha256=_required_hash(options),
    )
    return ParsedReference(reference=reference, name=name, extras=extras)


def _required_hash(options: Mapping[str, str]) -> str:
    """Return the SHA-256 in the fragment of an address; empty if it has no hash."""
    if others := sorted(_OTHER_HASHES & options.keys()):
        raise ValueError(f"its hash `{others[0]}` cannot be checked, only `sha256` can")
    return options.get("sha256", "").lower()


def _parse_path(text: str, folder: Path, *, editable: bool) -> ParsedReference:
    if text.startswith("file:"):
        parts = urlsplit(text)
        written, fragment = unquote(parts.path), parts.fragment
        extras: frozenset[str] = frozenset()
    else:
        written, _, fragment = text.partition("#")
        written, extras = _split_extras(written)
    options = dict(parse_qsl(fragment))
    name, more = _split_extras(options.get("egg", ""))
    # `..` is removed, so that a directory has one path; links are kept. An unknown home directory stays `~`.
    path = Path(os.path.normpath((folder / os.path.expanduser(written)).absolute()))
    reference = DirectReference(
        kind="archive" if path.name.lower().endswith(_ARCHIVES) else "directory",
        url=str(path),
        subdirectory=_inside(options.get("subdirectory", "")),
        editable=editable,
        sha256=_required_hash(options),
    )
    return ParsedReference(reference=reference, name=name, extras=extras | more)


def _split_extras(text: str) -> tuple[str, frozenset[str]]:
    """Return a text without the extras in brackets at its end, and these extras."""
    match = re.fullmatch(r"(.*?)\s*\[([^\[\]]*)\]", text)
    if match is None:
        return text, frozenset()
    return match[1], frozenset(extra.strip() for extra in match[2].split(",") if extra.strip())


def _inside(subdirectory: str) -> str:
    """Return a relative path inside a directory."""
    path = PurePosixPath(subdirectory)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"the subdirectory `{subdirectory}` is outside of its repository")
    return subdirectory.strip("/")
