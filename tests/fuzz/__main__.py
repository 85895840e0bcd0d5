"""Gives many damaged documents to a parser: `python -m tests.fuzz PARSER --inputs 10000 --seed N`."""

from __future__ import annotations

import argparse
import json
import random
import resource
import secrets
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.fuzz.mutations import mutate
from tests.fuzz.parsers import PARSERS, Documented


def main() -> None:
    """Print as JSON how many inputs were read, the longest time, the largest memory, and each failure once."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("parser", choices=PARSERS)
    options.add_argument("--inputs", type=int, default=10_000)
    options.add_argument("--seed", type=int, default=secrets.randbits(32))
    options.add_argument("--keep", type=Path, help="folder for the inputs that failed, and the slowest")
    options.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    chosen = options.parse_args()
    parser, drawn = PARSERS[chosen.parser], random.Random(chosen.seed)
    seeds = list(parser.seeds())
    print(f"{chosen.parser}: seed {chosen.seed}", file=sys.stderr, flush=True)
    failures: dict[str, str] = {}
    longest, done, slowest, refused = 0.0, 0, b"", 0
    end = time.monotonic() + chosen.seconds
    while done < chosen.inputs and time.monotonic() < end:
        content = mutate(drawn.choice(seeds), parser.kind, drawn)
        done += 1
        with tempfile.TemporaryDirectory() as folder:
            began = time.process_time()
            try:
                parser.read(content, Path(folder))
            except Documented:
                refused += 1
            except Exception as error:  # What is looked for.
                frames = [f for f in traceback.extract_tb(error.__traceback__) if "/tests/" not in f.filename]
                own = [f for f in frames if "site-packages" not in f.filename and "/lib/" not in f.filename]
                place = f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else "?"
                about = f"{type(error).__name__} in {place}"
                if about not in failures or len(content) < len(_kept(chosen.keep, about, b"")):
                    _kept(chosen.keep, about, content)
                failures.setdefault(about, str(error)[:200])
            taken = time.process_time() - began
            if taken > longest:
                longest, slowest = taken, content
    _kept(chosen.keep, "slowest", slowest)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        json.dumps(
            {
                "parser": chosen.parser,
                "seed": chosen.seed,
                "inputs": done,
                "refused": refused,
                "longest_seconds": round(longest, 3),
                "peak_bytes": peak,
                "failures": failures,
            }
        )
    )


_smallest: dict[str, bytes] = {}


def _kept(folder: Path | None, about: str, content: bytes) -> bytes:
    """Keep an input, where there is one; return the one that is kept."""
    if content:
        _smallest[about] = content
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / about.replace(" ", "-").replace("/", "-")).write_bytes(content)
    return _smallest.get(about, b"")


if __name__ == "__main__":
    main()
