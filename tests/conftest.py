"""Fixtures that several test packages share."""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import hypothesis
import pytest

from advisor.cli.app import main
from advisor.index.cache import DiskCache
from advisor.index.client import IndexClient
from advisor.index.configuration import read_configuration
from knowledge.domain.errors import UnavailableError
from knowledge.domain.frameworks import FRAMEWORKS
from knowledge.estimate.model_cache import ModelCache
from knowledge.evidence.accelerator_pairs import load_pairs
from knowledge.store.engine import open_knowledge_base
from tests.examples import examples
from tests.forked import run_forked
from tests.kubernetes_double.cluster import KubernetesDouble
from tests.package_index import PackageIndex
from tests.slurm.cluster import Cluster, missing_requirement

MACHINES = Path(__file__).parent / "fixtures" / "machines"

# No test depends on timing.
hypothesis.settings.register_profile("no-deadline", deadline=None, max_examples=examples(100))
hypothesis.settings.load_profile("no-deadline")

# A shell starts a job in the background with this signal ignored; programs of the tests must end by it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the option that writes recorded reports, and those of `pyproject.toml` if pytest-xdist is absent.

    Without pytest-xdist, all tests run in one process.
    """
    if not pluginmanager.hasplugin("xdist"):
        parser.addoption("--numprocesses")
        parser.addoption("--dist")
    text = "write the recorded reports in tests/fixtures/reports again"
    parser.addoption("--snapshot-update", action="store_true", help=text)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Return the number of workers: none for the tests of a file, or on one processor; else three more than processors.

    Many tests wait for processes and servers. A worker takes ten seconds of processor time to import the tests and
    what its commands share.
    """
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    paths = {argument.partition("::")[0] for argument in config.args}
    processors = len(os.sched_getaffinity(0))
    if processors == 1 or (len(paths) == 1 and Path(*paths).is_file()):
        return 0
    # The workers inherit it: each uses one processor.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return processors + 3


_LONGEST = (
    "test_the_pages_have_no_warning",
    "test_a_lock_is_installed_by_pip_and_by_uv",
    "test_the_task_of_a_failed_node_runs_again",
    "test_the_shipped_contrasts_are_those_of_the_shipped_observations",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest tests first: with several workers, the last one to end determines the duration."""
    items.sort(key=lambda item: item.name not in _LONGEST)


def pytest_collection() -> None:
    """Collect no garbage: tests and modules stay until the end, and each full collection would visit all of them."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Exclude what the collection of the tests created from garbage collection."""
    gc.collect()
    gc.freeze()
    gc.enable()


Advisor = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def index() -> Iterator[PackageIndex]:
    """An empty package index on loopback, over HTTP."""
    with PackageIndex() as served:
        yield served


@pytest.fixture(scope="session")
def first_knowledge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A knowledge base after its first use, with its models; created once for all workers of pytest-xdist."""
    base = tmp_path_factory.getbasetemp()
    path = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "first-knowledge.sqlite"
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            first_knowledge_at(path.with_suffix(".made")).rename(path)
    return path


@pytest.fixture(scope="session")
def empty_knowledge(first_knowledge: Path) -> Path:
    """A knowledge base without observations, which does not import the shipped ones; created once for all workers.

    Its copy takes a thousandth of the time.
    """
    path = first_knowledge.with_name("empty-knowledge.sqlite")
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            unfinished = path.with_suffix(".unfinished")
            with closing(sqlite3.connect(unfinished, isolation_level=None)) as target:
                with closing(sqlite3.connect(first_knowledge)) as source:
                    source.backup(target)
                for table in ("observation", "stack_package", "stack", "hardware", "block", "coverage", "derived"):
                    target.execute(f"DELETE FROM {table}")
                target.execute("VACUUM")
            unfinished.rename(path)
    return path


@pytest.fixture
def knowledge_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A knowledge base of the test: with the shipped observations if it is marked with `shipped`, else without any."""
    name = "first_knowledge" if request.node.get_closest_marker("shipped") else "empty_knowledge"
    return Path(shutil.copy(request.getfixturevalue(name), tmp_path / "own.sqlite"))


def first_knowledge_at(path: Path) -> Path:
    """Create a knowledge base with the shipped observations, their models and their pairs of accelerators."""
    with open_knowledge_base(str(path)) as store:
        for framework in FRAMEWORKS:
            ModelCache(store).contrasts(framework, "cpu")
        load_pairs(store)
    return path


@pytest.fixture(scope="session", autouse=True)
def user_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the knowledge base and the cache of the person who runs the tests out of them.

    All workers share those of the tests. Programs that a test starts, such as uv, use the person's own caches.
    """
    with pytest.MonkeyPatch.context() as patch:
        # The temporary folder of a worker is in that of the run.
        own = tmp_path_factory.getbasetemp()
        own = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
        patch.setenv("XDG_DATA_HOME", str(own / "user-data"))
        patch.setattr("advisor.user_directories.user_cache_path", lambda name: own / "user-cache" / name)
        yield


@pytest.fixture
def no_user_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep the configuration of pip and uv of this machine, and of its user, out of a test; the cache is its own."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user-configuration"))
    monkeypatch.setattr("advisor.index.configuration._pip_files", lambda *_: iter(()))
    monkeypatch.setattr("advisor.user_directories.user_cache_path", lambda _: tmp_path / "cache")
    monkeypatch.setenv("ADVISOR_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def advisor(tmp_path: Path, knowledge_file: Path) -> Advisor:
    """Run the command line in a temporary directory, with its own cache and knowledge base."""
    home = tmp_path / "home"
    home.mkdir()
    knowledge_file.rename(home / "knowledge.sqlite")
    variables = {
        **{k: v for k, v in os.environ.items() if not k.startswith("ADVISOR_")},
        "ADVISOR_CACHE_DIR": str(home / "cache"),
        "ADVISOR_KNOWLEDGE": f"sqlite:///{home / 'knowledge.sqlite'}",
        "ADVISOR_ADVISORIES": "off",
        "COLUMNS": "100",
        "XDG_DATA_HOME": str(home / "data"),
    }

    def run(*arguments: str, cwd: Path = tmp_path) -> subprocess.CompletedProcess[str]:
        return run_forked(arguments, cwd=cwd, environment=variables, timeout=900)

    return run


@pytest.fixture
def next_revision() -> Iterator[str]:
    """Make the program one with a further revision of the tables, which is returned."""
    from tests.knowledge.next_revision import NEXT, installed

    with installed():
        yield NEXT


@pytest.fixture
def advisor_here(
    tmp_path: Path, knowledge_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Advisor:
    """Run the command line in this process, which is faster, with its own cache and knowledge base."""
    for name in [name for name in os.environ if name.startswith("ADVISOR_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ADVISOR_KNOWLEDGE", f"sqlite:///{knowledge_file}")
    monkeypatch.setenv("ADVISOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("ADVISOR_ADVISORIES", "off")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["advisor", *arguments])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def network(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip a test if the configured package index cannot be reached."""
    from packaging.utils import canonicalize_name

    configuration = read_configuration(Path.cwd())
    client = IndexClient(configuration, cache=DiskCache(tmp_path_factory.mktemp("probe")))
    try:
        files = client.files(canonicalize_name("numpy"))
    except UnavailableError as error:
        pytest.skip(f"the configured package index cannot be reached: {error.message}")
    if not files:
        pytest.skip("the configured package index does not offer numpy")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Slurm cluster of two nodes on this machine, for the session."""
    if reason := missing_requirement():
        pytest.skip(reason)
    running = Cluster(tmp_path_factory.mktemp("slurm"))
    try:
        try:
            running.start()
        except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
            pytest.skip(f"no Slurm starts on this machine: {error}")
        yield running
    finally:
        running.stop()


@pytest.fixture
def slurm(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The cluster, selected for Slurm's programs."""
    monkeypatch.setenv("SLURM_CONF", str(cluster.configuration))
    return cluster


@pytest.fixture
def kubernetes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesDouble]:
    """A double of a Kubernetes API server; its pods run as processes of this machine.

    Pods look up interpreters by version, and uv does not count those of virtual environments: the one that runs the
    tests may be in no folder of PATH.
    """
    monkeypatch.setenv("PATH", f"{sys.base_prefix}/bin{os.pathsep}{os.environ['PATH']}")
    folder = tmp_path / "cluster"
    folder.mkdir()
    with KubernetesDouble(folder) as running:
        yield running
