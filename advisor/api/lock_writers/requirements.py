"""Writes a requirements file with hashes, for `pip install --require-hashes` and `uv pip install`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.utils import NormalizedName

from advisor.api.lock_writers.direct import address_from
from advisor.domain.target import Target
from advisor.index.configuration import IndexConfiguration
from advisor.index.pages.page import DistributionFile
from advisor.resolve.candidates.problem import Candidate


def write_requirements(
    stack: Sequence[Candidate],
    files: Mapping[NormalizedName, DistributionFile],
    target: Target,
    configuration: IndexConfiguration,
    requirers: Mapping[NormalizedName, Sequence[str]],
    *,
    folder: Path = Path(),
    no_deps_reasons: Sequence[str] = (),
) -> str:
    """Return the text of a requirements file for one target.

    An index other than the default one is written only if a package comes from it. A further build is written with its
    address: an index of builds also has other packages, and uv would take these from there, too. As pip-compile does,
    a comment says what requires each package. If a package comes from a repository or a directory, which have no hash,
    no hash is written: pip accepts either a hash of every package or none.

    Args:
        stack: The packages, sorted by name.
        files: By package, the file with its hash filled in; none for repositories and directories.
        target: The target of the lock; the first line contains it.
        configuration: The indexes.
        requirers: By package, the files and packages that require it, each on one line.
        folder: Folder of the file, which paths are relative to.
        no_deps_reasons: Why pip installs the file only with `--no-deps`, one line each; empty if it does not need that.
    """
    builds = {name: f for name, f in files.items() if configuration.has_builds_of(name, f.index)}
    used = {file.index for name, file in files.items() if name not in builds}
    lines = [f"# by advisor, for Python {target.python_minor} on {target.platform} ({target.hardware.name})"]
    if no_deps_reasons:
        lines.append("# install it with `pip install --no-deps -r FILE` or `uv pip sync FILE`:")
        lines += [f"#   {reason}" for reason in no_deps_reasons]
    if configuration.default in used:
        lines.append(f"--index-url {configuration.default}")
    further = dict.fromkeys((*configuration.extra, *configuration.supplemental, *configuration.bindings.values()))
    lines += [f"--extra-index-url {url}" for url in further if url in used and url != configuration.default]
    lines += [f"--find-links {url}" for url in configuration.find_links if url in used]
    unhashed = [candidate.name for candidate in stack if candidate.name not in files]
    if unhashed:
        lines.append(f"# without hashes: pip cannot check one of {', '.join(unhashed)}")
    for candidate in stack:
        build = builds.get(candidate.name)
        requirement = f"{candidate.name} @ {build.url}" if build else _requirement(candidate, folder)
        lines.append(requirement + ("" if unhashed else " \\"))
        if not unhashed:
            lines.append(f"    --hash=sha256:{files[candidate.name].sha256}")
        lines += _via_comment(requirers.get(candidate.name, ()))
    return "\n".join(lines) + "\n"


def _requirement(candidate: Candidate, folder: Path) -> str:
    """Return the line of a package; pip has no relative path with a name, and takes paths from where it runs."""
    reference = candidate.direct
    if reference is None:
        return f"{candidate.name}=={candidate.version}"
    address = address_from(reference, folder)
    if reference.editable and reference.is_local:
        return f"-e {address}"
    return address if reference.is_local else f"{candidate.name} @ {address}"


def _via_comment(requirers: Sequence[str]) -> list[str]:
    """Return the lines of a `# via` comment: one line for one requirer, else one line each."""
    if len(requirers) < 2:
        return [f"    # via {requirer}" for requirer in requirers]
    return ["    # via", *(f"    #   {requirer}" for requirer in requirers)]
