"""Requirements files that are locks: each line has an exact version, or an address with a commit.

They are written with hashes, for `pip install --require-hashes` and `uv pip install`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import InvalidVersion, Version

from advisor.domain.direct_reference import DirectReference
from advisor.domain.requirement import RootRequirement
from advisor.domain.target import Target
from advisor.locks.interface import LockFormat, PackageToLock, StackToLock, relative_address
from advisor.locks.lock import Lock, LockedSource, LockedVersion, read_text
from advisor.project.formats.requirements import PINNED, decoded, exact_versions, is_pinned, read_requirements
from advisor.project.text_file import UnreadableFileError
from knowledge.domain.documents import lines_of
from knowledge.domain.errors import InputError

_FIRST_LINE = re.compile(r"# by advisor, for Python (\d+\.\d+) ")
_PIN = re.compile(
    r"^(?P<name>[ \t]*[A-Za-z0-9][\w.-]*)(?P<rest>[ \t]*(?:\[[^\]\n]*\])?[ \t]*={2,3}[ \t]*)[^\s;#\\]+", re.MULTILINE
)


class _Requirements(LockFormat):
    name = PINNED
    order = 6
    patterns = ("*.txt",)
    written_names = (PINNED, "NAME.txt")
    suffix = ".txt"
    depends_on_files = False

    def current(self, directory: Path) -> Path | None:
        """Return `requirements.txt` if each line has an exact version."""
        path = directory / PINNED
        return path if path.is_file() and is_pinned(path) else None

    def all(self, directory: Path) -> Iterable[Path]:
        """Return `requirements.txt` if it is a lock or cannot be read."""
        path = directory / PINNED
        try:
            return [path] if path.is_file() and is_pinned(path) else []
        except InputError:
            return [path]

    def python(self, text: str) -> str | None:
        """Return the interpreter in the first line."""
        match = _FIRST_LINE.match(text)
        return match[1] if match else None

    def install_commands(self, path: str) -> Sequence[str]:
        """Return the commands of pip and uv."""
        return (f"pip install --no-deps -r {shlex.quote(path)}", f"uv pip sync {shlex.quote(path)}")

    def read(self, path: Path, target: Target) -> Lock:
        """Return the packages of a requirements file for a target.

        Raises:
            InputError: If the file does not exist.
            UnreadableFileError: If it cannot be read, or a line names neither an exact version nor an exact address.
        """
        text = read_text(path, decode=decoded) if path.is_file() else ""
        project = read_requirements(path)
        packages: dict[NormalizedName, LockedVersion] = {}
        entries: list[tuple[NormalizedName, LockedVersion]] = []
        sources: list[LockedSource] = []
        for root in project.roots:
            if root.direct is not None:
                sources.append(_source_of(root, root.direct, path))
                continue
            locked = _locked_version(root, path)
            entries.append((root.name, locked))
            if target.satisfies(root.requirement.marker):
                packages[root.name] = locked
        addresses = (project.index_url, *project.extra_index_urls, *project.find_links)
        urls = [url for url in addresses if url]
        lines = list(enumerate(lines_of(text), 1))
        places = {word: next((n for n, line in lines if word in line), 1) for word in (*urls, *project.trusted_hosts)}
        return Lock(
            path=path,
            packages=packages,
            entries=tuple(entries),
            sources=tuple(sources),
            indexes=tuple((url, places[url]) for url in dict.fromkeys(urls)),
            trusted_hosts=tuple((host, places[host]) for host in dict.fromkeys(project.trusted_hosts)),
        )

    def write(self, path: Path, stacks: Sequence[StackToLock]) -> str:
        """Return the text of a requirements file for one target, whose first line names the target.

        An index other than the default one is written only if a package comes from it. A further build is written with
        its address: an index of builds also has other packages, and uv would take these from there, too. As pip-compile
        does, a comment says what requires each package. If a package comes from a repository or a directory, which have
        no hash, no hash is written: pip accepts either a hash of every package or none.
        """
        (stack,) = stacks
        target, configuration = stack.target, stack.configuration
        files = {package.name: package.file for package in stack.packages if package.file is not None}
        builds = {name: f for name, f in files.items() if configuration.has_builds_of(name, f.index)}
        used = {file.index for name, file in files.items() if name not in builds}
        lines = [f"# by advisor, for Python {target.python_minor} on {target.platform} ({target.hardware.name})"]
        if reasons := stack.details.no_deps_reasons():
            lines.append("# install it with `pip install --no-deps -r FILE` or `uv pip sync FILE`:")
            lines += [f"#   {reason}" for reason in reasons]
        if configuration.default in used:
            lines.append(f"--index-url {configuration.default}")
        further = dict.fromkeys((*configuration.extra, *configuration.supplemental, *configuration.bindings.values()))
        lines += [f"--extra-index-url {url}" for url in further if url in used and url != configuration.default]
        lines += [f"--find-links {url}" for url in configuration.find_links if url in used]
        unhashed = [package.name for package in stack.packages if package.file is None]
        if unhashed:
            lines.append(f"# without hashes: pip cannot check one of {', '.join(unhashed)}")
        requirers = stack.details.requirers(path.parent)
        for package in stack.packages:
            build = builds.get(package.name)
            requirement = f"{package.name} @ {build.url}" if build else _requirement(package, path.parent)
            lines.append(requirement + ("" if unhashed else " \\"))
            if not unhashed:
                lines.append(f"    --hash=sha256:{package.sha256}")
            lines += _via_comment(requirers.get(package.name, ()))
        return "\n".join(lines) + "\n"


def with_pins(text: str, versions: Mapping[str, Version]) -> str:
    """Return the text of a requirements file without hashes with new pinned versions, by normalised name."""

    def pinned(match: re.Match[str]) -> str:
        version = versions.get(canonicalize_name(match["name"].strip()))
        return match[0] if version is None else f"{match['name']}{match['rest']}{version}"

    return _PIN.sub(pinned, text)


def _locked_version(root: RootRequirement, path: Path) -> LockedVersion:
    """Return the version that a line pins."""
    pins = exact_versions(root)
    if len(pins) != 1:
        raise _unpinned(root, path, f"`{root.requirement}` is not an exact version, so this file is not a lock")
    try:
        version = Version(pins[0])
    except InvalidVersion:
        raise _unpinned(root, path, f"`{pins[0]}` is not a valid version (PEP 440)") from None
    return LockedVersion(
        version=version,
        line=root.line,
        path=root.path,
        hashes=frozenset(h.lower() for h in root.hashes),
        other_hashes=root.other_hashes,
    )


def _source_of(root: RootRequirement, reference: DirectReference, path: Path) -> LockedSource:
    if not reference.is_exact:
        raise _unpinned(root, path, f"`{reference.printable}` names no commit, so this file is not a lock")
    return LockedSource(
        name=root.name,
        address=reference.url if reference.is_local else reference.address,
        content=" ".join((reference.address, *sorted(root.hashes))),
        directory=reference.kind == "directory",
        line=root.line,
        url=reference.url,
        commit=reference.commit or reference.revision,
        subdirectory=reference.subdirectory,
        hashes=root.hashes,
    )


def _unpinned(root: RootRequirement, path: Path, message: str) -> UnreadableFileError:
    return UnreadableFileError(
        f"{root.origin}: {message}",
        path=Path(root.path or path),
        line=root.line,
        package=root.name,
        hint="pin every line with `==`, as `pip freeze` does, or choose another file with `--current`",
    )


def _requirement(package: PackageToLock, folder: Path) -> str:
    """Return the line of a package; pip has no relative path with a name, and takes paths from where it runs."""
    reference = package.direct
    if reference is None:
        return f"{package.name}=={package.version}"
    address = relative_address(reference, folder)
    if reference.editable and reference.is_local:
        return f"-e {address}"
    return address if reference.is_local else f"{package.name} @ {address}"


def _via_comment(requirers: Sequence[str]) -> list[str]:
    """Return the lines of a `# via` comment: one line for one requirer, else one line each."""
    if len(requirers) < 2:
        return [f"    # via {requirer}" for requirer in requirers]
    return ["    # via", *(f"    #   {requirer}" for requirer in requirers)]


FORMAT = _Requirements()
