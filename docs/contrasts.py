"""Writes `knowledge/data/contrasts.json.gz`: the contrasts of the shipped observations, so that first use is fast.

    python docs/contrasts.py

Run it after a change of the shipped observations, or of how contrasts are computed; a test reports when it is
necessary.
"""

from __future__ import annotations

import gzip
import json
from importlib.resources import files
from pathlib import Path

from knowledge.estimate.stored_evidence import SHIPPED, compute_evidence
from knowledge.store.engine import open_knowledge_base

TARGET = Path(str(files("knowledge.data"))) / SHIPPED


def main() -> None:
    """Compute and write."""
    with open_knowledge_base("sqlite://") as store:
        record = compute_evidence(store)
    content = json.dumps(record, sort_keys=True, separators=(",", ":")).encode()
    TARGET.write_bytes(gzip.compress(content, 9, mtime=0))
    blocks, contrasts = len(record["digests"]), len(record["contrasts"]["rows"])
    print(f"{TARGET}: {contrasts} contrasts of {blocks} blocks, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
