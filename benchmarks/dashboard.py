"""Measure how fast the dashboard answers: ``python -m benchmarks.dashboard FILE [--seconds 120]``.

FILE is a knowledge base, such as one of a million observations by ``python -m benchmarks.generator FILE``. It is not
changed: a copy is served by `advisor serve --dashboard` on loopback. First one browser loads each page many times, the
pages in turn. Then many browsers load pages for some time while runners deliver observations, as in
:mod:`benchmarks.service`. It prints the size of the first page with everything that it loads, the median and the 95th
percentile of each page, and how many of the observations that were answered with 200 are stored.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import re
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import requests

from benchmarks.service import client, served
from knowledge.store.engine import open_knowledge_base

LOADS = 60
"""Loads of each page by one browser."""
OBSERVATIONS = 100
"""Observations of a delivery."""
_ASSET = re.compile(r'(?:src|href)="([^"]*/static/[^"]+)"')


class Browser:
    """A browser that signed in.

    Attributes:
        address: Address of the dashboard.
    """

    def __init__(self, address: str, token: str) -> None:
        self.address = address
        self._session = requests.Session()

        def sign_in() -> requests.Response:
            return self._session.post(f"{address}/sign-in", data={"token": token}, allow_redirects=False, timeout=60)

        while (answer := sign_in()).status_code == 429:
            # All browsers have one address here, and each address only so many sign-ins a second.
            time.sleep(1)
        # Browsers send a cookie that needs TLS to this machine without it, too; this library does not.
        name, _, value = answer.headers["Set-Cookie"].partition(";")[0].partition("=")
        self._session.headers["Cookie"] = f"{name}={value}"

    def load(self, path: str) -> tuple[float, requests.Response]:
        """Return the seconds until a page was there, and the page."""
        start = time.perf_counter()
        answer = self._session.get(f"{self.address}/{path}", timeout=60, allow_redirects=False)
        return time.perf_counter() - start, answer


def paths(browser: Browser, number: int = 40) -> dict[str, list[str]]:
    """Return addresses of each kind of page, with different choices."""
    draw = random.Random(0)

    def compare(**query: str) -> dict[str, Any]:
        record: dict[str, Any] = browser.load(f"api/compare?{urlencode(query)}")[1].json()
        return record

    listed: dict[str, list[str]] = defaultdict(list)
    listed["overview"] = ["overview"]
    first = compare()
    hardware = [choice["value"] for choice in first["hardware"]]
    for _ in range(number):
        view = compare(hardware=draw.choice(hardware))
        if not view["sizes"]:
            continue
        query = {**view["selection"], "label": draw.choice(view["labels"])["value"]}
        listed["compare"].append(f"compare?{urlencode(query)}")
        row = draw.choice(view["sizes"][0]["rows"])["result"]
        if row["arm"] < 0:
            # Published: there are no runs.
            continue
        listed["arm"].append(f"arm?{urlencode({name: row[name] for name in ('block', 'label', 'arm')})}")
        arm = browser.load(f"api/{listed['arm'][-1]}")[1].json()
        listed["observation"].append(f"observation/{arm['rounds'][0]['identity']}")
    series = [entry["identity"] for entry in browser.load("api/history")[1].json()["series"]]
    listed["history"] = ["history", *(f"history?series={identity}" for identity in series)]
    listed["hardware"] = ["hardware", "hardware?name=h100"]
    listed["campaigns"] = ["campaigns"]
    return listed


def first_page_bytes(browser: Browser) -> int:
    """Return the size of the overview with everything that it loads."""
    _, page = browser.load("overview")
    origin = browser.address.partition("/dashboard")[0]
    assets = {f"{origin}{address}" for address in _ASSET.findall(page.text)}
    return len(page.content) + sum(len(requests.get(address, timeout=60).content) for address in assets)


def report(seconds: Mapping[str, list[float]]) -> None:
    """Print the median and the 95th percentile of each page and of all."""
    every = [value for values in seconds.values() for value in values]
    for name, values in [*sorted(seconds.items()), ("all pages", every)]:
        ordered = sorted(values)
        p95 = ordered[int(0.95 * (len(ordered) - 1))]
        print(
            f"{name:12} {len(values):6} loads, p50 {statistics.median(values) * 1e3:6.0f} ms, p95 {p95 * 1e3:6.0f} ms, "
            f"most {ordered[-1] * 1e3:6.0f} ms"
        )


def browse(number: int, address: str, token: str, listed: Mapping[str, list[str]], until: float, results: Any) -> None:
    """Load pages at random until a time, and report the seconds of each and the errors."""
    browser, draw = Browser(address, token), random.Random(number)
    seconds: dict[str, list[float]] = defaultdict(list)
    errors: list[str] = []
    while time.time() < until:
        name = draw.choice(sorted(listed))
        spent, answer = browser.load(draw.choice(listed[name]))
        seconds[name].append(spent)
        if answer.status_code != 200:
            errors.append(f"{name}: {answer.status_code}")
        # A person looks at a page before the next one.
        time.sleep(draw.uniform(0.5, 1.5))
    results.put((dict(seconds), errors))


def measure(knowledge: str, *, seconds: float, browsers: int, runners: int, folder: Path) -> None:
    """Print what one browser, and what many browsers next to runners, measure."""
    with open_knowledge_base(knowledge, shipped=False) as store:
        tokens = [store.create_token(role="reader", source=f"person-{n}")[0] for n in range(browsers)]
    with served(knowledge, folder, "--dashboard") as (server, runner_token):
        address = f"{server}/dashboard"
        # The server has imported what ships.
        with open_knowledge_base(knowledge, shipped=False) as store:
            before = sum(block.observations for block in store.blocks())
        print(f"{before} observations")
        browser = Browser(address, tokens[0])
        start = time.perf_counter()
        listed = paths(browser)
        print(f"histories and comparisons were read after {time.perf_counter() - start:.0f} s")
        print(f"first page: {first_page_bytes(browser) / 1e3:.0f} kB")
        alone: dict[str, list[float]] = defaultdict(list)
        for turn in range(LOADS):
            for name, addresses in sorted(listed.items()):
                alone[name].append(browser.load(addresses[turn % len(addresses)])[0])
        report(alone)
        print(f"{browsers} browsers and {runners} runners for {seconds:.0f} s:")
        pages: Any = multiprocessing.Queue()
        deliveries: Any = multiprocessing.Queue()
        until = time.time() + seconds
        processes = [
            multiprocessing.Process(target=browse, args=(n, address, token, listed, until, pages))
            for n, token in enumerate(tokens)
        ] + [
            multiprocessing.Process(target=client, args=(n, server, runner_token, OBSERVATIONS, until, deliveries))
            for n in range(runners)
        ]
        for process in processes:
            process.start()
        loaded = [pages.get() for _ in range(browsers)]
        delivered = sum(deliveries.get()[0] for _ in range(runners))
        for process in processes:
            process.join()
    together: dict[str, list[float]] = defaultdict(list)
    for times, _ in loaded:
        for name, values in times.items():
            together[name] += values
    report(together)
    errors = [error for _, some in loaded for error in some]
    with open_knowledge_base(knowledge, shipped=False) as store:
        stored = sum(block.observations for block in store.blocks()) - before
    print(f"{len(errors)} errors {errors[:3]}; {delivered} observations answered with 200, {stored} stored")


def main() -> None:
    """Measure a copy of a knowledge base."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("file", type=Path, help="SQLite file of a knowledge base")
    parser.add_argument("--seconds", type=float, default=120.0, help="duration with many browsers (default: 120)")
    parser.add_argument("--browsers", type=int, default=32)
    parser.add_argument("--runners", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "knowledge.sqlite"
        shutil.copy(options.file, copy)
        measure(
            f"sqlite:///{copy}",
            seconds=options.seconds,
            browsers=options.browsers,
            runners=options.runners,
            folder=Path(scratch),
        )


if __name__ == "__main__":
    main()
