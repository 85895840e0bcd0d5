"""The published schemas of the Kubernetes API, for the objects that this program writes."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

SCHEMAS = Path(__file__).with_name("schemas.json.gz")
"""Written by ``python -m tests.kubernetes_double.make_schemas``."""


def violation(manifest: Any, version: str) -> str | None:
    """How a manifest differs from the schema of a Kubernetes version, such as ``1.33``; None if it does not differ."""
    plain = json.loads(json.dumps(manifest))
    group, _, api_version = plain["apiVersion"].rpartition("/")
    kind = "-".join(filter(None, (plain["kind"].lower(), group.partition(".")[0], api_version)))
    error = next(iter(_validator(version, kind).iter_errors(plain)), None)
    return None if error is None else str(error.message)


@cache
def _validator(version: str, kind: str) -> Any:
    from jsonschema_rs import validator_for

    schemas = _schemas()[version]
    return validator_for({**schemas["kinds"][kind], "$defs": schemas["$defs"]})


@cache
def _schemas() -> Any:
    return json.loads(gzip.decompress(SCHEMAS.read_bytes()))
