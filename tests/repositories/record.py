"""Records the metadata of the example repositories' packages from the configured package index.

Usage: python -m tests.repositories.record

Writes `index.json` to the directory of this module: requirements and interpreters of each version of each package.
Requirements of extras are left out, unless an example requires the extra.
"""

from __future__ import annotations

import json
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from advisor.domain.requirement import RootRequirement
from advisor.domain.target import make_target
from advisor.index.cache import DiskCache
from advisor.index.client import IndexClient
from advisor.index.configuration import read_configuration
from advisor.index.metadata.core import CoreMetadata
from advisor.resolve.candidates.index import IndexCandidates
from advisor.resolve.candidates.problem import CandidatePolicy, ResolutionProblem
from advisor.resolve.optimum.baseline import resolve_baseline
from knowledge.domain.hardware import Cpu, HardwareProfile

_CUDA_12, _CUDA_13 = "nvidia-cuda-runtime-cu12==12.5.82", "nvidia-cuda-runtime==13.0.88"
STACKS = [
    ("3.11", ["tensorflow-cpu==2.20.0", "numpy==2.2.6", "pillow==11.3.0", _CUDA_12]),
    ("3.11", ["tensorflow-cpu==2.15.1", "numpy==1.26.4", "pillow==12.0.0", _CUDA_13]),
    ("3.11", ["tensorflow-cpu==2.12.1", "numpy==1.23.5"]),
    ("3.11", ["torch==2.10.0", "safetensors==0.5.3", "numpy==2.2.6"]),
    ("3.11", ["torch==2.15.0", "safetensors==0.6.2", "numpy==2.2.6"]),
    ("3.11", ["torch==2.8.0", "numpy==2.2.6"]),
    ("3.11", ["torch==2.2.2", "numpy==2.0.2"]),
    ("3.12", ["scikit-learn==1.5.2", "xgboost==2.1.4", "numpy==2.2.6", "scipy==1.14.1", "pandas==2.2.3", _CUDA_12]),
    ("3.12", ["scikit-learn==1.5.2", "xgboost==2.1.4", "numpy==1.26.4", "scipy==1.12.0", "pandas==2.3.1", _CUDA_13]),
]
"""Interpreter and requirements of each stack before or after a change in the examples."""

MACHINE = HardwareProfile(name="any", cpu=Cpu(architecture="x86_64", microarchitecture="x86_64_v3"))


def _counts(requirement: Requirement, extras: list[str]) -> bool:
    """Whether a requirement belongs to no extra or to one of the required extras."""
    marker = str(requirement.marker or "")
    return "extra" not in marker or any(f'"{extra}"' in marker for extra in extras)


def main() -> None:
    """Resolve the stacks, newest first where nothing is pinned, and record the selected versions."""
    client = IndexClient(read_configuration(Path.cwd()), cache=DiskCache(Path("/tmp/advisor-record")))
    recorded: dict[str, dict[str, dict[str, object]]] = {}
    metadata_by_version: dict[tuple[str, str], CoreMetadata] = {}
    for python, requirements in STACKS:
        roots = tuple(RootRequirement(requirement=Requirement(r), origin=r) for r in requirements)
        target = make_target(python=python, platform="manylinux_2_28_x86_64", hardware=MACHINE)
        problem = ResolutionProblem(roots=roots, target=target, policy=CandidatePolicy())
        for candidate in resolve_baseline(problem, IndexCandidates(client, problem)):
            metadata = client.metadata(candidate.file)
            metadata_by_version[candidate.name, str(candidate.version)] = metadata
    required_extras = {
        (canonicalize_name(r.name), e)
        for metadata in metadata_by_version.values()
        for r in metadata.requires
        for e in r.extras
    }
    for (name, version), metadata in metadata_by_version.items():
        extras = sorted(extra for package, extra in required_extras if package == name and extra in metadata.extras)
        recorded.setdefault(name, {})[version] = {
            "requires": [str(r) for r in metadata.requires if _counts(r, extras)],
            "extras": extras,
            "requires_python": str(metadata.requires_python) if metadata.requires_python else None,
        }
    path = Path(__file__).with_name("index.json")
    path.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")
    print(f"{sum(map(len, recorded.values()))} versions of {len(recorded)} packages")
    client.close()


if __name__ == "__main__":
    main()
