"""A real Prometheus and a real node_exporter for tests, with rules that are evaluated every second."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml


def require(*programs: str) -> None:
    """Skip a test if a program is not installed."""
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"`{program}` is not installed: `apt-get install prometheus`")


class PrometheusServer:
    """Asks a running Prometheus.

    Attributes:
        address: Its address.
    """

    def __init__(self, address: str) -> None:
        self.address = address

    def get(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer of the API, which must be a success."""
        answer = requests.get(f"{self.address}/api/v1/{path}", params=parameters, timeout=30).json()
        assert answer["status"] == "success", f"{parameters}: {answer}"
        return answer["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the samples of an instant query."""
        samples: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return samples

    def wait_for(self, expression: str, *, seconds: float = 60) -> list[dict[str, Any]]:
        """Return the samples of a query once there are any.

        Raises:
            TimeoutError: If there are none in time.
        """
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with contextlib.suppress(requests.ConnectionError):
                if samples := self.query(expression):
                    return samples
            time.sleep(0.3)
        raise TimeoutError(f"no result of `{expression}`; targets: {self.get('targets')['activeTargets']}")


@contextmanager
def running_node_exporter(folder: Path) -> Iterator[str]:
    """Run node_exporter with its textfile collector on a folder, and yield its host and port."""
    address = _free_address()
    options = ("--collector.disable-defaults", "--collector.textfile", f"--collector.textfile.directory={folder}")
    command = ("prometheus-node-exporter", *options, f"--web.listen-address={address}")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield address
        finally:
            process.terminate()


@contextmanager
def running_prometheus(folder: Path, *, targets: Sequence[str], rules: Path) -> Iterator[PrometheusServer]:
    """Run Prometheus until the end of the block.

    Args:
        folder: Directory for its files.
        targets: Hosts and ports that it scrapes.
        rules: File of rules. They are evaluated every second, and alerts fire at once.
    """
    document = yaml.safe_load(rules.read_text(encoding="utf-8"))
    for group in document["groups"]:
        group["interval"] = "1s"
        for rule in group["rules"]:
            rule.pop("for", None)
    (folder / "rules.yaml").write_text(yaml.safe_dump(document))
    configuration = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [{"job_name": "seshat", "static_configs": [{"targets": list(targets)}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    address = _free_address()
    command = [
        *("prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'metrics'}"),
        f"--web.listen-address={address}",
    ]
    with (folder / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield PrometheusServer(f"http://{address}")
        finally:
            process.terminate()


def _free_address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"
