"""Known vulnerabilities from a local copy of an advisory database and from a service with the API of OSV."""

from __future__ import annotations

import json
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from packaging.utils import canonicalize_name
from packaging.version import Version

from advisor.index.cache import DiskCache
from advisor.index.client import IndexClient
from advisor.index.configuration import IndexConfiguration
from advisor.index.vulnerabilities.database import AdvisoryDatabase, read_records
from knowledge.domain.errors import InputError
from tests.conftest import Advisor
from tests.package_index import PackageIndex

RECORDS = Path(__file__).parents[1] / "fixtures" / "advisories"
TIME = "2026-02-01T00:00:00Z"


def record(identifier: str = "GHSA-1", **changes: Any) -> dict[str, Any]:
    events = [{"introduced": "1.0"}, {"fixed": "1.5"}, {"introduced": "2.0"}, {"last_affected": "2.2"}]
    affected = {
        "package": {"ecosystem": "PyPI", "name": "A.Package"},
        "ranges": [{"type": "ECOSYSTEM", "events": events}],
    }
    return {"id": identifier, "modified": "2026-01-01T00:00:00Z", "affected": [affected], **changes}


def database(folder: Path, *records: dict[str, Any]) -> AdvisoryDatabase:
    base = AdvisoryDatabase(folder / "advisories.sqlite")
    base.add((f"record {number}", one) for number, one in enumerate(records))
    return base


@pytest.mark.parametrize(
    ("version", "affected"),
    [
        *(("0.9", False), ("1.0", True), ("1.4.9", True), ("1.5", False), ("1.5rc1", True), ("1.4+cu118", True)),
        *(("2.0", True), ("2.2", True), ("2.2.post1", False), ("3.0", False), ("1.9", False)),
    ],
)
def test_ranges_decide_whether_a_version_is_affected(tmp_path: Path, version: str, affected: bool) -> None:
    base = database(tmp_path, record())

    assert base.vulnerabilities("a-package", Version(version)) == (("GHSA-1",) if affected else ())


def test_listed_versions_are_affected(tmp_path: Path) -> None:
    package = {"ecosystem": "PyPI", "name": "a"}
    base = database(
        tmp_path,
        record("X-1", affected=[{"package": package, "versions": ["1.0.0rc1", "strange"]}]),
        record(
            "X-2", affected=[{"package": package, "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}]}]
        ),
        record("X-3", affected=[{"package": package, "ranges": [{"type": "GIT", "events": [{"introduced": "0"}]}]}]),
    )

    assert base.vulnerabilities("a", Version("1.0rc1")) == ("X-1", "X-2")
    assert base.vulnerabilities("b", Version("1.0rc1")) == ()


def test_aliases_count_once(tmp_path: Path) -> None:
    base = database(tmp_path, record("PYSEC-1", aliases=["GHSA-1", "CVE-1"]), record("GHSA-1", aliases=["CVE-1"]))

    assert base.vulnerabilities("a-package", Version("1.0")) == ("GHSA-1",)


def test_later_records_replace_and_withdraw_earlier_ones(tmp_path: Path) -> None:
    base = database(tmp_path, record("X-1"), record("X-2"))

    changed = base.add([("1", record("X-1", affected=[])), ("2", record("X-2") | {"withdrawn": TIME})])

    assert (changed.stored, changed.removed, changed.skipped) == (0, 1, 1)
    assert AdvisoryDatabase(tmp_path / "advisories.sqlite").count() == 0


def test_a_damaged_record_stores_nothing(tmp_path: Path) -> None:
    base = database(tmp_path, record("X-1"))

    with pytest.raises(InputError, match="second is not a record in the OSV format"):
        base.add([("first", record("X-2")), ("second", {"id": "X-3", "affected": ["x"]})])

    assert base.count() == 1


def test_archives_and_directories_are_read(tmp_path: Path) -> None:
    (tmp_path / "records" / "deep").mkdir(parents=True)
    (tmp_path / "records" / "deep" / "1.json").write_text(json.dumps(record("X-1")))
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("X-2.json", json.dumps(record("X-2")))

    for source in ("records", "all.zip", "records/deep/1.json"):
        assert [one["id"] for _, one in read_records(tmp_path / source)] == (["X-2"] if "zip" in source else ["X-1"])


@pytest.mark.parametrize(
    ("name", "version", "identifiers"),
    [
        ("torch", "1.13.0", ("PYSEC-2022-43015",)),
        ("torch", "1.13.0+cu117", ("PYSEC-2022-43015",)),
        ("torch", "1.13.1", ()),
        ("torch", "1.10.2", ("PYSEC-2022-43015",)),
        ("pillow", "10.0.0", ("GHSA-j7hp-h8jx-5ppr",)),
        ("pillow", "10.0.1", ()),
        ("electron", "27.0.0b1", ()),
    ],
)
def test_real_records_of_both_databases_are_read(
    tmp_path: Path, name: str, version: str, identifiers: tuple[str, ...]
) -> None:
    base = AdvisoryDatabase(tmp_path / "advisories.sqlite")

    imported = base.add(read_records(RECORDS))

    assert (imported.stored, imported.skipped) == (2, 0)
    assert base.vulnerabilities(name, Version(version)) == identifiers


def test_a_checkout_of_a_database_is_read_without_its_hidden_files(tmp_path: Path) -> None:
    for folder in ("vulns/torch", ".github/workflows"):
        (tmp_path / folder).mkdir(parents=True)
    real = (RECORDS / "PYSEC-2022-43015.yaml").read_text()
    (tmp_path / "vulns" / "torch" / "x.yaml").write_text(real)
    (tmp_path / ".github" / "workflows" / "ci.yaml").write_text("on: push\n")
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.write(tmp_path / "vulns" / "torch" / "x.yaml", "database-main/vulns/torch/x.yaml")

    for source in (tmp_path, tmp_path / "all.zip"):
        assert [one["id"] for _, one in read_records(source)] == ["PYSEC-2022-43015"]


@pytest.mark.parametrize("absent", ["null", "~", "", "Null"])
def test_absent_values_of_yaml_are_absent(tmp_path: Path, absent: str) -> None:
    real = (
        (RECORDS / "PYSEC-2022-43015.yaml").read_text().replace("aliases:\n- CVE-2022-45907\n", f"aliases: {absent}\n")
    )
    key = "withdrawn"
    (tmp_path / "x.yaml").write_text(f"{real}{key}: {absent}\n")
    base = AdvisoryDatabase(tmp_path / "advisories.sqlite")

    imported = base.add(read_records(tmp_path / "x.yaml"))

    assert imported.stored == 1
    assert base.vulnerabilities("torch", Version("1.10.0")) == ("PYSEC-2022-43015",)


@pytest.mark.parametrize("text", ["a: &x [1]\nb: *x\n", "a: [", "\x00"])
def test_malformed_yaml_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.yaml").write_text(text)

    with pytest.raises(InputError, match=r"x\.yaml"):
        list(read_records(tmp_path))


@pytest.mark.parametrize("content", [b"", b"not json", b"PK\x03\x04 broken"])
def test_files_of_other_formats_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)

    with pytest.raises(InputError, match=r"x\.json"):
        list(read_records(tmp_path / "x.json"))


def test_an_imported_database_is_used_offline(advisor: Advisor, index: PackageIndex, tmp_path: Path) -> None:
    for version in ("1.0", "1.5"):
        index.add("a-package", version)
    (tmp_path / "requirements.in").write_text("a-package\n")
    (tmp_path / "record.json").write_text(json.dumps(record()))

    stored = advisor("knowledge", "import-advisories", "record.json")
    (tmp_path / "requirements.txt").write_text("a-package==1.0\n")
    checked = advisor("check", "--index-url", index.url, "--current", "requirements.txt")

    assert "1 advisories stored" in stored.stdout
    assert "has the known vulnerability GHSA-1" in checked.stdout


# The service


class Service:
    """A service with the API of OSV, which knows one vulnerability of each package in `known`."""

    def __init__(self) -> None:
        self.known: dict[str, list[str]] = {}
        self.requests: list[list[dict[str, Any]]] = []
        self.body: bytes | None = None

    def answer(self, queries: list[dict[str, Any]]) -> bytes:
        self.requests.append(queries)
        if self.body is not None:
            return self.body
        return json.dumps({"results": [self._result(query) for query in queries]}).encode()

    def _result(self, query: dict[str, Any]) -> dict[str, Any]:
        names = self.known.get(query["package"]["name"], [])
        page = int(query.get("page_token", "0"))
        result: dict[str, Any] = {"vulns": [{"id": names[page], "modified": "x"}]} if page < len(names) else {}
        return result | ({"next_page_token": str(page + 1)} if page + 1 < len(names) else {})


@contextmanager
def running(service: Service) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            body = service.answer(json.loads(content)["queries"])
            self.send_response(200 if self.path == "/v1/querybatch" else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def client_of(index: PackageIndex, cache: Path, address: str, *, offline: bool = False) -> IndexClient:
    configuration = IndexConfiguration(default=index.url, timeout_seconds=2)
    return IndexClient(configuration, cache=DiskCache(cache), offline=offline, advisory_service=address)


def vulnerabilities(client: IndexClient, *names: str) -> list[tuple[str, ...] | None]:
    files = [(client.files(canonicalize_name(name))[0], name, "1.0+cpu") for name in names]
    client.prefetch_vulnerabilities(files)
    for _, future in client._records.started().items():
        future.result()
    return [client.vulnerabilities(*one) for one in files]


def test_versions_without_a_record_are_asked_for_in_one_request(index: PackageIndex, tmp_path: Path) -> None:
    service = Service()
    service.known = {"a": ["X-2", "X-1"]}
    for name in ("a", "b"):
        index.add(name, "1.0")
    with running(service) as address:
        answers = vulnerabilities(client_of(index, tmp_path, address), "a", "b")
    offline = vulnerabilities(client_of(index, tmp_path, address, offline=True), "a", "b")

    assert answers == offline == [("X-1", "X-2"), ()]
    # The second request is for the second page.
    assert [[query["package"]["name"] for query in queries] for queries in service.requests] == [["a", "b"], ["a"]]
    assert service.requests[0][0]["version"] == "1.0"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"results": 1}',
        b'{"results": []}',
        b'{"results": [{"vulns": 3}]}',
        b'{"results": [{"vulns": [{}]}]}',
    ],
)
def test_a_service_that_answers_otherwise_is_not_used(
    index: PackageIndex, tmp_path: Path, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service()
    service.body = body
    index.add("a", "1.0")
    with running(service) as address:
        assert vulnerabilities(client_of(index, tmp_path, address), "a") == [None]

    assert "does not answer like OSV" in caplog.text


def test_a_service_that_cannot_be_reached_is_not_used(
    index: PackageIndex, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    index.add("a", "1.0")
    index.add("b", "1.0")
    client = client_of(index, tmp_path, "http://127.0.0.1:9")

    assert vulnerabilities(client, "a") == [None]
    assert vulnerabilities(client, "b") == [None]
    # It is not asked again for a while.
    assert caplog.text.count("the service for known vulnerabilities is not used") == 1


def test_the_address_of_the_service_is_checked(advisor: Advisor, index: PackageIndex, tmp_path: Path) -> None:
    (tmp_path / "requirements.in").write_text("a\n")

    result = advisor("advise", "--index-url", index.url, "--advisories", "osv")

    assert result.returncode == 2
    assert "`osv` is not the address of a service" in result.stderr
