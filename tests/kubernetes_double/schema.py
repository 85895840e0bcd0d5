"""The published schemas of the Kubernetes API."""

from __future__ import annotations

import json
from typing import Any


def violation(manifest: Any, version: str) -> str | None:
    """How a manifest differs from the schema of a Kubernetes version, such as ``1.33``; None if it does not differ."""
    import kubernetes_validate  # takes three seconds, and few workers of pytest-xdist need it

    try:
        kubernetes_validate.validate(json.loads(json.dumps(manifest)), version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return str(error.message)
    return None
