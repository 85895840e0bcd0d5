"""Software of a described system: the framework with its version or container, and its companions, in all spellings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from functools import cache

from packaging.version import InvalidVersion, Version

from knowledge.domain.frameworks import frameworks
from knowledge.exchange.mlperf.facts import mlperf_facts
from knowledge.exchange.ngc import CONTAINER_INDEX, container_versions

SUBMISSION_INDEX = "submission"
"""Index of packages that a submitter built or took from elsewhere."""
_TEXTS = ("libraries", "other_software_stack", "math_libraries", "ml_libraries")
_CONTENTS = frozenset({"version", "cuda", "cublas", "cudnn", "nccl", "tensorrt", "python"})
"""What is taken from the release notes of a container, if a description does not say it."""
_RELEASE = re.compile(r"(?<![\d.])\d\d\.\d\d(?![\d.])")
_NUMBER = r"\d+(?:\.\d+)+(?:(?:a|b|rc)\d+|[.-]?dev\d*)?(?:\+[a-z0-9.]+)?|20\d\d"
_FOLLOWING = re.compile(rf"(?:[ _-]?version)?[ ,:=_-]*v?(?P<version>{_NUMBER})(?!\w)", re.IGNORECASE)
_LONGEST_NAME = 300
"""Characters of a name, a version, or the field of the framework that are read; the longest has 130."""
_LONGEST_TEXT = 4000
"""Characters of a field of software that are read; the longest has 400."""
_TPU = re.compile(r"tpu|^(?:cloud|research)_v\d", re.IGNORECASE)
_GENERIC = re.compile(rf"^\s*([a-z][a-z0-9 ./_-]*?)(?:[ ,_-]+v?({_NUMBER})(?!\w).*)?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """Software of a system.

    Attributes:
        framework: Distribution name of the framework, or ``unknown``.
        version: Its version in normal form, or empty; the release of the container if no source says which version
            it contains.
        index: :data:`~knowledge.exchange.ngc.CONTAINER_INDEX` or :data:`SUBMISSION_INDEX`.
        container: Release of NVIDIA's container, such as ``24.04``, or empty.
        components: Versions of the other components by name, in normal form.
        python: Version of Python, or empty.
        expanded: What the description does not say, but NVIDIA's release notes of the container, by name.
        unread: What the description says and does not name one version, each with its key.
    """

    framework: str
    version: str
    index: str
    container: str
    components: Mapping[str, str]
    python: str
    expanded: tuple[str, ...]
    unread: tuple[str, ...]


def read_software(left: MutableMapping[str, str], *, name: str, benchmark: str, place: str) -> Software:
    """Read the software of a description, and remove the fields that it was read from.

    Args:
        left: Fields of the description.
        name: The system's name in the tree, which may contain framework and container.
        benchmark: Benchmark that was run: some systems list a framework for each kind.
        place: Source file that wrote the log; may be empty.
    """
    described = left.pop("framework", "")[:_LONGEST_NAME]
    short, name = left.pop("framework_name", "")[:_LONGEST_NAME], name[:_LONGEST_NAME]
    stated, unread = _stated(left)
    for text in (described, *(left.get(key, "")[:_LONGEST_TEXT] for key in _TEXTS)):
        for component, version in _pairs(text):
            _refine(stated, component, version)
    framework, releases = _framework([described, short, name], benchmark, place)
    containers = {r for r in releases if framework in _in_containers() and _RELEASE.fullmatch(r)}
    own = {r for r in releases if r not in containers}
    container = containers.pop() if len(containers) == 1 else ""
    if containers:
        unread.append(f"`framework` is `{described}`: several releases of {framework}")
    if len(own) == 1:
        _refine(stated, framework, own.pop())
    notes = (version for name, version in _pairs(left.get("sw_notes", "")[:_LONGEST_TEXT]) if name == framework)
    version = stated.pop(framework, "") or next(notes, "")
    bare = left.get("other_software_stack", "")[:_LONGEST_NAME]
    if framework == "torch" and not version and re.fullmatch(r"[\d.]+\+rocm[\d.]+", bare):
        # The local version of a wheel of PyTorch names the ROCm that it was built for.
        version = bare
        stated.setdefault("rocm", bare.partition("+rocm")[2])
    contents = {key: text for key, text in container_versions(framework, container).items() if key in _CONTENTS}
    container_names = set(contents)
    names = {*stated, *(("version",) if normal_version(version) else ())}
    version = version or contents.pop("version", "")
    stated = {**contents, **stated}
    python = stated.pop("python", "")
    return Software(
        framework=framework,
        version=normal_version(version) or normal_version(container),
        index=CONTAINER_INDEX if container else SUBMISSION_INDEX,
        container=container,
        components={key: release for key, text in sorted(stated.items()) if (release := normal_version(text))},
        python=python,
        expanded=tuple(sorted(container_names - names)),
        unread=tuple(unread),
    )


def normal_version(text: str) -> str:
    """Return a version in its normal form; empty where it is none."""
    try:
        return str(Version(text))
    except InvalidVersion:
        return ""


def _stated(left: MutableMapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Remove the fields that are named after components; return their versions, and what is not one version."""
    stated: dict[str, str] = {}
    unread: list[str] = []
    for key, component in mlperf_facts()["software"]["fields"].items():
        text = left.get(key)
        if text is None:
            continue
        numbers = sorted(set(_versions(text[:_LONGEST_NAME])))
        if len(numbers) == 1:
            stated.setdefault(component, numbers[0])
            del left[key]
        else:
            unread.append(f"`{key}` is `{text[:80]}`: {'several versions' if numbers else 'not a version'}")
    if "nvidia-kernel-driver" in stated and "nvidia-driver" not in stated:
        stated["nvidia-driver"] = stated["nvidia-kernel-driver"]
    return stated, unread


def _versions(text: str) -> Iterator[str]:
    """Yield the versions of a field, without the revision of a Linux package and the CUDA that it was built for."""
    plain = re.sub(r"\s*\.\s*", ".", text)
    for part in re.split(r"[;,]|\bor\b", plain):
        match = re.search(
            r"(?<![\w.])v?(\d+(?:\.\d+)+(?:(?:a|b|rc)\d+|\.dev\d+)?)(\+git[a-z0-9]+|\+[0-9a-f]{7,})?", part
        )
        if match:
            # The commit of a build that is no release belongs to its version.
            yield match[1] + ((match[2] or "") if re.search("[a-z]", match[1]) else "")


def _refine(stated: dict[str, str], component: str, version: str) -> None:
    """Add a version, or replace one that is less exact: ``8.0.1.6`` for ``8.0.1``."""
    if component not in stated or version.startswith(f"{stated[component]}."):
        stated[component] = version


@cache
def _frameworks() -> Mapping[str, str]:
    """Return the pattern of each framework's name."""
    software = mlperf_facts()["software"]
    measured = {f.name: f.published["mlperf"] for f in frameworks().values() if "mlperf" in f.published}
    return {**software["longer-frameworks"], **measured, **software["frameworks"]}


@cache
def _in_containers() -> frozenset[str]:
    """Return the frameworks that NVIDIA publishes in containers, whose releases are a year and a month."""
    measured = (name for name, framework in frameworks().items() if "container" in framework.published)
    return frozenset((*measured, *mlperf_facts()["software"]["in-containers"]))


@cache
def _token() -> tuple[re.Pattern[str], tuple[str, ...]]:
    """Return the pattern of a name, with a group for each name, or of a version; and the names."""
    patterns = {**_frameworks(), **mlperf_facts()["software"]["components"]}
    names = "|".join(f"(?P<n{i}>{p})" for i, p in enumerate(patterns.values()))
    pattern = (
        rf"(?:{names})(?:[ _-]*v?(?P<direct>{_NUMBER})(?!\w))?|(?:(?<![\w.])v?|(?<=ngc))(?P<version>{_NUMBER})(?!\w)"
    )
    return re.compile(pattern, re.IGNORECASE), tuple(patterns)


def _names(text: str) -> Iterator[tuple[str, re.Match[str]]]:
    """Yield the name that each match has, or an empty text for a version alone."""
    token, names = _token()
    for match in token.finditer(text):
        yield next((name for i, name in enumerate(names) if match[f"n{i}"] is not None), ""), match


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield names and versions in order, each with its place: a name, a version, or a name and the version after it."""
    for name, match in _names(text):
        yield name, match["direct"] or match["version"] or "", match.start()


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Yield each name that a version follows at once: ``cuDNN 8.0.2``, ``python3.6``, ``cudnn, 7.6.5``."""
    for name, match in _names(text):
        following = None if match["direct"] else _FOLLOWING.match(text, match.end())
        version = match["direct"] or (following["version"] if following else "")
        if name and version and not (name in _in_containers() and _RELEASE.fullmatch(version)):
            yield name, version


def _releases(text: str) -> dict[str, list[str]]:
    """Return the frameworks of a text in order, each with the versions that belong to it.

    A version belongs to the names before it that have none yet: ``NGC MXNET/PYTORCH 20.06``. In ``NVIDIA Release 24.04
    MxNet, pytorch and 23.09 pytorch``, it belongs to those after it.
    """
    releases: dict[str, list[str]] = {}
    ahead = re.match(r"\W*(?:nvidia\s+)?release\s+\d", text, re.IGNORECASE) is not None
    for clause in text.split(";"):
        pending: list[str] = []
        owners: list[str] = []
        current = ""
        for name, version, start in _tokens(clause):
            if name:
                releases.setdefault(name, []).extend([current] if ahead and current else [])
                pending.append(name)
            if version and ahead:
                current = version
            elif version and (pending or re.search(r"\bor\s+$", clause[:start])):
                # Several frameworks share a release of containers, but no version: `TensorRT Preview, CUDA 11.0`.
                shared = pending if not name or _RELEASE.fullmatch(version) else [name]
                owners, pending = shared or owners, []
                for owner in owners:
                    releases[owner].append(version)
    return {name: versions for name, versions in releases.items() if name in _frameworks()}


def _framework(texts: Iterable[str], benchmark: str, place: str) -> tuple[str, set[str]]:
    """Return the framework that ran a benchmark, and the versions that belong to it."""
    described, *others = texts
    candidates: dict[str, list[str]] = {}
    for text in (described, *others):
        candidates = candidates or _releases(text)
    framework = _choose(list(candidates), benchmark) or _generic(described)
    if not framework:
        # When descriptions did not name the framework, only TensorFlow supported TPUs.
        framework = "tensorflow" if any(_TPU.search(text) for text in others) else _of_place(place)
    releases = set(candidates.get(framework, ()))
    for text in others:
        if not releases and framework in _in_containers() and re.search(_frameworks()[framework], text, re.IGNORECASE):
            releases = set(_RELEASE.findall(text))
    if framework == _generic(described) and (match := _GENERIC.match(described)) and match[2]:
        releases = {match[2]}
    return framework, releases


def _choose(candidates: list[str], benchmark: str) -> str:
    """Return the framework of several that runs a benchmark in NVIDIA's own submissions, else the first one."""
    usual = mlperf_facts()["usual-frameworks"].get(benchmark, ())
    return next((name for name in (*usual, *candidates) if name in candidates), "")


def _generic(text: str) -> str:
    """Return the name of a framework that the program does not know, such as ``sapeon-sdk``; empty for none."""
    match = _GENERIC.match(text)
    if match is None or "mlperf" in text.lower() or next(_tokens(match[1]), None) is not None:
        return ""
    return re.sub(r"[^a-z0-9]+", "-", match[1].lower()).strip("-")


def _of_place(place: str) -> str:
    matches = (entry for entry in mlperf_facts()["sources"] if place and re.search(entry["match"], place))
    return str(next(matches, {"framework": "unknown"})["framework"])
