"""The origin of an error: the harness or the framework."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pi_runners.frameworks.numpy.operations import NumpyBackend
from pi_runners.harness import random_inputs, timing, worker
from pi_runners.harness.contract import Backend
from pi_runners.harness.origin import is_ours
from pi_runners.harness.random_inputs import random_bytes
from pi_runners.indicators import INDICATORS
from pi_runners.indicators.operations import matmul
from pi_runners.indicators.programs import inference

REQUEST: dict[str, Any] = {
    "backend": "numpy",
    "settings": {},
    "samples": 2,
    "min_seconds": 1e-4,
    "max_warmup_seconds": 0.1,
}
ENTRY = {"name": "matmul", "parameters": {"m": 4, "n": 4, "k": 4}, "device": "cpu", "dtype": "float32"}


def raised(action: Callable[[], object]) -> BaseException:
    with pytest.raises(BaseException) as info:
        action()
    return info.value


def framework() -> ModuleType:
    """Return a module outside this project and the standard library."""
    module = ModuleType("framework")
    text = "def fail(error):\n    raise error\n"
    exec(compile(text, "/opt/site-packages/framework/__init__.py", "exec"), module.__dict__)
    return module


@pytest.mark.parametrize("error", [RuntimeError("no kernel"), AttributeError("inside"), SystemExit(3), MemoryError()])
def test_an_error_inside_a_framework_is_an_error_of_the_framework(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail = framework().fail
    monkeypatch.setattr(NumpyBackend, "matmul", lambda self, *_: fail(error))

    document = worker.run_indicator(REQUEST, ENTRY)

    assert document["status"] == ("out-of-memory" if isinstance(error, MemoryError) else "error")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (AttributeError("module 'numpy' has no attribute 'gone'"), "harness-error"),
        (TypeError("unexpected keyword"), "harness-error"),
        # C code has no Python frame: it raises these errors for a computation that it does not support.
        (RuntimeError("could not create a primitive"), "error"),
        (NotImplementedError("not implemented for 'Half'"), "unsupported"),
    ],
)
def test_an_error_in_the_code_of_a_backend_is_classified_by_its_type(
    error: Exception, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Backend, *_: Any) -> None:
        raise error

    monkeypatch.setattr(NumpyBackend, "matmul", fail)

    assert worker.run_indicator(REQUEST, ENTRY)["status"] == status


@pytest.mark.parametrize(
    ("module", "name", "value", "reason"),
    [
        (random_inputs, "_CHUNK_BYTES", "4", "TypeError"),
        (matmul, "GROUP", 0, "ZeroDivisionError"),
        (matmul, "_WORK", None, "TypeError"),
    ],
)
def test_an_error_in_inputs_or_checks_is_an_error_of_the_harness(
    module: ModuleType, name: str, value: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, value)

    document = worker.run_indicator(REQUEST, ENTRY)

    assert document["status"] == "harness-error"
    assert reason in document["failure"]


def test_a_clock_that_does_not_advance_is_an_error_of_the_harness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing.time, "perf_counter", lambda: 1.0)  # type: ignore[attr-defined]

    document = worker.run_indicator(REQUEST, ENTRY)

    assert document["status"] == "harness-error"
    assert "clock" in document["failure"]


def test_an_error_in_the_standard_library_belongs_to_its_caller() -> None:
    def by_framework() -> None:
        module = framework()
        module.__dict__["statistics"] = statistics
        exec(
            compile("def mean():\n    statistics.mean([])\n", "/opt/site-packages/framework/a.py", "exec"),
            module.__dict__,
        )
        module.mean()

    assert not is_ours(raised(by_framework))
    assert is_ours(raised(lambda: random_inputs.decode(None, "float32")))  # type: ignore[arg-type]


def test_an_error_in_a_measuring_tool_is_an_error_of_the_harness(tmp_path: Path) -> None:
    module = ModuleType("loadgen")
    exec(compile("def go():\n    raise ValueError\n", str(tmp_path / "loadgen.py"), "exec"), module.__dict__)

    assert is_ours(raised(module.go), str(tmp_path))
    assert not is_ours(raised(module.go))


def test_an_interrupt_is_not_an_error_of_the_framework() -> None:
    assert is_ours(KeyboardInterrupt())


def test_random_bytes_do_not_depend_on_the_chunk_size(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [random_bytes(7, count) for count in (0, 1, 1023, 4097)]

    monkeypatch.setattr(random_inputs, "_CHUNK_BYTES", 256)

    assert [random_bytes(7, count) for count in (0, 1, 1023, 4097)] == whole
    assert json.dumps([len(w) for w in whole]) == "[0, 1, 1023, 4097]"


def test_more_bytes_can_be_generated_than_one_call_of_the_generator_returns() -> None:
    assert len(random_bytes(1, 2**28 + 5)) == 2**28 + 5


@pytest.mark.parametrize("error", [RuntimeError("no kernel"), MemoryError(), SystemError("inside")])
def test_an_error_in_the_reference_of_a_check_is_an_error_of_the_harness(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail = framework().fail

    class Reference(NumpyBackend):
        def matmul(self, *_: object) -> Any:
            return fail(error)

    monkeypatch.setattr(inference, "_reference", lambda backend: Reference("cpu", "float64", {}))
    case = INDICATORS["inference"].complete(INDICATORS["inference"].sets["small"][0])
    entry = {"name": "inference", "parameters": case, "device": "cpu", "dtype": "float32"}

    document = worker.run_indicator(REQUEST, entry)

    assert document["status"] == "harness-error"
    assert "the reference failed" in document["failure"]


@pytest.mark.parametrize(
    ("error", "status"), [(ImportError("libcudart.so.13"), "import-error"), (AttributeError("ours"), "harness-error")]
)
def test_an_error_while_a_framework_is_imported_is_an_import_error_unless_it_is_of_the_harness(
    error: Exception, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(*_: object) -> Backend:
        return framework().fail(error) if status == "import-error" else fail_in_harness()

    def fail_in_harness() -> Backend:
        raise error

    monkeypatch.setattr(worker, "make_backend", make)
    for function in (make, fail_in_harness):
        # Both functions count as code of the harness.
        monkeypatch.setitem(function.__globals__, "__name__", "pi_runners.frameworks")

    assert worker.run_indicator(REQUEST, ENTRY)["status"] == status
