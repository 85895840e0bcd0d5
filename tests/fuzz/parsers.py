"""The parsers of untrusted documents, called as by the command line, each with valid documents to damage."""

from __future__ import annotations

import asyncio
import atexit
import gzip
import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, cast

from fastapi import FastAPI
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from advisor.api.context import load_project, prepare_target, select_targets
from advisor.api.gate.gate_session import read_project_policy
from advisor.api.indexes import make_client
from advisor.api.measurements.benchmark_proposal import propose, write_proposal
from advisor.api.options import IndexOptions, ProjectFiles, ProjectOptions, ResolutionOptions, TargetOptions
from advisor.domain.target import Target, make_target
from advisor.index.access import IndexAccess
from advisor.index.addresses import url_of_path
from advisor.index.cache import DiskCache
from advisor.index.configuration import IndexConfiguration
from advisor.index.http.transport import IndexResponse, Transport
from advisor.index.metadata.distributions import Distributions, MetadataError
from advisor.index.pages.page import DistributionFile
from advisor.index.pages.reader import Pages
from advisor.index.variants.files import VariantFiles
from advisor.index.variants.markers import VariantEnvironment, requirements_for
from advisor.index.variants.order import order_variants, with_static_properties
from advisor.index.vulnerabilities.database import AdvisoryDatabase, read_records
from advisor.locks.registry import read_lock
from advisor.project.benchmark_proposal.command import Command
from advisor.project.benchmark_proposal.output import metrics_of_output
from advisor.project.benchmark_proposal.proposal import BenchmarkProposal, propose_benchmark
from advisor.project.read import read_project
from advisor.project.settings.project_settings import read_project_settings
from advisor.project.workload.file import WORKLOAD_FILE, read_workloads, workloads_toml
from benchmarks.observation_folder import ObservationFolder
from knowledge.catalogue.variant_properties import supported_properties
from knowledge.domain.errors import AdvisorError, InputError
from knowledge.exchange.files import SkippedLine, observation_file, read_lines, read_observations
from knowledge.exchange.mlperf.results import distinct_results
from knowledge.exchange.mlperf.tree import read_results
from knowledge.exchange.published.observations import read_published
from knowledge.hardware.profiles import find_profile
from knowledge.store.engine import open_knowledge_base
from knowledge.store.sql import SqlKnowledgeBase
from pi_runners.catalogue import Indicators
from pi_runners.plan.matrix_file import read_matrix
from pi_runners.profile.read import read_trace
from pi_runners.profile.summary import workload_of
from tests.advisor.variant_wheels import ALL, description
from tests.fuzz import documents
from tests.knowledge.mlperf_files import MLL, MLLOG, V05

ROOT = Path(__file__).parents[2]
LOCKS = ROOT / "tests" / "fixtures" / "locks"
REPOSITORIES = ROOT / "tests" / "repositories"
PROGRAMS = ROOT / "tests" / "fixtures" / "programs"

Documented = (AdvisorError, MetadataError)
"""Errors that a parser may raise: the command line prints them (`MetadataError`: a candidate is left out)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parser:
    """A parser and its test data.

    Attributes:
        seeds: Valid documents.
        kind: Kind of damage, see :func:`tests.fuzz.mutations.mutate`.
        read: Reads a document in an empty directory; raises only documented errors.
    """

    seeds: Callable[[], Iterable[bytes]]
    kind: str
    read: Callable[[bytes, Path], object]


@cache
def _target() -> Target:
    return make_target(python="3.12", platform="manylinux_2_28_x86_64", hardware=find_profile("cpu-zen4"))


def _evaluate(requirements: Iterable[Requirement]) -> None:
    """Evaluate requirements like the search for a stack."""
    for requirement in requirements:
        requirement.specifier.contains(Version("1.0"), prereleases=True)
        if requirement.marker is not None:
            requirement.marker.evaluate({**_target().markers, "extra": ""})


def _read_project(folder: Path) -> None:
    files = ProjectFiles(directory=folder)
    target = TargetOptions(hardware="cpu-zen4", python="3.12", platform="manylinux_2_28_x86_64")
    project = load_project(files, report=False)
    select_targets(target, project)
    options = ProjectOptions(files=files, target=target, resolution=ResolutionOptions(workload="numeric"))
    context = prepare_target(options, project)
    read_project_policy(project, folder)
    read_project_settings(folder, project.settings.get("settings", {}))
    make_client(IndexOptions(cache_directory=folder / "cache", offline=True), folder, project).close()
    _evaluate(root.requirement for root in (*context.problem.roots, *project.overrides))


def _project(name: str) -> Callable[[bytes, Path], object]:
    def read(content: bytes, folder: Path) -> None:
        (folder / name).write_bytes(content)
        _read_project(folder)

    return read


def _read_program(content: bytes, folder: Path) -> None:
    (folder / "train.py").write_bytes(content)
    (folder / "README.md").write_bytes(b"$ python train.py data\n" + content)
    (folder / "config.yaml").write_bytes(content)
    propose_benchmark(folder).with_metric(metrics_of_output(content.decode("utf-8", "replace").splitlines()))


def _extend_pyproject(content: bytes, folder: Path) -> None:
    (folder / "pyproject.toml").write_bytes(content)
    command = Command(words=("python", "train.py"))
    propose(folder, command="python train.py", replaces=True)
    write_proposal(folder, BenchmarkProposal(program=None, command=command, files=("**/*.py",)))


def _settings(name: str) -> Callable[[bytes, Path], object]:
    def read(content: bytes, folder: Path) -> None:
        (folder / name).write_bytes(content)
        read_project_settings(folder, {})

    return read


def _advisories(name: str) -> Callable[[bytes, Path], object]:
    def read(content: bytes, folder: Path) -> None:
        (folder / name).write_bytes(content)
        base = AdvisoryDatabase(folder / "advisories.sqlite")
        base.add(read_records(folder / name))
        for package in ("torch", "pillow"):
            base.vulnerabilities(package, Version("1.13.0"))

    return read


def _read_constraints(content: bytes, folder: Path) -> None:
    path = folder / "constraints.txt"
    path.write_bytes(content)
    (folder / "requirements.txt").write_text("numpy\n", encoding="utf-8")
    project = read_project(folder, constraints=[path], overrides=[path])
    _evaluate(root.requirement for root in project.roots)


def _lock(name: str) -> Callable[[bytes, Path], object]:
    def read(content: bytes, folder: Path) -> None:
        path = folder / name
        path.write_bytes(content)
        read_lock(path, _target())

    return read


class _ConstantTransport:
    """A transport of an index with the same response to every request."""

    def __init__(self, answer: IndexResponse) -> None:
        self._answer = answer

    def get(self, *_: object, **__: object) -> IndexResponse:
        return self._answer


def _page(content_type: str) -> Callable[[bytes, Path], object]:
    def read(content: bytes, folder: Path) -> None:
        transport = _ConstantTransport(IndexResponse(status=200, body=content, content_type=content_type, etag=""))
        configuration = IndexConfiguration(default="https://index.example/simple/")
        cache = DiskCache(folder / "cache")
        for _ in range(2):  # First from the index, then from the cache.
            pages = Pages(configuration, IndexAccess(transport=cast(Transport, transport), cache=cache))
            assert pages.read(canonicalize_name("numpy"), configuration.default).files is not None

    return read


def _distribution(filename: str, *, separate: bool = False) -> Callable[[bytes, Path], object]:
    def read(content: bytes, folder: Path) -> None:
        path = folder / filename
        (folder / f"{filename}.metadata" if separate else path).write_bytes(content)
        file = DistributionFile(
            filename=filename,
            url=url_of_path(path),
            index=url_of_path(folder),
            metadata_sha256="" if separate else None,
        )
        access = IndexAccess(transport=cast(Transport, None), cache=DiskCache(folder / "cache"), offline=True)
        distributions = Distributions(access)
        if not separate and filename.endswith(".whl"):
            distributions.unpacked_size(file)
        metadata = distributions.metadata(file)
        _evaluate((*metadata.requires, *requirements_for(metadata.variant_requires, VariantEnvironment())))

    return read


def _variants() -> Iterable[bytes]:
    static = {"x86_64": {"static-properties": {"level": ["v3", "v4"]}, "feature-order": ["level"]}}
    drafts = [description(ALL), description(ALL, schema="https://variants-schema.wheelnext.dev/v0.1.0.json")]
    drafts[1]["default-priorities"] |= {"feature": {"x86_64": ["level"]}, "property": {"x86_64": {"level": ["v3"]}}}
    drafts.append({**description(ALL, schema="https://packaging.python.org/variants/v1.0.0.json"), "providers": static})
    return [json.dumps(draft).encode() for draft in drafts]


def _read_variants(content: bytes, folder: Path) -> None:
    path = folder / "own-1.0-variants.json"
    path.write_bytes(content)
    file = DistributionFile(filename=path.name, url=url_of_path(path), index=url_of_path(folder))
    access = IndexAccess(transport=cast(Transport, None), cache=DiskCache(folder / "cache"), offline=True)
    files = VariantFiles(access)
    variants = files.read(file)
    if isinstance(variants, str):
        assert variants.isprintable()
        raise InputError(variants)
    supported = with_static_properties(supported_properties(_target().hardware), variants)
    variants.restricted_to(order_variants(variants, supported))


def _read_observations(content: bytes, folder: Path) -> None:
    path = str(folder / "observations.jsonl")
    damaged: list[SkippedLine] = []
    lines = read_lines(content, where=path, damaged=damaged)
    observations = tuple(read_observations(lines, where=path, damaged=damaged))
    observation_file(observations)
    tuple(read_observations(read_lines(content, where=path), where=path))


def _read_folder(content: bytes, folder: Path) -> None:
    (folder / "observations-s-000.jsonl").write_bytes(content)
    for session in ("s", "t"):
        ObservationFolder(folder, session=session)


@cache
def _results_store() -> SqlKnowledgeBase:
    return open_knowledge_base("sqlite://", shipped=False)


def _read_results(path: Path) -> None:
    results = read_results(path)
    content = observation_file(results.observations)
    tuple(read_observations(read_lines(content, where="results"), where="results"))
    _results_store().add(results.observations)
    distinct_results(results.observations)
    if results.skipped:
        # A tree is read without skipped files; here, the skipped file is the damaged one.
        raise InputError(results.skipped[0].reason)


def _read_published(content: bytes, folder: Path) -> None:
    path = folder / "published.csv"
    path.write_bytes(content)
    observation_file(read_published(path).observations)


def _read_mlperf_log(content: bytes, folder: Path) -> None:
    log = folder / "v0.6" / "made-up" / "results" / "dgx1" / "resnet" / "result_0.txt"
    log.parent.mkdir(parents=True)
    log.write_bytes(content)
    _read_results(folder / "v0.6")


def _read_mlperf_system(content: bytes, folder: Path) -> None:
    path = folder / "v0.6" / "made-up" / "systems" / "dgx1.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    _read_mlperf_log(MLL.encode(), folder)


def _read_mlperf_summary(content: bytes, folder: Path) -> None:
    run = folder / "v2.1" / "closed" / "made-up" / "results" / "box" / "bert-99" / "Offline" / "performance" / "run_1"
    run.mkdir(parents=True)
    (run / "mlperf_log_summary.txt").write_bytes(content)
    _read_results(folder / "v2.1")


def _read_mlperf_tar(content: bytes, folder: Path) -> None:
    path = folder / "v0.6.tar"
    path.write_bytes(content)
    _read_results(path)


def _read_matrix(content: bytes, folder: Path) -> None:
    path = folder / "matrix.toml"
    path.write_bytes(content)
    versions = [Version("2.1.0"), Version("2.0.1"), Version("2.0.0")]
    read_matrix(path).combinations(lambda requirement, python: versions, ("3.12",), max_runs=2000)


def _read_trace(content: bytes, folder: Path) -> None:
    path = folder / "trace"
    path.write_bytes(content)
    workload_of(read_trace(path), name="w", source="trace")


def _read_workloads(content: bytes, folder: Path) -> None:
    (folder / WORKLOAD_FILE).write_bytes(content)
    workloads_toml(read_workloads(folder))


@cache
def _service() -> tuple[FastAPI, str]:
    from knowledge.service.app import create_app

    logging.getLogger("seshat").setLevel(logging.CRITICAL)
    folder = tempfile.mkdtemp(prefix="seshat-fuzz-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    store = open_knowledge_base(f"sqlite:///{folder}/knowledge.sqlite", shipped=False)
    token, _ = store.create_token(role="runner", source="lab-a")
    return create_app(store, Indicators()), token


def _deliver(content: bytes, folder: Path) -> None:
    app, token = _service()
    status = asyncio.run(_post(app, content, token))
    assert status in (200, 413, 422), status
    if status != 200:
        raise InputError(f"the service answers with {status}")


async def _post(app: FastAPI, content: bytes, token: str) -> int:
    """Deliver a body without a socket; an error that the service does not handle is raised here."""
    sent: list[MutableMapping[str, Any]] = []
    headers = {"authorization": f"Bearer {token}", "content-type": "application/x-ndjson"}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/observations",
        "raw_path": b"/observations",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return int(sent[0]["status"])


def _files(*paths: Path) -> Callable[[], Iterable[bytes]]:
    return lambda: [path.read_bytes() for path in paths]


def _lock_seeds(name: str) -> Callable[[], Iterable[bytes]]:
    return lambda: [documents.shortened((LOCKS / name).read_bytes(), toml=not name.startswith("pipenv"))]


def _read_tar_sdist(content: bytes, folder: Path) -> None:
    """Read an uncompressed sdist: in a compressed one, all damage would be a wrong checksum."""
    _distribution("own-1.0.tar.gz")(gzip.compress(content, 1, mtime=0), folder)


_PIPFILES = (LOCKS / "pipenv" / "Pipfile", REPOSITORIES / "scoring-service" / "Pipfile")
_POETRY = Parser(seeds=_files(LOCKS / "poetry" / "pyproject.toml"), kind="toml", read=_project("pyproject.toml"))
_JSON_TYPE = "application/vnd.pypi.simple.v1+json"

PARSERS: dict[str, Parser] = {
    "pyproject": replace(
        _POETRY,
        seeds=lambda: [
            documents.PYPROJECT,
            *(path.read_bytes() for path in sorted(REPOSITORIES.glob("*/pyproject.toml"))),
            *_files(LOCKS / "pdm" / "pyproject.toml", LOCKS / "uv" / "pyproject.toml", ROOT / "pyproject.toml")(),
        ],
    ),
    "poetry-project": _POETRY,
    "pipfile": Parser(seeds=_files(*_PIPFILES), kind="toml", read=_project("Pipfile")),
    "requirements": Parser(
        seeds=lambda: [documents.REQUIREMENTS, documents.REQUIREMENTS[: documents.REQUIREMENTS.index(b"-e ")]],
        kind="lines",
        read=_project("requirements.txt"),
    ),
    "setup-py": Parser(seeds=lambda: [documents.SETUP_PY], kind="lines", read=_project("setup.py")),
    "setup-cfg": Parser(seeds=lambda: [documents.SETUP_CFG], kind="lines", read=_project("setup.cfg")),
    "conda": Parser(seeds=lambda: [documents.ENVIRONMENT], kind="lines", read=_project("environment.yml")),
    "pixi": Parser(seeds=lambda: [documents.PIXI], kind="toml", read=_project("pixi.toml")),
    "notebook": Parser(seeds=lambda: [documents.NOTEBOOK], kind="json", read=_project("a.ipynb")),
    "advisory": Parser(seeds=lambda: documents.advisories(".json"), kind="json", read=_advisories("a.json")),
    "advisory-yaml": Parser(seeds=lambda: documents.advisories(".yaml"), kind="lines", read=_advisories("a.yaml")),
    "constraints": Parser(
        seeds=lambda: [documents.PINNED, b"numpy<3\nscipy==1.*\n"], kind="lines", read=_read_constraints
    ),
    "pylock": Parser(seeds=lambda: [documents.PYLOCK], kind="toml", read=_lock("pylock.toml")),
    "uv-lock": Parser(seeds=_lock_seeds("uv/uv.lock"), kind="toml", read=_lock("uv.lock")),
    "poetry-lock": Parser(seeds=_lock_seeds("poetry/poetry.lock"), kind="toml", read=_lock("poetry.lock")),
    "pdm-lock": Parser(seeds=_lock_seeds("pdm/pdm.lock"), kind="toml", read=_lock("pdm.lock")),
    "pipfile-lock": Parser(seeds=_lock_seeds("pipenv/Pipfile.lock"), kind="json", read=_lock("Pipfile.lock")),
    "pinned": Parser(seeds=lambda: [documents.PINNED], kind="lines", read=_lock("requirements.txt")),
    "sbom": Parser(seeds=lambda: [documents.SBOM], kind="json", read=_lock("bom.cdx.json")),
    "json-page": Parser(seeds=lambda: [documents.JSON_PAGE], kind="json", read=_page(_JSON_TYPE)),
    "html-page": Parser(seeds=lambda: [documents.HTML_PAGE], kind="lines", read=_page("text/html; charset=utf-8")),
    "metadata": Parser(
        seeds=lambda: [documents.METADATA], kind="lines", read=_distribution("own-1.0-py3-none-any.whl", separate=True)
    ),
    "variants": Parser(seeds=_variants, kind="json", read=_read_variants),
    "wheel": Parser(seeds=lambda: [documents.wheel()], kind="archive", read=_distribution("own-1.0-py3-none-any.whl")),
    "sdist": Parser(seeds=documents.sdists, kind="archive", read=_distribution("own-1.0.tar.gz")),
    "sdist-tar": Parser(
        seeds=lambda: [gzip.decompress(s) for s in documents.sdists()], kind="archive", read=_read_tar_sdist
    ),
    "sdist-zip": Parser(seeds=documents.zipped_sdists, kind="archive", read=_distribution("own-1.0.zip")),
    "observations": Parser(seeds=documents.observations, kind="jsonl", read=_read_observations),
    "observations-gzip": Parser(
        seeds=lambda: [gzip.compress(s, mtime=0) for s in documents.observations()],
        kind="archive",
        read=_read_observations,
    ),
    "observation-folder": Parser(seeds=documents.observations, kind="jsonl", read=_read_folder),
    "published": Parser(seeds=documents.published, kind="lines", read=_read_published),
    "mlperf-log": Parser(
        seeds=lambda: [text.encode() for text in (V05, MLL, MLLOG)], kind="lines", read=_read_mlperf_log
    ),
    "mlperf-system": Parser(seeds=lambda: [documents.SYSTEM], kind="json", read=_read_mlperf_system),
    "mlperf-summary": Parser(seeds=documents.summaries, kind="lines", read=_read_mlperf_summary),
    "mlperf-tar": Parser(seeds=documents.tars, kind="archive", read=_read_mlperf_tar),
    "matrix": Parser(seeds=documents.matrices, kind="toml", read=_read_matrix),
    "torch-trace": Parser(seeds=lambda: documents.traces("torch"), kind="json", read=_read_trace),
    "onnxruntime-trace": Parser(seeds=lambda: documents.traces("onnxruntime"), kind="json", read=_read_trace),
    "xla-trace": Parser(seeds=lambda: documents.traces("jax"), kind="json", read=_read_trace),
    "xplane": Parser(seeds=documents.xplanes, kind="archive", read=_read_trace),
    "program": Parser(seeds=_files(*PROGRAMS.glob("*/*.py")), kind="lines", read=_read_program),
    "benchmark-table": Parser(
        seeds=_files(*PROGRAMS.glob("*/pyproject.toml"), ROOT / "pyproject.toml"), kind="toml", read=_extend_pyproject
    ),
    "workload-file": Parser(seeds=lambda: [documents.WORKLOADS], kind="toml", read=_read_workloads),
    "settings-py": Parser(seeds=lambda: [documents.SETTINGS_PY], kind="lines", read=_settings("a.py")),
    "settings-dockerfile": Parser(seeds=lambda: [documents.DOCKERFILE], kind="lines", read=_settings("Dockerfile")),
    "settings-yaml": Parser(seeds=lambda: [documents.WORKFLOW], kind="lines", read=_settings("a.yml")),
    "settings-shell": Parser(seeds=lambda: [documents.SCRIPT], kind="lines", read=_settings("a.sh")),
    "settings-dotenv": Parser(seeds=lambda: [documents.DOTENV], kind="lines", read=_settings(".env")),
    "service": Parser(seeds=documents.observations, kind="jsonl", read=_deliver),
}
