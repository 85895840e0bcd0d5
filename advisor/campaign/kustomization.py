"""Writes Kubernetes manifests to a directory, with a kustomization that names them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from knowledge.domain.errors import InputError
from knowledge.domain.shared_files import write_atomically


def write_manifests(folder: Path, manifests: Iterable[Mapping[str, Any]]) -> None:
    """Write each manifest to a file that is named after its kind, and a kustomization.

    Args:
        folder: The directory; it is created.
        manifests: The manifests, each of another kind.

    Raises:
        InputError: If the directory cannot be written.
    """
    import yaml

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"`{folder}` cannot be written: {error.strerror}") from None
    names = []
    for manifest in manifests:
        names.append(f"{manifest['kind'].lower()}.yaml")
        # Through JSON, so that YAML repeats equal values instead of writing references.
        plain = json.loads(json.dumps(manifest))
        write_atomically(folder / names[-1], yaml.safe_dump(plain, sort_keys=False, width=10_000))
    kustomization = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": names}
    write_atomically(folder / "kustomization.yaml", yaml.safe_dump(kustomization, sort_keys=False))
