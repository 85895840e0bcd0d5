"""Writes the entries of DAWNBench that ship with the program, from checkouts of their repository.

    python docs/dawnbench.py CHECKOUT...

The repository is https://github.com/stanford-futuredata/dawn-bench-entries. Checkouts are read together, so that each
can have another commit, in the name of its directory (`dawn-bench-entries-COMMIT`, as in GitHub's archives).
"""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

import pi_runners as pi_runners  # It adds the frameworks.
from knowledge.exchange.dawnbench.tree import read_entries
from knowledge.exchange.files import observation_file

TARGET = Path(str(files("knowledge.data"))) / "published-dawnbench.jsonl.gz"


def main() -> None:
    """Write the file."""
    imported = read_entries([Path(path) for path in sys.argv[1:]])
    for skipped in imported.skipped:
        print(f"{skipped.path}: {skipped.reason}")
    for warning in imported.warnings:
        print(warning)
    content = observation_file(imported.observations, compressed=True, with_identities=False)
    TARGET.write_bytes(content)
    print(f"{TARGET.name}: {len(imported.observations)} observations, {len(content)} bytes")


if __name__ == "__main__":
    main()
