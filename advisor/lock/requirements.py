"""Writes a requirements file with hashes, for `pip install --require-hashes` and `uv pip install`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from packaging.utils import NormalizedName

from advisor.domain.target import Target
from advisor.index.configuration import IndexConfiguration
from advisor.index.page import DistributionFile
from advisor.resolve.problem import Candidate


def write_requirements(
    stack: Sequence[Candidate],
    files: Mapping[NormalizedName, DistributionFile],
    target: Target,
    configuration: IndexConfiguration,
) -> str:
    """Return the text of a requirements file for one target.

    Indexes other than the default one are named only where a package came from them.

    Args:
        stack: The packages, sorted by name.
        files: By package, the file with its hash filled in.
        target: What the lock is for; named in the first line.
        configuration: The indexes.
    """
    used = {file.index for file in files.values()}
    lines = [f"# by advisor, for Python {target.python_minor} on {target.platform} ({target.hardware.name})"]
    if configuration.default in used:
        lines.append(f"--index-url {configuration.default}")
    lines += [f"--extra-index-url {url}" for url in configuration.extra if url in used]
    lines += [f"--find-links {url}" for url in configuration.find_links if url in used]
    for candidate in stack:
        lines.append(f"{candidate.name}=={candidate.version} \\")
        lines.append(f"    --hash=sha256:{files[candidate.name].sha256}")
    return "\n".join(lines) + "\n"
