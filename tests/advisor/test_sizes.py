"""Sizes of stacks: how much is downloaded and installed, and what an index that does not state them costs."""

from __future__ import annotations

import io
import json
import time
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name
from packaging.version import Version

from advisor.domain.words import size_text
from advisor.index.client import IndexClient
from advisor.index.metadata import file_sizes
from advisor.locks.lock import LockedFile, LockedVersion
from advisor.report.advice.sizes import size_lines, treemap
from advisor.resolve.candidates.index import IndexCandidates
from advisor.resolve.candidates.problem import Candidate
from advisor.resolve.explanation.sizes import AdviceSizes, PackageSize, StackSizes, read_sizes
from tests.advisor.factories import build_client, build_problem
from tests.conftest import Advisor
from tests.package_index import PackageIndex

A, B = canonicalize_name("a"), canonicalize_name("b")
WHEEL = "a-1.0-py3-none-any.whl"
MB = 10**6


@pytest.fixture
def clients(index: PackageIndex, tmp_path: Path) -> Iterator[list[IndexClient]]:
    """Clients that are closed after the test."""
    opened: list[IndexClient] = []
    yield opened
    for client in opened:
        client.close()


@pytest.fixture
def client(index: PackageIndex, tmp_path: Path, clients: list[IndexClient]) -> IndexClient:
    """A client of the index."""
    clients.append(build_client(index, tmp_path / "cache"))
    return clients[0]


def candidates_of(client: IndexClient, *names: str) -> tuple[IndexCandidates, list[Candidate]]:
    """Return the source of some packages and the newest candidate of each."""
    source = IndexCandidates(client, build_problem(*names))
    return source, [source.candidates(canonicalize_name(name))[0] for name in names]


def sizes_of(client: IndexClient, *names: str) -> AdviceSizes:
    """Return the sizes of the newest candidates of some packages."""
    source, stack = candidates_of(client, *names)
    return read_sizes(client, source, stack)


def unpacked(content: bytes) -> int:
    """Return the unpacked size of a wheel, by reading the whole of it."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return sum(len(archive.read(name)) for name in archive.namelist())


@pytest.mark.parametrize("on_page", [True, False])
def test_sizes_are_those_of_the_files(index: PackageIndex, client: IndexClient, on_page: bool) -> None:
    index.sizes = on_page
    index.add("a", "1.0")
    index.add("b", "1.0", code="x" * 1000)

    sizes = sizes_of(client, "a", "b")

    expected = [
        (len(content), unpacked(content)) for content in (index.files[f"{n}-1.0-py3-none-any.whl"] for n in "ab")
    ]
    assert [(p.download, p.installed) for p in sizes.stack.packages] == expected
    assert (sizes.stack.total("download"), sizes.stack.unknown("download")) == (sum(d for d, _ in expected), 0)
    assert sizes.findings == ()
    assert sizes.final


def test_only_the_end_of_a_wheel_is_downloaded(index: PackageIndex, client: IndexClient) -> None:
    index.add("a", "1.0", code="x" * 5_000_000)
    sent: list[int] = []
    answer = index._file

    def count(name: str, headers: dict[str, str]) -> tuple[int, bytes, str, dict[str, str]]:
        response = answer(name, headers)
        sent.append(len(response[1]))
        return response

    index._file = count  # type: ignore[method-assign]
    sizes = sizes_of(client, "a")

    assert sizes.stack.total("installed") > 5_000_000
    assert sum(sent) < 200_000
    assert client.transport.request_counts["ranged"] == 1


def test_sizes_that_are_read_with_the_metadata_need_no_request(index: PackageIndex, client: IndexClient) -> None:
    index.separate_metadata = index.sizes = False
    index.add("a", "1.0")
    _, (candidate,) = candidates_of(client, "a")
    client.metadata(candidate.file)
    before = client.transport.request_counts.copy()

    sizes = sizes_of(client, "a")

    assert sizes.stack.packages[0].installed == unpacked(index.files[WHEEL])
    assert client.transport.request_counts == before


def test_a_file_of_stack_and_baseline_is_read_once(index: PackageIndex, client: IndexClient) -> None:
    for name in "ab":
        index.add(name, "1.0")
    source, stack = candidates_of(client, "a", "b")

    client.file_sizes.prefetch(candidate.file for candidate in stack)
    sizes = read_sizes(client, source, stack[:1], baseline=stack)

    assert sizes.baseline is not None
    assert len(sizes.baseline.packages) == 2
    assert client.transport.request_counts["ranged"] == 2


def test_no_whole_file_is_downloaded_from_a_server_without_ranges(index: PackageIndex, client: IndexClient) -> None:
    index.ranges = False
    sent: list[int] = []

    def send_gigabytes(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(4 * 10**9))
        handler.end_headers()
        for _ in range(4000 if handler.command == "GET" else 0):
            try:
                sent.append(handler.wfile.write(b"x" * MB))
            except OSError:
                return

    names = [f"p{number}" for number in range(20)]
    for name in names:
        index.add(name, "1.0")
        index.faults[f"/files/{name}-1.0-py3-none-any.whl"] = send_gigabytes

    sizes = sizes_of(client, *names)

    assert sizes.stack.unknown("installed") == 20
    assert sizes.stack.unknown("download") == 0
    assert [(f.code, f.severity) for f in sizes.findings] == [("ADV114", "note")]
    assert "20 packages" in sizes.findings[0].message
    assert "does not support range requests" in sizes.findings[0].message
    assert sizes.final
    assert sizes.stack.best_known == "download"
    # Only as much as fits into buffers; requests that had started when the first failed may do the same.
    assert sum(sent) < 200 * MB
    assert client.transport.request_counts["GET"] == 20, "the pages of the packages"


def test_a_server_that_hangs_costs_one_time_out(
    index: PackageIndex, tmp_path: Path, clients: list[IndexClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    index.sizes = False
    names = [f"p{number}" for number in range(40)]
    for name in names:
        index.add(name, "1.0")
        index.faults[f"/files/{name}-1.0-py3-none-any.whl"] = lambda _: time.sleep(20)
    clients.append(build_client(index, tmp_path / "cache"))
    for limit in ("SECONDS", "WAIT_SECONDS"):
        monkeypatch.setattr(file_sizes, limit, 1.0)
    source, stack = candidates_of(clients[0], *names)

    start = time.monotonic()
    sizes = read_sizes(clients[0], source, stack)
    again = read_sizes(clients[0], source, stack)

    assert time.monotonic() - start < 4
    assert sizes.stack.unknown("download") == 40
    assert {f.code for f in (*sizes.findings, *again.findings)} == {"ADV114"}
    assert not sizes.final


def test_cached_sizes_do_not_depend_on_the_server(
    index: PackageIndex, client: IndexClient, tmp_path: Path, clients: list[IndexClient]
) -> None:
    index.add("a", "1.0")
    index.add("b", "1.0")
    cached = sizes_of(client, "a").stack.packages
    index.faults["/files/b-1.0-py3-none-any.whl"] = lambda handler: handler.send_error(403)
    clients.append(build_client(index, tmp_path / "cache"))

    (a, b) = sizes_of(clients[1], "a", "b").stack.packages

    assert (a,) == cached
    assert b.installed is None


def test_offline_sizes_come_from_the_cache(
    index: PackageIndex, client: IndexClient, tmp_path: Path, clients: list[IndexClient]
) -> None:
    index.add("a", "1.0")
    index.add("b", "1.0")
    client.files(B)
    sizes_of(client, "a")
    clients.append(build_client(index, tmp_path / "cache", offline=True))

    sizes = sizes_of(clients[1], "a", "b")

    assert [p.installed is None for p in sizes.stack.packages] == [False, True]
    assert "`--offline`" in sizes.findings[0].message
    assert not sizes.final


def test_an_sdist_has_no_installed_size(index: PackageIndex, client: IndexClient) -> None:
    index.add_sdist("a", "1.0")

    sizes = sizes_of(client, "a")

    assert [(p.download, p.installed) for p in sizes.stack.packages] == [(len(index.files["a-1.0.tar.gz"]), None)]
    assert sizes.findings == ()


def test_an_impossible_size_is_not_believed(index: PackageIndex, client: IndexClient) -> None:
    index.add("a", "1.0", code="")
    content = bytearray(index.files[WHEEL])
    first = content.rindex(b"PK\x01\x02", 0, content.index(b"PK\x01\x02") + 4)
    # A member with a size of 64 bits (APPNOTE.TXT, 4.5.3): all ones in the entry, the size in an extra field.
    extra = b"\x01\x00\x08\x00" + (2**64 - 1).to_bytes(8, "little")
    name_length = int.from_bytes(content[first + 28 : first + 30], "little")
    content[first + 24 : first + 28] = b"\xff" * 4
    content[first + 30 : first + 32] = len(extra).to_bytes(2, "little")
    content[first + 46 + name_length : first + 46 + name_length] = extra
    end = content.rindex(b"PK\x05\x06")
    size = int.from_bytes(content[end + 12 : end + 16], "little") + len(extra)
    content[end + 12 : end + 16] = size.to_bytes(4, "little")
    index.entries.clear()
    index.add_file("a", WHEEL, bytes(content))

    sizes = sizes_of(client, "a")

    assert sizes.stack.unknown("installed") == 1
    assert "cannot be read" in sizes.findings[0].message


def test_the_current_lock_is_compared_without_requests(index: PackageIndex, client: IndexClient) -> None:
    index.add("a", "1.0")
    index.add("a", "2.0")
    source, stack = candidates_of(client, "a")
    files = (LockedFile(name="c-1.0-py3-none-any.whl", size=77),)
    current = {
        A: LockedVersion(version=Version("1.0")),
        B: LockedVersion(version=Version("1.0"), direct_reference="./b"),
        canonicalize_name("c"): LockedVersion(version=Version("1.0"), files=files),
    }

    sizes = read_sizes(client, source, stack, current=current)

    assert sizes.current is not None
    assert [(p.name, p.download) for p in sizes.current.packages] == [
        ("a", len(index.files[WHEEL])),
        ("b", None),
        ("c", 77),
    ]
    assert client.transport.request_counts["ranged"] == 1


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (9_949, "9.9 kB"),
        (9_960, "10 kB"),
        (999_499, "999 kB"),
        (999_600, "1.0 MB"),
        (312_400_000, "312 MB"),
        (1_100_000_000, "1.1 GB"),
        (5 * 10**15, "5000 TB"),
    ],
)
def test_sizes_have_decimal_units(size: int, text: str) -> None:
    assert size_text(size) == text


def stack_of(*sizes: tuple[int | None, int | None]) -> StackSizes:
    return StackSizes(
        packages=tuple(
            PackageSize(name=f"p{number}", version="1", download=download, installed=installed)
            for number, (download, installed) in enumerate(sizes)
        )
    )


def test_the_lines_name_totals_what_is_unknown_and_the_largest() -> None:
    stack = stack_of((3 * MB, 9 * MB), (2 * MB, 4 * MB), (MB, None), (MB, MB), (None, None))
    sizes = AdviceSizes(stack=stack, baseline=stack_of((MB, 2 * MB)), current=None, findings=(), final=True)

    assert list(size_lines(sizes)) == [
        "5 packages, 7.0 MB and 1 unknown to download, 14 MB and 2 unknown installed "
        "(baseline: 1 package, 1.0 MB, 2.0 MB)",
        "86% of the download is `p0` 3.0 MB, `p1` 2.0 MB, `p2` 1.0 MB",
    ]


def test_small_packages_share_a_tile() -> None:
    stack = stack_of((100 * MB, 100 * MB), *[(MB, 10_000)] * 30, (0, 0))

    drawn = treemap(stack)

    assert [(tile.label, tile.size) for tile in drawn.tiles] == [("p0", "100 MB"), ("30 other packages", "300 kB")]
    area = sum(tile.place.width * tile.place.height for tile in drawn.tiles)
    assert area == pytest.approx(drawn.width * drawn.height, rel=0.001)


def test_advice_reports_the_sizes(advisor: Advisor, index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0", ["b"])
    index.add("b", "1.0")
    (tmp_path / "requirements.in").write_text(f"--index-url {index.url}\na\n")
    arguments = ("advise", "-r", "requirements.in", "--hardware", "cpu-zen4", "--python", "3.12")

    document = json.loads(advisor(*arguments, "--format", "json").stdout)
    text = " ".join(advisor(*arguments, "--details").stdout.split())
    page = advisor(*arguments, "--format", "html").stdout

    total = sum(len(index.files[f"{name}-1.0-py3-none-any.whl"]) for name in "ab")
    stack = document["sizes"]["stack"]
    assert set(stack) == {"download", "installed", "unknown_download", "unknown_installed", "packages"}
    assert (stack["download"], document["sizes"]["baseline"]["download"]) == (total, total)
    assert document["sizes"]["current"] is None
    documented = (Path(__file__).parents[2] / "docs" / "reference" / "advice-json.md").read_text(encoding="utf-8")
    assert all(f"`{key}`" in documented for key in (*document["sizes"], *stack, *stack["packages"][0]))
    assert f"size 2 packages, {size_text(total)} to download, " in text
    assert "; current: 2 packages, " in text
    assert (
        '<svg class="treemap wide" viewBox="0 0 1000.0 360.0" role="img" aria-label="installed size of each package">'
        in page
    )
    assert page.count("<script") == 1, "the filter of tables, without which the page is readable"
