"""Makes synthetic stacks: packages, versions with scores, windows of admitted versions, and pair terms.

The format is a JSON document ``{"direct": [names], "packages": {name: {version: {"score": float, "deps": {name:
[versions]}}}}, "pairs": [[[name, version], [name, version], score], ...]}``; ``pairs`` may be absent. A hidden stack
satisfies every window, so each problem has a solution.

Two modes. ``noise``: every version has its own random score and its own random windows, so that nothing can be said of
one version from its neighbours. ``release``: as packages are released: bounds move up in a few steps with the versions,
some are capped, a core of ten packages has measured scores and all pair terms, and the others only age.

Usage: python benchmarks/synthetic.py --packages 120 --versions 40 --pairs 200 --mode release -o FILE
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

_NEAR = 12
"""A package depends on some of so many packages after it."""
_CORE = 10
_AGE = 0.02
"""Score that the oldest version of a package outside the core loses."""


def make(*, packages: int, versions: int, direct: int, fan: int, pairs: int, mode: str, seed: int) -> dict[str, Any]:
    """Return a problem of ``packages`` x ``versions`` whose packages require ``fan`` of those after them."""
    draw = random.Random(seed)
    names = [f"p{i:03}" for i in range(packages)]
    numbers = [f"{v + 1}.0.0" for v in range(versions)]
    hidden = {name: draw.randrange(versions * 2 // 3, versions) for name in names}
    core = names if mode == "noise" else sorted(draw.sample(names, min(_CORE, packages)))
    releases: dict[str, Any] = {}
    for place, name in enumerate(names):
        after = names[place + 1 : place + 1 + _NEAR]
        windows = {
            other: (_noise if mode == "noise" else _release)(draw, versions, hidden[name], hidden[other])
            for other in draw.sample(after, min(fan, len(after)))
        }
        releases[name] = {
            numbers[v]: {
                "score": round(draw.uniform(-1, 1) if name in core else _AGE * (v + 1 - versions) / versions, 4),
                "deps": {other: numbers[slice(*window[v])] for other, window in windows.items()},
            }
            for v in range(versions)
        }
    terms = []
    for _ in range(pairs):
        a, b = sorted(draw.sample(core, 2))
        terms.append([[a, draw.choice(numbers)], [b, draw.choice(numbers)], round(draw.uniform(-0.5, 0.5), 4)])
    return {
        "meta": {"packages": packages, "versions": versions, "mode": mode, "seed": seed},
        "direct": names[:direct],
        "packages": releases,
        "pairs": terms,
    }


def _noise(draw: random.Random, versions: int, own: int, other: int) -> list[tuple[int, int]]:
    """Return for each version a random window; that of the hidden version holds the hidden one."""
    windows = []
    for version in range(versions):
        low = draw.randrange(0, max(1, versions // 2))
        high = draw.randrange(low + versions // 3, versions + 1) if draw.random() < 0.5 else versions
        if version == own:
            low, high = min(low, other), max(high, other + 1)
        windows.append((low, high))
    return windows


def _release(draw: random.Random, versions: int, own: int, other: int) -> list[tuple[int, int]]:
    """Return windows whose bounds move up in a few steps; half of the dependencies are capped."""
    steps = sorted(draw.sample(range(1, versions), min(4, versions - 1)))
    floors = sorted(draw.randrange(0, versions) for _ in range(len(steps) + 1))
    capped, width = draw.random() < 0.5, draw.randrange(versions // 4, versions // 2 + 1)
    windows = []
    for version in range(versions):
        low = floors[sum(version >= step for step in steps)]
        high = min(versions, low + width) if capped else versions
        windows.append((low, high))
    low, high = windows[own]
    shift = min(0, other - low) or max(0, other + 1 - high)
    moved = [(min(versions - 1, max(0, low + shift)), min(versions, high + shift)) for low, high in windows]
    return [(low, max(low + 1, high)) for low, high in moved]


def main() -> None:
    """Write one problem."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--packages", type=int, default=60)
    parser.add_argument("--versions", type=int, default=20)
    parser.add_argument("--direct", type=int, default=8)
    parser.add_argument("--fan", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=0)
    parser.add_argument("--mode", choices=("release", "noise"), default="release")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = vars(parser.parse_args())
    output = options.pop("output")
    output.write_text(json.dumps(make(**options)))


if __name__ == "__main__":
    main()
