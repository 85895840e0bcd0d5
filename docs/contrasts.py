"""Writes `knowledge/data/contrasts.json.gz`: the contrasts of the shipped observations, so that first use is fast.

    python docs/contrasts.py

It also writes `knowledge/data/version.json`: the version of the shipped data, which it raises if an observation file
was added, changed or removed, and a digest of the files.

Run it after a change of the shipped observations, or of how contrasts are computed; a test reports when it is
necessary.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

import pi_runners as pi_runners  # It adds the frameworks.
from knowledge.evidence.block_evidence import SHIPPED, compute_evidence
from knowledge.store.engine import open_knowledge_base
from knowledge.store.shipped_files import VERSION_FILE, ShippedFile, shipped_files

TARGET = Path(str(files("knowledge.data"))) / SHIPPED


def digest_of_files(files: Iterable[ShippedFile]) -> str:
    """Return a hash of the names and the contents of files, in any order."""
    lines = sorted(f"{file.name} {file.sha256}\n" for file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def version_record(files: Iterable[ShippedFile], previous: str | None) -> str:
    """Return the content of the version file: the version is higher than the previous one if the files differ.

    Args:
        files: All observation files that ship with the program.
        previous: Present content of the version file; ``None`` if there is none.
    """
    record = json.loads(previous or '{"version": 0, "digest": ""}')
    digest = digest_of_files(files)
    version = record["version"] + (record["digest"] != digest)
    return json.dumps({"version": version, "digest": digest}, indent=2) + "\n"


def write_version() -> None:
    """Write the version of the shipped data: a higher one if the files changed."""
    path = TARGET.with_name(VERSION_FILE)
    content = version_record(shipped_files(), path.read_text("utf-8") if path.exists() else None)
    path.write_text(content, "utf-8")
    print(f"{path}: version {json.loads(content)['version']}")


def main() -> None:
    """Compute and write."""
    write_version()
    with open_knowledge_base("sqlite://") as store:
        record = compute_evidence(store)
    content = json.dumps(record, sort_keys=True, separators=(",", ":")).encode()
    TARGET.write_bytes(gzip.compress(content, 9, mtime=0))
    blocks, contrasts = len(record["digests"]), len(record["contrasts"]["rows"])
    print(f"{TARGET}: {contrasts} contrasts of {blocks} blocks, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
