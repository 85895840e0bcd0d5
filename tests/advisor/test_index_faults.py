"""With any fault of an index, a recommendation is right or ends with an error message and its exit code."""

from __future__ import annotations

import gzip
import io
import itertools
import shutil
import socket
import subprocess
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from packaging.utils import canonicalize_name

from advisor.index.cache import DiskCache
from advisor.index.client import IndexClient
from advisor.index.configuration import IndexConfiguration
from advisor.index.http import connection, errors
from advisor.index.http.errors import IndexUnreachableError
from advisor.resolve.candidates.index import IndexCandidates
from advisor.resolve.candidates.problem import Candidate
from advisor.resolve.optimum.solver import Effort
from advisor.resolve.recommendation.problem_variants import Selection
from advisor.resolve.recommendation.recommend import make_request, recommend
from knowledge.domain.errors import AdvisorError
from tests.advisor.factories import build_client, build_problem, score_of, versions_of
from tests.advisor.index_faults import PLACES, ROWS, Outcome, Row, drip, drip_headers, reset, send, stay_silent, table
from tests.conftest import Advisor
from tests.package_index import PackageIndex

WHEEL = "a-2.0-py3-none-any.whl"
PATHS = {"page": "/simple/a/", "metadata": f"/files/{WHEEL}.metadata", "file": f"/files/{WHEEL}"}
AUTHORITY = """
[ca]
default_ca = own
[own]
database = index.txt
new_certs_dir = .
serial = serial
default_md = sha256
policy = names
copy_extensions = copy
[names]
commonName = supplied
"""
CASES = [(row, place) for row in ROWS for place in PLACES if place in row.outcomes]


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait between retries, and do not ask a name server."""
    monkeypatch.setattr(connection, "RETRY_AFTER_SECONDS", 0.001)
    resolve = socket.getaddrinfo

    def resolve_except_invalid(host: str, *arguments: object, **options: object) -> object:
        if host == "index.invalid":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return resolve(host, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", resolve_except_invalid)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Invalid certificates with their keys: self-signed, expired, and for another host."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    (folder / "ca.cnf").write_text(AUTHORITY)
    (folder / "index.txt").touch()
    (folder / "serial").write_text("01")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "key.pem"]
    times = ["-startdate", "20200101000000Z", "-enddate", "20210101000000Z"]
    own_name, other_name = "subjectAltName=IP:127.0.0.1", "subjectAltName=DNS:example.org"
    paths = {}
    kinds: tuple[tuple[str, str, list[str]], ...] = (
        ("self-signed", own_name, []),
        ("expired", own_name, times),
        ("other name", other_name, []),
    )
    for name, host, options in kinds:
        request = ["req", *key, "-subj", f"/CN={name}", "-addext", host, "-out", "request.pem"]
        sign = ["ca", "-batch", "-config", "ca.cnf", "-selfsign", "-keyfile", "key.pem", "-notext", "-days", "9"]
        for command in (request, [*sign, *options, "-in", "request.pem", "-out", "certificate.pem"]):
            subprocess.run(["openssl", *command], check=True, capture_output=True, cwd=folder)
        paths[name] = folder / f"{name}.pem"
        paths[name].write_bytes((folder / "key.pem").read_bytes() + (folder / "certificate.pem").read_bytes())
    return paths


class Clock:
    """A clock that advances by a second at each reading, separately in each thread."""

    def __init__(self) -> None:
        self._local = threading.local()

    def monotonic(self) -> float:
        if not hasattr(self._local, "count"):
            self._local.count = itertools.count()
        return float(next(self._local.count))


def wheel(requirement: str) -> bytes:
    """Return a wheel whose metadata is not in the same part as the end of the file."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        text = f"Metadata-Version: 2.2\nName: a\nVersion: 2.0\nRequires-Dist: {requirement}\n"
        archive.writestr(zipfile.ZipInfo("a-2.0.dist-info/METADATA"), text)
        archive.writestr(zipfile.ZipInfo("a/__init__.py"), "#" * 300_000)
    return content.getvalue()


def replace_file(index: PackageIndex, *, between_parts: bool) -> None:
    """Replace the listed file by another one, at once or after its first part was read."""
    path = PATHS["file"]
    index.files[WHEEL] = wheel("b>=1")
    index.entries["a"] = [entry for entry in index.entries["a"] if entry["filename"] != WHEEL]
    index.add_file("a", WHEEL, index.files[WHEEL])

    def answer(request: BaseHTTPRequestHandler) -> None:
        if not between_parts or index.tries[path] > 1:
            index.files[WHEEL] = wheel("c>=1" if between_parts else "something-longer>=1")
        status, body, kind, more = index.answer(path, dict(request.headers.items()))
        send(body, status=status, kind=kind, ETag=f'"{index.tries[path]}"', **more)(request)

    index.faults[path] = answer


def other_host(row: Row, index: PackageIndex, certificates: dict[str, Path], exit_stack: ExitStack) -> str:
    """Return the address of another server with the same files."""
    if row.host == "unknown":
        return "http://index.invalid"
    if row.host == "refused":
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            return f"http://127.0.0.1:{unused.getsockname()[1]}"
    served = PackageIndex(certificate=certificates.get(row.host), files=index.files, entries=index.entries)
    served.separate_metadata = index.separate_metadata
    return exit_stack.enter_context(served).url.replace("http:", "https:").removesuffix("/simple/")


def attempt(
    configuration: IndexConfiguration, cache: Path
) -> tuple[tuple[Candidate, ...], IndexCandidates, AdvisorError | None]:
    """Recommend a stack for `a`; return the stack or the error."""
    client = IndexClient(configuration, cache=DiskCache(cache))
    problem = build_problem("a")
    source = IndexCandidates(client, problem)
    try:
        request = make_request(problem, score_of(problem, source), Effort())
        return recommend(Selection(request=request)).optimum.stack, source, None
    except AdvisorError as error:
        return (), source, error
    finally:
        client.close()


def shorten_timeout(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the timeout of requests for one path."""
    request = requests.Session.request

    def request_with_short_timeout(session: requests.Session, method: str, url: str, **named: Any) -> requests.Response:
        return request(session, method, url, **(named | ({"timeout": 0.05} if url.endswith(path) else {})))

    monkeypatch.setattr(requests.Session, "request", request_with_short_timeout)


def check_message(error: AdvisorError, expected: Outcome, place: str) -> None:
    """Check that an error names the cause, the place and a hint."""
    text = " ".join([error.message, *getattr(error, "details", ())])
    assert expected.message in text
    assert "\n" not in error.message
    if expected.exit_code == 4:
        assert PATHS[place] in error.message
        assert error.hint


@pytest.fixture
def exit_stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize(("row", "place"), CASES, ids=lambda value: value.name if isinstance(value, Row) else value)
def test_a_fault_of_an_index_has_the_documented_outcome(
    row: Row,
    place: str,
    index: PackageIndex,
    tmp_path: Path,
    certificates: dict[str, Path],
    exit_stack: ExitStack,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index.add("a", "1.0", ["b>=1"])
    index.add("b", "1.0", code="")
    index.add("a", "2.0", ["b>=1"])
    index.separate_metadata = place != "file"
    configuration = IndexConfiguration(default=index.url)
    if row.host in ("changed", "changing") and place == "file":
        replace_file(index, between_parts=row.host == "changing")
    elif row.host == "changed":
        index.faults[PATHS[place]] = send(b"Metadata-Version: 2.2\nName: a\nVersion: 2.0\nRequires-Dist: c\n")
    elif row.host:
        base = other_host(row, index, certificates, exit_stack)
        trusted = certificates.get(row.host) if row.host != "self-signed" else None
        configuration = IndexConfiguration(
            default=f"{base}/simple/" if place == "page" else index.url, certificate=str(trusted) if trusted else None
        )
        index.entries["a"][1]["url"] = f"{base}/files/{WHEEL}"
    elif row.answer is not None:
        index.faults[PATHS[place]] = row.answer
    if row.answer is stay_silent:
        shorten_timeout(PATHS[place], monkeypatch)
    if row.answer in (drip, drip_headers):
        monkeypatch.setattr(errors, "time", SimpleNamespace(monotonic=Clock().monotonic))
    expected = row.outcomes[place]

    stack, source, error = attempt(configuration, tmp_path)

    assert (error.exit_code if error else 0) == expected.exit_code, error
    if error is None:
        assert versions_of(stack) == {"a": "2.0" if place == "metadata" else "1.0", "b": "1.0"}
        assert expected.message in " ".join(skipped.reason for skipped in source.skipped())
    else:
        check_message(error, expected, place)
    if PATHS[place] in index.faults:
        # The client may give up before the server counts the request.
        for _ in range(1000):
            if index.tries[PATHS[place]] >= expected.tries:
                break
            time.sleep(0.01)
        assert index.tries[PATHS[place]] == expected.tries


def test_the_documentation_has_the_table_of_faults() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "evidence" / "reliability.md"

    assert table() in page.read_text(encoding="utf-8"), "put in what `python -m tests.advisor.index_faults` prints"


def test_a_broken_connection_is_retried(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "2.0", ["b>=1"])
    page = index.answer(PATHS["page"], {"Accept": "json"})[1]

    def once(request: BaseHTTPRequestHandler) -> None:
        (reset if index.tries[PATHS["page"]] == 1 else send(page))(request)

    index.faults[PATHS["page"]] = once
    client = build_client(index, tmp_path)

    assert [file.filename for file in client.files(canonicalize_name("a"))] == [WHEEL]


def test_a_truncated_compressed_page_is_an_error(index: PackageIndex, tmp_path: Path) -> None:
    links = "".join(f'<a href="{n}">a-{n}.0-py3-none-any.whl</a>' for n in range(500))
    whole = gzip.compress(f"<html><body>{links}</body></html>".encode())
    index.faults[PATHS["page"]] = send(whole[: len(whole) // 2], kind="text/html", Content_Encoding="gzip")

    with pytest.raises(IndexUnreachableError, match="the compressed answer is truncated, 4 attempts") as caught:
        build_client(index, tmp_path).files(canonicalize_name("a"))

    assert caught.value.exit_code == 4
    assert index.tries[PATHS["page"]] == 4


@pytest.mark.parametrize("cut", [1, 8, 9])
def test_a_compressed_page_without_its_checksum_is_an_error(index: PackageIndex, tmp_path: Path, cut: int) -> None:
    whole = gzip.compress(f'<a href="x">{WHEEL}</a>'.encode())
    index.faults[PATHS["page"]] = send(whole[:-cut], kind="text/html", Content_Encoding="gzip")

    with pytest.raises(IndexUnreachableError, match="the compressed answer is truncated"):
        build_client(index, tmp_path).files(canonicalize_name("a"))


def test_a_compressed_page_of_several_members_is_read(index: PackageIndex, tmp_path: Path) -> None:
    links = f'<a href="x">{WHEEL}</a>', '<a href="y">a-1.0-py3-none-any.whl</a>'
    body = b"".join(gzip.compress(link.encode()) for link in links)
    index.faults[PATHS["page"]] = send(body, kind="text/html", Content_Encoding="x-gzip")

    files = build_client(index, tmp_path).files(canonicalize_name("a"))

    assert [file.filename for file in files] == [WHEEL, "a-1.0-py3-none-any.whl"]


def test_an_interrupted_download_is_repeated_from_the_start(index: PackageIndex, tmp_path: Path) -> None:
    content = bytes(range(256)) * 1000
    index.add_file("a", "a-2.0.tar.gz", content)

    def once(request: BaseHTTPRequestHandler) -> None:
        whole = index.tries["/files/a-2.0.tar.gz"] > 1
        send(content if whole else content[:200_000], Content_Length=str(len(content)))(request)
        request.close_connection = True

    index.faults["/files/a-2.0.tar.gz"] = once
    client = build_client(index, tmp_path)
    (sdist,) = client.files(canonicalize_name("a"))

    with client.transport.download(sdist.url) as (file, digest):
        assert (file.read(), digest) == (content, sdist.sha256)
    assert index.tries["/files/a-2.0.tar.gz"] == 2


def test_responses_through_a_proxy_have_a_deadline(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "time", SimpleNamespace(monotonic=Clock().monotonic))
    monkeypatch.setenv("http_proxy", index.url.removesuffix("/simple/"))
    monkeypatch.delenv("no_proxy", raising=False)
    index.faults["http://example.org/simple/a/"] = drip
    client = IndexClient(IndexConfiguration(default="http://example.org/simple/"), cache=DiskCache(tmp_path))

    with pytest.raises(IndexUnreachableError, match=r"example\.org/simple/a/`: the answer was not complete after 300"):
        client.files(canonicalize_name("a"))


def test_a_command_ends_with_a_message_a_hint_and_the_exit_code(
    index: PackageIndex, tmp_path: Path, advisor_here: Advisor
) -> None:
    index.add("a", "2.0", ["b>=1"], code="")
    index.faults[PATHS["metadata"]] = reset
    (tmp_path / "requirements.txt").write_text("a\n")

    result = advisor_here("advise", "--index-url", index.url, "--hardware", "cpu-zen4", "--python", "3.12")

    assert result.returncode == 4
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f"error: the index could not be read at `{index.url.removesuffix('/simple/')}{PATHS['metadata']}`: "
        "the connection was closed before the answer was complete, 4 attempts",
        "hint: check the address and the network, or use `--offline` to answer from the cache",
    ]
