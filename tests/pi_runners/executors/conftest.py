"""Executors to test: this machine, a real Slurm, and Kubernetes' API on a double that runs what it is given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes_double.cluster import KubernetesDouble
from tests.slurm.cluster import Cluster, missing


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A real Slurm of two nodes, for the session."""
    if reason := missing():
        pytest.skip(reason)
    running = Cluster(tmp_path_factory.mktemp("slurm"))
    try:
        running.start()
        yield running
    finally:
        running.stop()


@pytest.fixture
def slurm(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The cluster, as the one that Slurm's programs use."""
    monkeypatch.setenv("SLURM_CONF", str(cluster.configuration))
    return cluster


@pytest.fixture
def kubernetes(tmp_path: Path) -> Iterator[KubernetesDouble]:
    """A cluster's API, whose pods run on this machine."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    with KubernetesDouble(folder) as running:
        yield running
