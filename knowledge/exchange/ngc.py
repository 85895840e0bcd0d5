"""What the containers of NVIDIA's GPU cloud (NGC) contain: framework, CUDA, cuDNN, NCCL and others by release."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from knowledge.records import shipped_yaml

NEMO = "nemo:"
"""Prefix of the releases of NeMo's containers, of which PyTorch is the framework."""
CONTAINER_INDEX = "ngc"
"""Index of packages that came in a container of NVIDIA's GPU cloud."""
COMPONENTS = ("cuda", "cublas", "cudnn", "nccl", "tensorrt", "python", "driver")
"""Keys of :func:`container_versions`, with ``version``; ``driver`` is the oldest driver of the release notes."""
_RELEASE = re.compile(r"\s*v?(?P<year>\d\d)\.(?P<month>\d\d)(?:\.\d+)?(?:-(?P<tag>tf[12])\b)?(?:-[\w-]*)?\s*$", re.I)
_TAGS = ("tf1", "tf2")


def container_versions(framework: str, release: str) -> Mapping[str, str]:
    """Return what a container contains, as far as it could be read on a page.

    Args:
        framework: Distribution name, such as ``torch``, ``tensorflow`` or ``mxnet``; also ``tensorrt`` and
            ``tritonserver``.
        release: Release of the container, such as ``22.10``, or its tag, such as ``20.06-tf2-py3``; with the prefix
            :data:`NEMO`, a release of NeMo's container.

    Returns:
        ``version`` of the framework and those of :data:`COMPONENTS` that are known; empty if the release is not
        listed. ``version`` is absent if a release of TensorFlow 1 and 2 is named without its ``tf1`` or ``tf2``.
    """
    entry = _entry(framework, release)
    versions = {name: str(entry[name]) for name in ("version", *COMPONENTS) if name in entry}
    tag = _parts(release)[1]
    if tag in entry:
        versions["version"] = str(entry[tag])
    return versions


def releases_with_version(framework: str, version: str) -> tuple[str, ...]:
    """Return the releases whose container holds this version of a framework, such as ``1.4.0a0+a5b4d78``."""
    entries = _catalogue()["frameworks"].get(framework, {})
    return tuple(
        release for release, entry in entries.items() if version in {str(entry.get(k)) for k in ("version", *_TAGS)}
    )


def is_release(text: str) -> bool:
    """Whether a text is a release of a container, such as ``22.10``, ``20.06-tf1-py3`` or ``nemo:26.04.01``."""
    match = _RELEASE.match(text.removeprefix(NEMO))
    return match is not None and int(match["year"]) >= 17 and 1 <= int(match["month"]) <= 12


def _entry(framework: str, release: str) -> Mapping[str, Any]:
    name, key = framework, _parts(release)[0]
    if release.startswith(NEMO):
        # A patch release may contain another PyTorch.
        name, key = "nemo" if name == "torch" else "", release.removeprefix(NEMO)
    entry: Mapping[str, Any] = _catalogue()["frameworks"].get(name, {}).get(key, {})
    return entry


def _parts(release: str) -> tuple[str, str]:
    """Return year and month of a release, and its tag ``tf1`` or ``tf2``; empty texts for none."""
    match = _RELEASE.match(release)
    return (f"{match['year']}.{match['month']}", (match["tag"] or "").lower()) if match else ("", "")


def _catalogue() -> Mapping[str, Any]:
    # Every value is text: `10.2` and `21.10` are versions, not numbers.
    return shipped_yaml("knowledge.exchange", "ngc_containers.yaml", as_text=True)
