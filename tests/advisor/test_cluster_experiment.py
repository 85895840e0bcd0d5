"""`advisor advise --measure` on Kubernetes: the project travels to the pods of the double of its API."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from tests.advisor.test_experiment import NOISE, PROGRAM, PROJECT
from tests.conftest import Advisor
from tests.kubernetes_double.cluster import KubernetesDouble
from tests.package_index import PackageIndex

# A round on the third pod of a batch kills its worker, as a lost node does.
LOSS = """
import os, signal
if os.environ.get("JOB_COMPLETION_INDEX") == "2":
    os.kill(int(open(f"/proc/{os.getppid()}/stat").read().rpartition(")")[2].split()[1]), signal.SIGKILL)
"""


@pytest.fixture
def project(tmp_path: Path, index: PackageIndex) -> Path:
    """A project with two releases of a package, of which the older one is faster."""
    index.add("lib", "1.0", code=NOISE.format(1.0 / 1.15))
    index.add("lib", "1.1", code=NOISE.format(1.0))
    folder = tmp_path / "project"
    (folder / "data").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "bench.py").write_text(PROGRAM + "assert open('link.txt').read() == 'in the data'\n")
    (folder / "data" / "numbers.txt").write_text("in the data")
    (folder / "link.txt").symlink_to("data/numbers.txt")
    return folder


def options(cluster: KubernetesDouble, index: PackageIndex, *engine: str) -> tuple[str, ...]:
    words = ("image=here", f"kubeconfig={cluster.kubeconfig()}", "retries=0", *engine)
    arguments = ("--max-load", "100", "--index-url", index.url, "--executor", "kubernetes")
    return (*arguments, *(word for value in words for word in ("--engine", value)))


@pytest.mark.slow
def test_a_project_is_measured_in_pods_although_one_of_them_is_lost(
    kubernetes: KubernetesDouble, advisor: Advisor, index: PackageIndex, project: Path, tmp_path: Path
) -> None:
    (project / "bench.py").write_text(LOSS + (project / "bench.py").read_text())

    completed = advisor("advise", "--measure", "10m", *options(kubernetes, index), cwd=project)

    assert completed.returncode == 0, completed.stderr
    text = " ".join(completed.stdout.split())
    assert re.search(r"lib==1\.0: 1\.\d\d times as fast", text)
    certificate = tomllib.loads((project / "pylock.toml").read_text())["tool"]["advisor"]["certificate"]
    assert certificate["is-certain"] is True
    # Three of the four rounds of each batch have ended.
    plans = [json.loads(path.read_text()) for path in (tmp_path / "home" / "campaigns").rglob("campaign.json")]
    assert certificate["rounds"] == 3 * len(plans)
    assert not [*(tmp_path / "home" / "campaigns").glob("project-*")]
