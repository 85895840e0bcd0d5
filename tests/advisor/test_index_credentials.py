"""Credentials are sent only to the scheme, host and port that they are configured for."""

from __future__ import annotations

import base64
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer

import pytest
from packaging.utils import canonicalize_name

from advisor.index.cache import DiskCache
from advisor.index.client import IndexClient
from advisor.index.configuration import IndexConfiguration, origin_of
from advisor.index.http.errors import IndexUnreachableError
from knowledge.domain.errors import InputError
from tests.package_index import PackageIndex

A = canonicalize_name("a")
PAGE, FILE = "/simple/a/", "/files/a-1.0-py3-none-any.whl"
SENT = "Basic " + base64.b64encode(b"me:hunter2").decode()


@pytest.fixture(autouse=True)
def no_netrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for the loopback address, with its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    path = tmp_path_factory.mktemp("tls") / "own.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    files = ["-keyout", str(path), "-out", f"{path}.certificate"]
    subprocess.run(["openssl", "req", "-x509", *key, *subject, *files], check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + Path(f"{path}.certificate").read_bytes())
    return path


def with_credentials(url: str) -> str:
    return url.replace("://", "://me:hunter2@")


def read(configuration: IndexConfiguration, cache: Path) -> None:
    """Read a page, and a wheel by range requests."""
    client = IndexClient(configuration, cache=DiskCache(cache))
    (file,) = client.files(A)
    client.metadata(file)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://example.org/simple", "https://EXAMPLE.org:443/files/x", True),
        ("https://me:pw@example.org/", "https://example.org/", True),
        ("http://example.org", "http://example.org:80", True),
        ("http://example.org", "https://example.org", False),
        ("https://example.org", "https://example.org:8443", False),
        ("http://example.org:443", "https://example.org", False),
        ("https://example.org", "https://files.example.org", False),
        ("https://example.org@evil.org", "https://example.org", False),
    ],
)
def test_an_origin_is_scheme_host_and_port(one: str, other: str, same: bool) -> None:
    assert (origin_of(one) == origin_of(other)) is same


def test_credentials_are_sent_to_their_origin(index: PackageIndex, tmp_path: Path) -> None:
    index.separate_metadata = False
    index.add("a", "1.0")

    read(IndexConfiguration(default=with_credentials(index.url)), tmp_path)

    assert index.authorizations == {PAGE: SENT, FILE: SENT}


def test_credentials_for_https_are_not_sent_over_http(index: PackageIndex, tmp_path: Path) -> None:
    index.separate_metadata = False
    index.add("a", "1.0")
    secure = with_credentials(index.url).replace("http://", "https://")

    read(IndexConfiguration(default=index.url, bindings={"b": secure}), tmp_path)

    assert index.authorizations == {PAGE: None, FILE: None}


def test_a_file_at_another_port_is_read_without_credentials(index: PackageIndex, tmp_path: Path) -> None:
    with PackageIndex(separate_metadata=False) as elsewhere:
        for one in (index, elsewhere):
            one.add("a", "1.0")
        index.separate_metadata = False
        index.entries["a"][0]["url"] = elsewhere.url.replace("/simple/", FILE)

        read(IndexConfiguration(default=with_credentials(index.url)), tmp_path)

    assert index.authorizations == {PAGE: SENT}
    assert elsewhere.authorizations == {FILE: None}


@pytest.mark.parametrize("separate_metadata", [True, False])
def test_a_redirect_carries_credentials_only_within_their_origin(
    index: PackageIndex, tmp_path: Path, separate_metadata: bool
) -> None:
    suffix = ".metadata" if separate_metadata else ""
    with PackageIndex() as elsewhere:
        for one in (index, elsewhere):
            one.separate_metadata = separate_metadata
            one.add("a", "1.0")
        index.redirects[PAGE] = "/simple/a/?moved"
        index.redirects[FILE + suffix] = elsewhere.url.replace("/simple/", FILE + suffix)

        read(IndexConfiguration(default=with_credentials(index.url)), tmp_path)

    assert index.authorizations == {PAGE: SENT, f"{PAGE}?moved": SENT, FILE + suffix: SENT}
    assert elsewhere.authorizations == {FILE + suffix: None}


def test_a_redirect_from_https_to_http_carries_no_credentials(
    index: PackageIndex, tmp_path: Path, certificate: Path
) -> None:
    index.add("a", "1.0")
    index.entries["a"][0]["url"] = index.url.replace("/simple/", FILE)
    with PackageIndex(certificate=certificate) as secure:
        secure.redirects[PAGE] = f"{index.url}a/"

        read(IndexConfiguration(default=with_credentials(secure.url), certificate=str(certificate)), tmp_path)

    assert secure.authorizations == {PAGE: SENT}
    assert set(index.authorizations.values()) == {None}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("machine 127.0.0.1 login me password hunter2", SENT),
        ("machine example.org login me password hunter2", None),
        ("default login me password hunter2", None),
        ("machine 127.0.0.1 login", None),
    ],
)
def test_netrc_is_read_for_the_hosts_of_indexes_over_https(
    index: PackageIndex, tmp_path: Path, certificate: Path, text: str, expected: str | None
) -> None:
    (tmp_path / "netrc").write_text(text)
    index.add("a", "1.0")
    with PackageIndex(certificate=certificate) as secure:
        secure.add("a", "1.0")
        secure.redirects[f"{FILE}.metadata"] = index.url.replace("/simple/", f"{FILE}.metadata")

        read(IndexConfiguration(default=secure.url, certificate=str(certificate)), tmp_path / "https")
        read(IndexConfiguration(default=index.url), tmp_path / "http")

    assert secure.authorizations == {PAGE: expected, f"{FILE}.metadata": expected}
    assert set(index.authorizations.values()) == {None}


@contextmanager
def tunnel() -> Iterator[tuple[str, list[str]]]:
    """Run an HTTP proxy; yield its address and the list of requested hosts."""
    hosts: list[str] = []

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            host = self.rfile.readline().split()[1].decode()
            while self.rfile.readline().strip():
                pass
            hosts.append(host)
            with socket.create_connection(("127.0.0.1", int(host.rpartition(":")[2]))) as there:
                self.wfile.write(b"HTTP/1.1 200 ok\r\n\r\n")
                back = threading.Thread(target=copy, args=(there, self.connection), daemon=True)
                back.start()
                copy(self.connection, there)
                back.join(5)

    def copy(one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while content := one.recv(65536):
                other.sendall(content)
            other.shutdown(socket.SHUT_WR)

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", hosts
        server.shutdown()
        server.block_on_close = False


def test_an_index_with_its_own_certificate_is_read_through_a_proxy(
    tmp_path: Path, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with PackageIndex(certificate=certificate) as secure, tunnel() as (proxy, hosts):
        monkeypatch.setenv("https_proxy", proxy)
        secure.add("a", "1.0")

        read(IndexConfiguration(default=secure.url, certificate=str(certificate)), tmp_path)

    assert set(hosts) == {secure.url.split("/")[2]}


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/a", "http://[::1", "gopher:x"])
def test_redirects_are_followed_only_to_http_and_https(index: PackageIndex, tmp_path: Path, location: str) -> None:
    index.redirects[PAGE] = location

    with pytest.raises(IndexUnreachableError, match="is not an HTTP address"):
        read(IndexConfiguration(default=index.url), tmp_path)


def test_the_number_of_redirects_is_limited(index: PackageIndex, tmp_path: Path) -> None:
    index.redirects[PAGE] = PAGE

    with pytest.raises(IndexUnreachableError, match="more than 10 redirects"):
        read(IndexConfiguration(default=index.url), tmp_path)


def test_the_error_of_a_malformed_address_hides_its_credentials(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="`http://example.org:port/simple` is malformed"):
        IndexClient(IndexConfiguration(default="http://me:pw@example.org:port/simple"), cache=DiskCache(tmp_path))
