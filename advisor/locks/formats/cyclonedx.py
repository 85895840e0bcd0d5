"""Bills of materials (CycloneDX 1.6, JSON)."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from advisor.domain.target import Target
from advisor.locks.documents import Document, DocumentFormat, Entry, package_of
from advisor.locks.interface import StackToLock
from knowledge.domain.errors import InputError
from knowledge.domain.extras import needs_extra


class _CycloneDX(DocumentFormat):
    name = "bom.json"
    order = 7
    patterns = ("*.cdx.json", "*bom.json")
    written_names = ("NAME.cdx.json",)
    suffix = ".cdx.json"
    is_json = True
    name_line = re.compile(r'\s*"name":\s*"(?P<name>[\w.-]+)",?\s*$')
    version_line = re.compile(r'\s*"version":\s*"(?P<version>[^"]+)",?\s*$')

    def current(self, directory: Path) -> None:
        """Return `None`: a bill of materials is a lock only if somebody names it."""

    def entries(self, document: Document, target: Target) -> Iterator[Entry]:
        for place, component in enumerate(document["components"]):
            with package_of(component, place):
                if str(component.get("purl", "")).startswith("pkg:pypi/"):
                    hashes = [h["content"] for h in component.get("hashes", ()) if h.get("alg") == "SHA-256"]
                    yield Entry(
                        name=component["name"],
                        version=component["version"],
                        hashes=tuple(f"sha256:{digest}" for digest in hashes),
                    )

    def write(self, path: Path, stacks: Sequence[StackToLock]) -> str:
        """Return a bill of materials: every package with its file, hash, licences and dependencies.

        The same stack gives the same serial number, which is derived from the content. The variable
        ``SOURCE_DATE_EPOCH`` sets the time. Without it, the time stays if nothing else in the file changes.

        Raises:
            InputError: If ``SOURCE_DATE_EPOCH`` is not a time.
        """
        (stack,) = stacks
        with needs_extra("sbom", "a CycloneDX file"):
            from advisor.locks.bill_of_materials import bill_of_materials

        document = bill_of_materials(stack, path.parent)
        del document["metadata"]["timestamp"]
        document.pop("serialNumber", None)
        # The library uses sets, whose order differs from run to run.
        document.setdefault("components", []).sort(key=lambda component: component["bom-ref"])
        document["dependencies"].sort(key=lambda dependency: dependency["ref"])
        for component in document["components"]:
            component.get("licenses", []).sort(key=json.dumps)
        for dependency in document["dependencies"]:
            dependency.get("dependsOn", []).sort()
        serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document, sort_keys=True))
        document["serialNumber"] = f"urn:uuid:{serial}"
        document["metadata"]["timestamp"] = _timestamp(document["serialNumber"], path)
        return json.dumps(document, indent=2, sort_keys=True) + "\n"


def _timestamp(serial: str, path: Path) -> str:
    """Return the time of a bill of materials that will be written to a path (ISO 8601, UTC, whole seconds).

    Raises:
        InputError: If ``SOURCE_DATE_EPOCH`` is not a time (https://reproducible-builds.org/specs/source-date-epoch/).
    """
    if (epoch := os.environ.get("SOURCE_DATE_EPOCH")) is not None:
        try:
            return datetime.fromtimestamp(int(epoch), UTC).isoformat()
        except (ValueError, OverflowError, OSError):
            raise InputError(
                f"the variable `SOURCE_DATE_EPOCH` is `{epoch}`, which is not a time",
                hint="set it to seconds since 1970-01-01 UTC, as `git log -1 --format=%ct` prints them, or unset it",
            ) from None
    return _stored_time(serial, path) or datetime.now(UTC).replace(microsecond=0).isoformat()


def _stored_time(serial: str, path: Path) -> str | None:
    """Return the time in the present file if it has the same serial number; `None` if there is no valid one."""
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
        if document["serialNumber"] != serial:
            return None
        time = datetime.fromisoformat(document["metadata"]["timestamp"])
        return time.isoformat() if time.tzinfo is not None else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


FORMAT = _CycloneDX()
