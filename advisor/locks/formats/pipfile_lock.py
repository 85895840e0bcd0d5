"""`Pipfile.lock`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from advisor.domain.direct_reference import VCS, DirectReference
from advisor.domain.target import Target
from advisor.locks.documents import Document, DocumentFormat, Entry, content_of, kind_of_source, package_of, source_of
from advisor.locks.interface import PackageToLock, StackToLock, relative_address
from advisor.project.formats.pipfile import required_python
from knowledge.domain.errors import InputError

_SPECIFICATION = 6
_SOURCES = (*VCS, "file", "path")


class _PipfileLock(DocumentFormat):
    name = "Pipfile.lock"
    order = 5
    written_names = (name,)
    is_json = True
    name_line = re.compile(r'\s*"(?P<name>[\w.-]+)":\s*\{\s*$')
    version_line = re.compile(r'\s*"version":\s*"=*(?P<version>[^"]+)",?\s*$')

    def pythons(self, document: Document) -> Mapping[str, str]:
        """Return `requires` of `_meta`, which `pipenv install --deploy` checks."""
        python = required_python(document.get("_meta", {}).get("requires", {}))
        return {} if python is None else dict([python])

    def unverified_hosts(self, document: Document) -> Mapping[str, str]:
        """Return the hosts of the sources with `verify_ssl = false`, each with its address."""
        hosts: dict[str, str] = {}
        for source in document.get("_meta", {}).get("sources", ()):
            url = source.get("url", "")
            # There is no certificate to verify without TLS.
            if not source.get("verify_ssl", True) and not url.lower().startswith("http:"):
                hosts.setdefault(urlsplit(url).netloc.rpartition("@")[2] or url, url)
        return hosts

    def entries(self, document: Document, target: Target) -> Iterator[Entry]:
        """Yield the packages. The target installs those in `default`."""
        sources = {source.get("name"): source.get("url") for source in document.get("_meta", {}).get("sources", ())}
        # As in Pipenv, a package without `index` comes from the first source.
        default_source = next(iter(sources.values()), None)
        for category in ("default", *sorted(set(document) - {"_meta", "default"})):
            for name, entry in document[category].items():
                with package_of(name, None):
                    kind = kind_of_source(entry, _SOURCES)
                    version = str(entry.get("version", ""))
                    on_target = category == "default" and bool(version) and target.satisfies(entry.get("markers"))
                    # Pipenv locks no version for packages that its own platform does not need.
                    is_unlocked = version == "*" and not on_target
                    yield Entry(
                        name=name,
                        version="" if is_unlocked else version.removeprefix("=="),
                        is_open=is_unlocked and not entry.get(kind),
                        index=sources.get(entry.get("index"), default_source),
                        hashes=tuple(entry.get("hashes", ())),
                        source=source_of(
                            name,
                            str(entry.get(kind, "")),
                            str(entry.get("ref", "")),
                            content=content_of(entry, *_SOURCES, "ref", "subdirectory", "editable", "hashes"),
                            directory=kind == "path",
                            subdirectory=entry.get("subdirectory"),
                        ),
                        on_target=on_target,
                    )

    def write(self, path: Path, stacks: Sequence[StackToLock]) -> str:
        """Return the text of a `Pipfile.lock` for one target, with the hash of the Pipfile next to it.

        The indexes that packages come from are written to the lock.

        Raises:
            InputError: If the Pipfile cannot be read.
        """
        (stack,) = stacks
        configuration = stack.configuration
        indexes = {package.file.index for package in stack.packages if package.file is not None}
        urls = sorted(url for url in indexes - {*configuration.find_links} if url.startswith(("http:", "https:")))
        urls.sort(key=lambda url: url != configuration.default_url)
        names = {url: "pypi" if url == configuration.default_url else f"index{i}" for i, url in enumerate(urls)}
        document = {
            "_meta": {
                "hash": {"sha256": _hash(path.with_name("Pipfile"))},
                "pipfile-spec": _SPECIFICATION,
                "requires": {"python_version": stack.target.python_minor},
                "sources": [{"name": names[url], "url": url, "verify_ssl": url.startswith("https:")} for url in urls],
            },
            "default": {package.name: _written(package, names, path.parent) for package in stack.packages},
            "develop": {},
        }
        return json.dumps(document, indent=4, sort_keys=True) + "\n"


def _written(package: PackageToLock, indexes: Mapping[str, str], folder: Path) -> dict[str, Any]:
    """Return the entry of a package; `indexes` has the names of indexes by their addresses."""
    hashes = [f"sha256:{package.sha256}"] if package.sha256 else []
    if package.direct is not None:
        return _direct_entry(package.direct, hashes, folder)
    index = package.file.index if package.file else ""
    source = {"index": indexes[index]} if index in indexes else {}
    return {"hashes": hashes, **source, "version": f"=={package.version}"}


def _direct_entry(reference: DirectReference, hashes: Sequence[str], folder: Path) -> dict[str, Any]:
    """Return the entry of a package that comes from no index."""
    entry: dict[str, Any] = {"editable": True} if reference.editable else {}
    if reference.subdirectory:
        entry["subdirectory"] = reference.subdirectory
    if reference.kind == "vcs":
        return {**entry, reference.vcs: reference.url, "ref": reference.commit}
    address = relative_address(replace(reference, subdirectory=""), folder)
    if reference.kind == "directory":
        return {**entry, "path": address}
    return {**entry, ("path" if reference.is_local else "file"): address, "hashes": hashes}


def _hash(pipfile: Path) -> str:
    """Return the hash that Pipenv compares to check whether a lock is up to date; empty without a Pipfile."""
    from plette import Pipfile

    try:
        with pipfile.open(encoding="utf-8") as file:
            return str(Pipfile.load(file).get_hash().value)
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"`{pipfile}` cannot be read: {' '.join(str(error).split())}") from None


FORMAT = _PipfileLock()
