"""A framework is one folder: with it, the program measures, profiles and advises."""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import pytest

import pi_runners.frameworks
from advisor.api.workload import profile_workload
from advisor.project.settings.code_settings import settings_in_code
from advisor.project.workload.proposal import propose_workload
from knowledge.domain import framework_packages
from knowledge.domain.errors import InputError
from knowledge.domain.frameworks import FRAMEWORKS, frameworks
from knowledge.exchange.published.names import read_word
from knowledge.store.engine import open_knowledge_base
from pi_runners.execution.environment import StackLock
from pi_runners.execution.program_archive import write_program
from pi_runners.execution.subprocess_runner import FreshProcesses, ProcessRequest
from pi_runners.harness.contract import Unsupported
from pi_runners.indicators import INDICATORS
from pi_runners.models.layers import Filters, Layers
from pi_runners.plan.matrix import IndicatorCase, plan_arms
from pi_runners.profile.run import ProfileRequest
from tests.conftest import Advisor
from tests.knowledge.samples import invented_blocks
from tests.package_index import PackageIndex

FOLDER = Path(__file__).parents[1] / "fixtures" / "frameworks" / "toy"
MODULE = """
import time
EVENTS = []
def product(m, n, k):
    start = time.perf_counter()
    time.sleep(0.001)
    seconds = time.perf_counter() - start
    EVENTS.append({"ph": "X", "cat": "toy", "ts": start * 1e6, "dur": seconds * 1e6, "args": {"shape": [m, n, k]}})
"""


def _read_again() -> None:
    """Forget what was read from the folders of the frameworks."""
    for module in [name for name in sys.modules if name.startswith(("advisor.project.", "knowledge."))]:
        for value in list(vars(sys.modules[module]).values()):
            if hasattr(value, "cache_clear"):
                value.cache_clear()


@pytest.fixture
def toy(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Add a package of frameworks with the toy to those of the program."""
    folder = tmp_path_factory.mktemp("packages")
    shutil.copytree(FOLDER, folder / "toys" / "toy")
    monkeypatch.syspath_prepend(folder)
    framework_packages.add("toys")
    _read_again()
    yield
    framework_packages.remove("toys")
    _read_again()
    for name in [name for name in sys.modules if name.startswith("toys")]:
        del sys.modules[name]


@pytest.mark.usefixtures("toy")
def test_an_indicator_is_measured_with_it(tmp_path: Path) -> None:
    lock = StackLock(requested=("toy-arrays==1.0",), packages=(), python="3.12", platform="manylinux_2_28_x86_64")
    cases = [
        IndicatorCase(name="matmul", parameters={"m": 8, "n": 8, "k": 8}),
        IndicatorCase(name="training_step", parameters=INDICATORS["training_step"].sets["small"][0]),
        IndicatorCase(name="startup", parameters={"n": 8}),
    ]

    (arm,) = plan_arms([(lock, {"threads": 1, "tf32": "on"})], cases, device="cuda", control=False)
    content = {
        "backend": arm.backend,
        "settings": dict(arm.settings),
        "samples": 2,
        "min_seconds": 0.001,
        "max_warmup_seconds": 0.1,
        "indicators": [
            {"name": r.name, "parameters": dict(r.parameters), "device": r.device, "dtype": r.dtype}
            for r in arm.indicators
        ],
    }
    end = FreshProcesses().run(
        ProcessRequest(
            python=Path(sys.executable), program=write_program(tmp_path), content=content, timeout_seconds=60
        )
    )

    assert (arm.backend, arm.settings, [r.name for r in arm.indicators]) == (
        "toy",
        {"threads": 1},
        ["matmul"],
    )
    assert [result["status"] for result in end.results] == ["ok"], end
    assert end.results[0]["environment"]["toy"] == "1.0"


@pytest.mark.usefixtures("toy")
def test_a_program_of_it_is_profiled(tmp_path: Path) -> None:
    (tmp_path / "toy_arrays.py").write_text(MODULE)
    (tmp_path / "train.py").write_text("import toy_arrays\nfor _ in range(1000):\n    toy_arrays.product(8, 4, 2)\n")

    with (tmp_path / "output").open("w") as output:
        request = ProfileRequest(
            command=(sys.executable, "train.py"), directory=tmp_path, steps=5, warm_up=2, output=output
        )
        workload = profile_workload(request).workload

    assert (workload.framework, workload.steps) == ("toy", 5)
    assert [(p.indicator, p.parameters) for p in workload.parts] == [("matmul", {"m": 8, "n": 4, "k": 2})]


@pytest.mark.usefixtures("toy")
def test_advice_counts_its_measurements(advisor_here: Advisor, tmp_path: Path, index: PackageIndex) -> None:
    for version in ("1.0", "2.0", "3.0"):
        index.add("toy-arrays", version)
    (tmp_path / "requirements.txt").write_text("toy-arrays\n")
    with open_knowledge_base(str(tmp_path / "own.sqlite")) as store:
        store.add(invented_blocks("toy-arrays", {"3.0": 1.0, "2.0": 2.0}, device="cpu", hardware="cpu-zen4"))

    result = advisor_here(
        "advise", "--index-url", index.url, "--hardware", "cpu-zen4", "--python", "3.12", "--workload", "numeric"
    )

    assert result.returncode == 0, result.stderr
    assert 'version = "2.0"' in (tmp_path / "pylock.toml").read_text(), result.stdout


@pytest.mark.usefixtures("toy")
def test_its_names_are_known_in_published_tables_and_in_code(tmp_path: Path) -> None:
    code = "import toy_arrays as ta\nta.set_threads(3)\nmodel = ta.Convolution()\n"
    (tmp_path / "train.py").write_text(code)

    proposal = propose_workload(tmp_path)

    assert FRAMEWORKS["toy-arrays-cpu"] == "toy"
    assert read_word("framework", "Toy Arrays") == "toy-arrays"
    assert proposal is not None
    assert proposal.workload == "cnn-inference"
    assert [(s.name, s.value, s.backends) for s in settings_in_code(code)] == [("threads", "3", ("toy",))]


def _call(method: Callable[..., object]) -> object:
    """Call a method of `Layers` with arguments of the types that it has."""
    values = {"str": "layer", "int": 1, "Filters": Filters(number=1, kernel=1)}
    parameters = inspect.signature(method).parameters.values()
    required = [p for p in parameters if p.default is inspect.Parameter.empty]
    return method(*(values.get(p.annotation, numpy.zeros((1, 2, 3))) for p in required))


def test_a_layer_that_a_framework_lacks_is_unsupported() -> None:
    layers = Layers()
    methods = {name: getattr(layers, name) for name, value in vars(Layers).items() if inspect.isfunction(value)}

    messages = {}
    for name, method in methods.items():
        try:
            _call(method)
        except Unsupported as error:
            messages[name] = str(error)

    assert len(messages) > 20
    assert messages["gelu"] == "this backend has no gelu"
    assert {m.partition(" no ")[0] for m in messages.values()} == {"this backend has"}
    assert methods.keys() - messages.keys() == {"add", "token"}, "only these work with operators of the arrays"


def test_a_framework_with_an_unknown_key_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "framework.toml").write_text('title = "Toy"\ndistributions = []\nabilites = []\n')
    pi_runners.frameworks.__path__.append(str(tmp_path))
    frameworks.cache_clear()

    try:
        with pytest.raises(InputError, match=r"framework `toy`, `.*/toy/framework\.toml`: .*'abilites'"):
            frameworks()
    finally:
        pi_runners.frameworks.__path__.remove(str(tmp_path))
        frameworks.cache_clear()


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Add an empty package of frameworks, ``toys``, to those of the program; return its folder."""
    (tmp_path / "toys").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    framework_packages.add("toys")
    frameworks.cache_clear()
    yield tmp_path / "toys"
    framework_packages.remove("toys")
    frameworks.cache_clear()


def test_two_frameworks_of_one_name_are_an_error_that_names_both(toys: Path) -> None:
    shutil.copytree(FOLDER, toys / "torch")
    own = Path(pi_runners.frameworks.__path__[0]) / "torch"

    with pytest.raises(InputError) as error:
        frameworks()

    assert error.value.message == f"two frameworks have the name `torch`: `{own}` and `{toys / 'torch'}`"


@pytest.mark.parametrize("package", ["toyz", "toyz.frameworks", "tomllib._parser"])
def test_a_package_of_frameworks_that_does_not_exist_is_an_error_that_names_it(package: str, toys: Path) -> None:
    framework_packages.add(package)

    try:
        with pytest.raises(InputError) as error:
            frameworks()
    finally:
        framework_packages.remove(package)

    assert error.value.message == f"there is no package `{package}` of frameworks"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('reader = "toyz"', "`profile.reader` is `toyz`, which is no framework"),
        ('reader = ["toy"]', "`profile.reader` is `['toy']`, which is no framework"),
    ],
)
def test_a_reader_of_traces_that_is_no_framework_is_an_error_that_names_the_file(
    line: str, problem: str, toys: Path
) -> None:
    shutil.copytree(FOLDER, toys / "toy")
    path = toys / "toy" / "framework.toml"
    path.write_text(path.read_text().replace("[profile]\n", f"[profile]\n{line}\n"))

    with pytest.raises(InputError) as error:
        frameworks()

    assert error.value.message == f"the framework `toy`, `{path}`: {problem}"


def test_knowledge_reads_the_frameworks_of_any_package_that_adds_them(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "toys" / "toy")
    program = """
import sys
sys.modules["pi_runners"] = None
from knowledge.domain import framework_packages
from knowledge.domain.frameworks import frameworks
try:
    frameworks()
except LookupError as error:
    print(error)
framework_packages.add("toys")
print(*frameworks())
"""
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{Path.cwd()}"}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)

    assert run.stdout.splitlines() == [
        "no package has added its frameworks to `knowledge.domain.framework_packages`",
        "toy",
    ]
