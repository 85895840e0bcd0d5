"""Writes ``schemas.json.gz``: the strict schemas of the Kubernetes objects of this program, for some versions.

The package kubernetes-validate holds the schemas of the Kubernetes API (made by
https://github.com/yannh/kubernetes-json-schema) in 17 000 files. Only a few of them are needed, so the tests use this
file, and the package is installed only to write it: ``pip install kubernetes-validate && python -m
tests.kubernetes_double.make_schemas``.
"""

from __future__ import annotations

import gzip
import importlib.resources
import json
import re
from collections.abc import Iterator
from typing import Any

from tests.kubernetes_double.schema import SCHEMAS

VERSIONS = ("1.29", "1.30", "1.31", "1.33", "1.37")
KINDS = (
    "configmap-v1",
    "namespace-v1",
    "serviceaccount-v1",
    "job-batch-v1",
    "cronjob-batch-v1",
    "persistentvolumeclaim-v1",
)
RBAC = ("role-rbac-v1", "rolebinding-rbac-v1")
_REFERENCE = re.compile(r"(?:/api/_definitions\.json)?#/\$defs/(.*)")


def references(schema: Any) -> Iterator[str]:
    """Yield the names of the definitions that a schema refers to."""
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref" and (match := _REFERENCE.fullmatch(value)):
                yield match[1]
            else:
                yield from references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from references(value)


def schemas_of(version: str) -> dict[str, Any]:
    """Return the schemas of the kinds in one version, and the definitions that they use."""
    root = importlib.resources.files("kubernetes_validate") / "kubernetes-json-schema" / f"v{version}.0-local-strict"
    definitions = json.loads((root / "_definitions.json").read_text())["$defs"]
    kinds = {kind: json.loads((root / f"{kind}.json").read_text()) for kind in (*KINDS, *RBAC)}
    needed: dict[str, Any] = {}
    waiting = [name for schema in kinds.values() for name in references(schema)]
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed[name] = definitions[name]
            waiting += references(definitions[name])
    return {"kinds": _compact(kinds), "$defs": _compact(needed)}


def _compact(schema: Any) -> Any:
    """Return a schema without descriptions and addresses, whose references are to definitions of the same document."""
    if isinstance(schema, list):
        return [_compact(value) for value in schema]
    if not isinstance(schema, dict):
        return schema
    remaining = {
        k: v
        for k, v in schema.items()
        if k not in ("$id", "$schema") and not (k == "description" and isinstance(v, str))
    }
    return {
        key: value.replace("/api/_definitions.json#", "#") if key == "$ref" else _compact(value)
        for key, value in remaining.items()
    }


if __name__ == "__main__":
    text = json.dumps({version: schemas_of(version) for version in VERSIONS}, sort_keys=True)
    SCHEMAS.write_bytes(gzip.compress(text.encode(), mtime=0))
