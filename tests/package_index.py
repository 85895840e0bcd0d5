"""A small package index over HTTP that tests can make fail, stall, send wrong data or lack features."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import ssl
import tarfile
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack
from urllib.parse import unquote

Fault = Callable[[BaseHTTPRequestHandler], None]
"""Sends a wrong response to a request, or none."""


class PageFields(TypedDict, total=False):
    """Optional fields of a file on the project page.

    Attributes:
        requires_python: Specifier of the interpreters that the file is for.
        uploaded: Upload time.
        yanked: Whether the file is yanked.
    """

    requires_python: str | None
    uploaded: str | None
    yanked: bool


@dataclass
class PackageIndex:
    """Serves wheels and sdists that are built in memory; attributes make it misbehave.

    Attributes:
        json: Whether to send pages as JSON to clients that accept it; otherwise as HTML.
        separate_metadata: Whether to offer core metadata as separate files (PEP 658).
        ranges: Whether to answer range requests.
        sizes: Whether pages as JSON contain the sizes of files.
        status: Status of each response to a request for a page.
        failures: Number of responses with that status; none for all.
        page_text: Text of every page, instead of the listed files.
        page_type: Media type of that text.
        delay_seconds: Delay of every response, in seconds.
        wrong_hashes: Whether pages contain wrong hashes of the metadata.
        password: Password that requests must send, for the user `me`; none for no authentication.
        etags: Whether to send an `ETag` with each page, and 304 to requests that send it back.
        not_modified: Number of responses with status 304.
        cache_control: Value of `Cache-Control` on each page; empty for no header.
        base: Whether HTML pages set a base address, with relative links to the files.
        raw: Body and headers by path, sent unchanged.
        raw_types: Media type of the answers in ``raw``, by path; by default that of a page as JSON.
        content_range: Value of `Content-Range` in place of the right one; empty for the right one.
        retry_after: Value of `Retry-After` on errors; empty for no header.
        certificate: File with a certificate and its key, to serve over TLS.
        redirects: Address to redirect to, by path.
        authorizations: `Authorization` header of the last request, by path.
        faults: Function that answers instead of this index, by path.
        tries: Number of requests that a fault answered, by path.
        files: Content by file name.
        entries: Entries of the pages, by package.
        vulnerabilities: Identifiers of vulnerabilities, by package and version.
        records: Value of `vulnerabilities` in the JSON record, by package and version.
        requests: Number of requests, by the first part of the path.
    """

    json: bool = True
    separate_metadata: bool = True
    ranges: bool = True
    sizes: bool = True
    status: int = 200
    failures: int | None = None
    page_text: str | None = None
    delay_seconds: float = 0.0
    wrong_hashes: bool = False
    password: str | None = None
    etags: bool = False
    not_modified: int = 0
    cache_control: str = ""
    base: bool = False
    page_type: str = "application/vnd.pypi.simple.v1+json"
    raw: dict[str, tuple[bytes, dict[str, str]]] = field(default_factory=dict)
    raw_types: dict[str, str] = field(default_factory=dict)
    content_range: str = ""
    retry_after: str = ""
    certificate: Path | None = None
    redirects: dict[str, str] = field(default_factory=dict)
    authorizations: dict[str, str | None] = field(default_factory=dict)
    faults: dict[str, Fault] = field(default_factory=dict)
    tries: Counter[str] = field(default_factory=Counter)
    files: dict[str, bytes] = field(default_factory=dict)
    entries: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    vulnerabilities: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    records: dict[tuple[str, str], object] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)

    def add(
        self,
        name: str,
        version: str,
        requires: Sequence[str] = (),
        *,
        extras: Sequence[str] = (),
        tag: str = "py3-none-any",
        metadata: str | None = None,
        code: str = "#" * 300_000,
        **fields: Unpack[PageFields],
    ) -> None:
        """Add a wheel of one module.

        Args:
            name: Name of the package.
            version: Its version.
            requires: Its requirements.
            extras: Its extras.
            tag: Tag of the wheel.
            metadata: Content of its METADATA file, instead of one with the values above.
            code: Code of the module.
            fields: What the page states about the wheel.
        """
        lines = ["Metadata-Version: 2.2", f"Name: {name}", f"Version: {version}"]
        lines += [f"Provides-Extra: {extra}" for extra in extras]
        lines += [f"Requires-Dist: {requirement}" for requirement in requires]
        text = metadata if metadata is not None else "\n".join(lines) + "\n\na description\n"
        stem = f"{name.replace('-', '_')}-{version}"
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            archive.writestr(zipfile.ZipInfo(f"{name.replace('-', '_')}/__init__.py"), code)
            archive.writestr(zipfile.ZipInfo(f"{stem}.dist-info/METADATA"), text)
            wheel = f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n"
            archive.writestr(zipfile.ZipInfo(f"{stem}.dist-info/WHEEL"), wheel)
            archive.writestr(zipfile.ZipInfo(f"{stem}.dist-info/RECORD"), "")
        filename = f"{stem}-{tag}.whl"
        fields.setdefault("uploaded", "2025-01-01T00:00:00Z")
        self._list(name, filename, content.getvalue(), **fields)
        self.files[f"{filename}.metadata"] = text.encode()

    def add_sdist(self, name: str, version: str, metadata_version: str = "2.2", *, pyproject: str = "") -> None:
        """Add an sdist.

        Args:
            name: Name of the package.
            version: Its version.
            metadata_version: Version of its core metadata; requirements are dynamic before 2.2.
            pyproject: Its ``pyproject.toml``; none if empty.
        """
        texts = {"PKG-INFO": f"Metadata-Version: {metadata_version}\nName: {name}\nVersion: {version}\n"}
        if pyproject:
            texts["pyproject.toml"] = pyproject
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w:gz") as archive:
            for file, text in texts.items():
                member = tarfile.TarInfo(f"{name}-{version}/{file}")
                member.size = len(text.encode())
                archive.addfile(member, io.BytesIO(text.encode()))
        self._list(name, f"{name}-{version}.tar.gz", content.getvalue())

    def add_file(self, name: str, filename: str, body: bytes) -> None:
        """Add a file of any content."""
        self._list(name, filename, body)

    def _list(self, name: str, filename: str, body: bytes, **fields: Unpack[PageFields]) -> None:
        """Add a file to the page of a package."""
        self.files[filename] = body
        entry: dict[str, Any] = {"filename": filename, "url": f"/files/{filename}", "size": len(body)}
        entry["yanked"] = fields.get("yanked", False)
        entry["hashes"] = {"sha256": hashlib.sha256(body).hexdigest()}
        if requires_python := fields.get("requires_python"):
            entry["requires-python"] = requires_python
        if uploaded := fields.get("uploaded"):
            entry["upload-time"] = uploaded
        self.entries.setdefault(name, []).append(entry)

    @property
    def url(self) -> str:
        """Base address of the simple API."""
        return f"{'https' if self.certificate else 'http'}://127.0.0.1:{self._server.server_port}/simple/"

    def __enter__(self) -> Self:
        index = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                time.sleep(index.delay_seconds)
                if self.path in index.faults:
                    index.tries[self.path] += 1
                    index.faults[self.path](self)
                    return
                status, body, kind, headers = index.answer(self.path, dict(self.headers.items()))
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                for key, value in headers.items():
                    self.send_header(key, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_HEAD = do_GET

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                """Ignore clients that disconnect before the response is complete."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if self.certificate:
            trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            trust.load_cert_chain(self.certificate)
            self._server.socket = trust.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, headers: dict[str, str]) -> tuple[int, bytes, str, dict[str, str]]:
        """Return status, body, content type and further headers for a request."""
        parts = path.strip("/").split("/")
        self.requests[parts[0]] += 1
        self.authorizations[path] = headers.get("Authorization")
        if path in self.redirects:
            return 302, b"", "text/plain", {"Location": self.redirects[path]}
        if self.password is not None:
            expected = "Basic " + base64.b64encode(f"me:{self.password}".encode()).decode()
            if headers.get("Authorization") != expected:
                return 401, b"who are you", "text/plain", {}
        if path in self.raw:
            body, more = self.raw[path]
            return 200, body, self.raw_types.get(path, "application/vnd.pypi.simple.v1+json"), more
        if parts[0] == "files":
            return self._file(unquote(parts[1]), headers)
        if self.status != 200 and self.failures != 0:
            self.failures = self.failures and self.failures - 1
            return self.status, b"no", "text/plain", {"Retry-After": self.retry_after} if self.retry_after else {}
        if parts[0] == "pypi":
            version = (parts[1], parts[2])
            vulnerabilities = self.records.get(version)
            if version in self.vulnerabilities:
                vulnerabilities = [{"id": name, "withdrawn": None} for name in self.vulnerabilities[version]]
            record = json.dumps({"vulnerabilities": vulnerabilities}).encode()
            return (404, b"", "text/plain", {}) if vulnerabilities is None else (200, record, "text/json", {})
        if self.page_text is not None:
            return 200, self.page_text.encode(), self.page_type, {}
        if parts[1] not in self.entries:
            return 404, b"not found", "text/plain", {}
        status, body, kind, more = self._page(parts[1], "json" in headers.get("Accept", "") and self.json)
        if self.cache_control:
            more = {**more, "Cache-Control": self.cache_control}
        if not self.etags:
            return status, body, kind, more
        etag = f'"{hashlib.sha256(body).hexdigest()}"'
        if headers.get("If-None-Match") == etag:
            self.not_modified += 1
            return 304, b"", kind, {**more, "ETag": etag}
        return status, body, kind, {**more, "ETag": etag}

    def _file(self, name: str, headers: dict[str, str]) -> tuple[int, bytes, str, dict[str, str]]:
        body = self.files.get(name)
        if body is None or (name.endswith(".metadata") and not self.separate_metadata):
            return 404, b"not found", "text/plain", {}
        requested = headers.get("Range", "")
        if requested.startswith("bytes=") and self.ranges:
            first, _, last = requested.removeprefix("bytes=").partition("-")
            start = max(0, len(body) - int(last)) if not first else int(first)
            end = len(body) - 1 if not first or not last else min(int(last), len(body) - 1)
            piece = {"Content-Range": self.content_range or f"bytes {start}-{end}/{len(body)}"}
            return 206, body[start : end + 1], "application/octet-stream", piece
        return 200, body, "application/octet-stream", {}

    def _page(self, name: str, as_json: bool) -> tuple[int, bytes, str, dict[str, str]]:
        entries = []
        for entry in self.entries[name]:
            metadata = self.files.get(f"{entry['filename']}.metadata")
            if metadata is not None and self.separate_metadata:
                digest = "0" * 64 if self.wrong_hashes else hashlib.sha256(metadata).hexdigest()
                entry = {**entry, "core-metadata": {"sha256": digest}}
            entries.append(entry if self.sizes else {key: entry[key] for key in entry if key != "size"})
        if as_json:
            page = {"meta": {"api-version": "1.1"}, "name": name, "files": entries}
            return 200, json.dumps(page).encode(), "application/vnd.pypi.simple.v1+json", {}
        head = '<base href="/files/">' if self.base else ""
        if self.base:
            entries = [{**entry, "url": entry["filename"]} for entry in entries]
        links = head + "".join(f"<a {_attributes(entry)}>{entry['filename']}</a>\n" for entry in entries)
        return 200, f"<!DOCTYPE html><html><body>{links}</body></html>".encode(), "text/html", {}


def _attributes(entry: dict[str, Any]) -> str:
    attributes = [f'href="{entry["url"]}#sha256={entry["hashes"]["sha256"]}"']
    if "requires-python" in entry:
        attributes.append(f'data-requires-python="{html.escape(entry["requires-python"])}"')
    if "core-metadata" in entry:
        attributes.append(f'data-core-metadata="sha256={entry["core-metadata"]["sha256"]}"')
    if entry["yanked"]:
        attributes.append('data-yanked=""')
    return " ".join(attributes)
