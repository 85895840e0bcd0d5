"""The input of a training: correct results, refused wrong ones, and the backends of each kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from knowledge.domain.frameworks import FRAMEWORKS, MEASURED, frameworks
from pi_runners.frameworks import make_backend
from pi_runners.harness.contract import Array, Backend, SamplingPlan, Unsupported
from pi_runners.indicators import INDICATORS
from pi_runners.indicators.processes.input_text import BOOK, split_words, vocabulary
from pi_runners.plan.matrix import framework_of

PLAN = SamplingPlan(samples=2, min_seconds=0.0005, max_warmup_seconds=0.1)
INPUT = INDICATORS["input"]
DECODE = {"kind": "decode", "count": 3}
TOKENS = {"kind": "tokens", "count": 5}


class PythonBackend(Backend):
    """Splits texts, and loads batches, in Python."""

    name = "tokenizers"

    def tokenise(self, texts: Sequence[str], vocabulary: Sequence[str]) -> Any:
        places = {word: place for place, word in enumerate(vocabulary)}
        return lambda: [[places[piece] for piece in split_words(text, places)] for text in texts]

    def load_batches(self, raw: bytes, shape: Sequence[int], batch: int, workers: int) -> Any:
        return lambda: (shape[0], sum((byte - 127.5) / 127.5 for byte in raw))


def measure(backend: Backend, parameters: dict[str, Any]) -> dict[str, Any]:
    return INPUT.measure(backend, parameters, PLAN)


def test_correct_tokens_and_batches_are_accepted() -> None:
    backend = PythonBackend("cpu", "float32", {})

    assert measure(backend, TOKENS)["status"] == "ok"
    assert measure(backend, {"kind": "loader", "count": 2})["status"] == "ok"


@pytest.mark.parametrize("change", [lambda t: t[1:], lambda t: [t[0][1:], *t[1:]], lambda t: t[::-1]])
def test_wrong_tokens_are_refused(change: Any) -> None:
    class FaultyBackend(PythonBackend):
        def tokenise(self, texts: Sequence[str], vocabulary: Sequence[str]) -> Any:
            run = super().tokenise(texts, vocabulary)
            return lambda: change(run())

    assert measure(FaultyBackend("cpu", "float32", {}), TOKENS)["status"] == "wrong-result"


@pytest.mark.parametrize("change", [lambda n, t: (n - 1, t), lambda n, t: (n, t + 1.0), lambda n, t: (n, -t)])
def test_wrong_batches_are_refused(change: Any) -> None:
    class FaultyBackend(PythonBackend):
        def load_batches(self, raw: bytes, shape: Sequence[int], batch: int, workers: int) -> Any:
            run = super().load_batches(raw, shape, batch, workers)
            return lambda: change(*run())

    assert measure(FaultyBackend("cpu", "float32", {}), {"kind": "loader", "count": 2})["status"] == "wrong-result"


def test_the_pieces_of_words_are_the_longest_ones() -> None:
    pieces = {"un", "unit", "##s", "##a", "s"}

    assert split_words("Units una, unix", pieces) == ["unit", "##s", "un", "##a", "[UNK]", "[UNK]"]
    assert "[UNK]" not in split_words(BOOK, set(vocabulary()))


@pytest.mark.parametrize("backend", ["pillow", "opencv"])
def test_images_have_the_colours_that_were_encoded(backend: str) -> None:
    pytest.importorskip({"pillow": "PIL", "opencv": "cv2"}[backend])
    pytest.importorskip("numpy")

    measured = measure(make_backend(backend, "cpu", "float32", {}), DECODE)

    assert measured["status"] == "ok", measured


@pytest.mark.parametrize(
    "change",
    [
        lambda images: images[..., ::-1],
        lambda images: images[:, :, ::-1],
        lambda images: images[:, ::-1],
        lambda images: images[::-1],
        lambda images: images[1:],
        lambda images: images * 1.1,
        lambda images: images * float("nan"),
    ],
)
def test_images_with_other_colours_are_refused(change: Any) -> None:
    pytest.importorskip("PIL")
    pytest.importorskip("numpy")
    from pi_runners.frameworks.pillow.operations import PillowBackend

    class FaultyBackend(PillowBackend):
        def decode_images(self, *arguments: Any) -> Any:
            run = super().decode_images(*arguments)

            def spoil() -> Array:
                return change(run())

            return spoil

    assert measure(FaultyBackend("cpu", "float32", {}), DECODE)["status"] == "wrong-result"


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("framework", [pytest.param("tensorflow", marks=pytest.mark.slow), "torch"])
def test_frameworks_load_all_images(framework: str, workers: int) -> None:
    pytest.importorskip(framework)
    parameters = {"kind": "loader", "count": 100, "workers": workers}
    backend = make_backend(framework, "cpu", "float32", {})
    if not INPUT.supports(parameters, frameworks()[framework]):
        with pytest.raises(Unsupported):
            measure(backend, parameters)
        return

    assert measure(backend, parameters)["status"] == "ok"


def test_tokenizers_splits_as_the_reference() -> None:
    pytest.importorskip("tokenizers")

    assert measure(make_backend("tokenizers", "cpu", "float32", {}), TOKENS)["status"] == "ok"


def test_only_the_loader_has_workers() -> None:
    assert INPUT.complaints({**DECODE, "workers": 2}) == ["`workers` is a parameter of the kind `loader` only"]
    assert not INPUT.supports({"kind": "loader", "count": 1, "workers": 2}, frameworks()["tensorflow"])


def test_libraries_for_input_are_measured_but_are_no_frameworks() -> None:
    assert framework_of(["pillow==11.0.0", "numpy==2.0.0"]) == "pillow"
    assert set(frameworks()) - set(FRAMEWORKS.values()) == {"opencv", "pillow", "tokenizers"}
    assert MEASURED["opencv-python"] == "opencv"
