"""Large documents stay within the limits of time and memory; damaged headers of responses are read or refused."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packaging.utils import canonicalize_name

from advisor.index.access import IndexAccess
from advisor.index.cache import DiskCache
from advisor.index.configuration import IndexConfiguration
from advisor.index.http.transport import Transport
from advisor.index.metadata.distributions import Distributions
from advisor.index.pages.reader import Pages
from tests.fuzz.growth import GROWING
from tests.fuzz.harness import ENDLESS_SECONDS, MOST_BYTES
from tests.fuzz.mutations import mutate
from tests.fuzz.parsers import Documented
from tests.fuzz.reading import read
from tests.package_index import PackageIndex

KINDS = [(parser, name) for parser, names in GROWING.items() for name in names]


@pytest.mark.parametrize(("parser", "name"), KINDS)
def test_a_large_document_is_read_or_refused(parser: str, name: str) -> None:
    read(parser, GROWING[parser][name](2**17))


@pytest.mark.slow
@pytest.mark.parametrize(("parser", "name"), KINDS)
def test_a_large_document_stays_within_the_limits(parser: str, name: str) -> None:
    command = [sys.executable, "-m", "tests.fuzz.growth", parser, name]
    # The printed seconds are only information: this test fails only for endless documents.
    result = subprocess.run(
        command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=True, timeout=ENDLESS_SECONDS
    )

    assert json.loads(result.stdout)["peak_bytes"] <= MOST_BYTES, result.stdout


class HeaderIndex(PackageIndex):
    """An index that adds headers to every response; its first response may be an error."""

    extra: dict[str, str]
    first: int

    def answer(self, path: str, headers: dict[str, str]) -> tuple[int, bytes, str, dict[str, str]]:
        status, body, kind, more = super().answer(path, headers)
        self.first, first_status = 200, self.first
        return first_status if status == 200 else status, body, kind, {**more, **self.extra}


@pytest.fixture(scope="module")
def header_index() -> Iterator[HeaderIndex]:
    with HeaderIndex(separate_metadata=False) as index:
        index.add("a", "1.0", ["b>=1"], code="")
        yield index


HEADERS = {
    "Cache-Control": b"public, max-age=600",
    "Retry-After": b"Fri, 31 Dec 2026 23:59:59 GMT",
    "Content-Range": b"bytes 0-1/2",
    "Content-Encoding": b"gzip",
    "Content-Type": b"text/html; charset=utf-8",
    "ETag": b'W/"1"',
    "Location": b"/simple/a/",
    "Content-Disposition": b"attachment; filename=a",
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_damaged_header_is_read_or_refused(
    header_index: HeaderIndex, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    configuration = IndexConfiguration(default=header_index.url, timeout_seconds=5.0)
    # One client for all: loading the trusted certificates takes longer than reading a response.
    transport = Transport(configuration, {})

    @settings(max_examples=15, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(number=st.integers(min_value=0, max_value=2**32), first=st.sampled_from((200, 302, 404, 429, 503)))
    def check(number: int, first: int) -> None:
        value = mutate(HEADERS[name], "lines", random.Random(number))[:8000]
        text = "".join(c for c in value.decode("latin-1") if c not in "\r\n")
        header_index.extra, header_index.first = {name: text}, first
        with tempfile.TemporaryDirectory() as folder:
            cache = DiskCache(Path(folder))
            access = IndexAccess(transport=transport, cache=cache)
            pages = Pages(configuration, access)
            try:
                for file in pages.read(canonicalize_name("a"), header_index.url).files:
                    Distributions(access).metadata(file)
            except Documented as error:
                assert str(error).strip()

    check()
