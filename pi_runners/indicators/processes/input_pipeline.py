"""Preparation of the input of a training: images, batches and tokens."""

from __future__ import annotations

import math
import random
from typing import List, Sequence, Tuple

from pi_runners.harness.contract import Array, Backend, Parameter, Parameters, Trial
from pi_runners.harness.random_inputs import random_bytes
from pi_runners.indicators.checks.results import worst_error
from pi_runners.indicators.indicator import PROCESS_BYTES, Operation
from pi_runners.indicators.processes.input_text import BOOK, split_words, vocabulary

_HEIGHT, _WIDTH = 375, 500
"""Size of the images: the most common one of ImageNet."""
_RESIZED, _CROP = 256, 224
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Constants of normalisation that users take from torchvision."""
_FILES = 2
"""Number of different images."""
_NOISE = 24
"""Amplitude of the noise, which gives files of the size of photographs."""
_BLOCK = 16
"""Rows and columns whose mean colour is checked."""
_SIZE, _BATCH = 64, 32
"""Size of the images of the loader, and its batch."""
_KINDS = ("decode", "loader", "tokens")


class InputPipeline(Operation):
    """What a training waits for: images from JPEG files, batches from a loader, or tokens of texts."""

    name = "input"
    summary = "the input of a training: images decoded from JPEG and augmented, batches from a loader, tokens of texts"
    corresponds = (
        "the input pipelines of MLPerf Training (https://mlcommons.org/benchmarks/training/), with the files in memory"
    )
    flops_formula = "0: the indicator measures time only"
    bytes_formula = "count (3 height width + 12 224^2) (decode), count 15 size^2 (loader), bytes of the texts (tokens)"
    source = "counted from the definition"
    devices = ("cpu",)
    dtypes = ("float32",)
    parameters = {  # noqa: RUF012
        "kind": Parameter("what is prepared", choices=_KINDS),
        "count": Parameter("images of a batch, images of an epoch of the loader, or texts", most=2**16),
        "workers": Parameter("processes of the loader of PyTorch; 0: the process itself", least=0, most=64, default=0),
    }
    sets = {  # noqa: RUF012
        size: (
            {"kind": "decode", "count": images},
            {"kind": "loader", "count": samples},
            {"kind": "loader", "count": samples, "workers": 2},
            {"kind": "tokens", "count": texts},
        )
        for size, images, samples, texts in (
            ("small", 8, 1024, 64),
            ("medium", 32, 4096, 512),
            ("large", 256, 16384, 4096),
        )
    }
    notes = (
        "`decode`: images of 375 x 500 pixels with noise, encoded once by the library itself. Each is decoded, resized "
        "to 256 x 256, cropped to 224 x 224 at random, flipped at random, and normalised to float32. The mean colours "
        "of blocks of every image are compared with the colours that were encoded.",
        "`loader`: one epoch over images of 64 x 64 pixels in memory, shuffled, normalised one by one, in batches of "
        "32. PyTorch: a `DataLoader`, with the worker processes alive between epochs. TensorFlow: `tf.data` with "
        "`map`, `batch` and `prefetch`, which uses threads. The sum of all pixels and the number of images are "
        "checked.",
        "`tokens`: WordPiece with a given vocabulary. All tokens are compared with the tokens of the same algorithm in "
        "Python.",
        "Pillow also needs NumPy in its stack, as users need it to normalise images.",
    )

    def needed(self, parameters: Parameters) -> Tuple[str, ...]:
        kind = parameters.get("kind", "")
        return (kind, "loader processes") if parameters.get("workers") else (kind,)

    def complaints(self, parameters: Parameters) -> List[str]:
        messages = super().complaints(parameters)
        if not messages and parameters["kind"] != "loader" and parameters.get("workers"):
            messages.append("`workers` is a parameter of the kind `loader` only")
        return messages

    def items(self, parameters: Parameters) -> float:
        return float(parameters["count"])

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """Return the bytes of pixels, read as integers and written as float32, or the bytes of the texts."""
        if parameters["kind"] == "decode":
            return float(parameters["count"] * (3 * _HEIGHT * _WIDTH + 12 * _CROP**2))
        if parameters["kind"] == "loader":
            return float(parameters["count"] * 15 * _SIZE**2)
        return float(sum(len(text) for text in _texts(parameters["count"])))

    def memory(self, parameters: Parameters, dtype: str) -> float:
        """Return the memory of the processes, and of three times the pixels or texts, which a loader holds once."""
        copies = 1 if parameters["kind"] == "loader" else 3
        return PROCESS_BYTES * float(1 + parameters.get("workers", 0)) + copies * self.bytes_moved(parameters, dtype)

    def prepare(self, backend: Backend, parameters: Parameters) -> Trial:
        if parameters["kind"] == "decode":
            return _prepare_images(backend, parameters["count"])
        if parameters["kind"] == "loader":
            return _prepare_loader(backend, parameters["count"], parameters["workers"])
        return _prepare_tokens(backend, parameters["count"])


def _prepare_images(backend: Backend, count: int) -> Trial:
    files = [backend.encode_jpeg(_image(number), _HEIGHT, _WIDTH) for number in range(_FILES)]
    generator = random.Random(62)
    margin = _RESIZED - _CROP
    crops = [
        (generator.randint(0, margin), generator.randint(0, margin), generator.random() < 0.5) for _ in range(count)
    ]
    scale = [(1 / 255 / d, -m / d) for m, d in zip(_MEAN, _DEVIATION)]
    run = backend.decode_images([files[i % _FILES] for i in range(count)], _RESIZED, crops, _CROP, scale)

    def check(result: Array) -> float:
        if backend.shape_of(result) != (count, _CROP, _CROP, 3):
            return math.inf
        errors = []
        for i, (top, left, flip) in enumerate(crops):
            for row, column in ((0, 0), (_CROP - _BLOCK, _BLOCK), (_CROP // 2, _CROP - _BLOCK)):
                block = (i, slice(row, row + _BLOCK), slice(column, column + _BLOCK))
                pixels = backend.read_all(result, block)
                # Positions of the block's centre in the resized image, which may have been flipped.
                y = top + row + _BLOCK / 2
                x = left + (_CROP - column - _BLOCK / 2 if flip else column + _BLOCK / 2)
                for channel, (gain, offset) in enumerate(scale):
                    mean = math.fsum(pixels[channel::3]) / _BLOCK**2
                    errors.append(
                        abs((mean - offset) / gain - _colour(i % _FILES, channel, y / _RESIZED, x / _RESIZED))
                    )
        return worst_error(errors) / 255

    # The means of blocks differ from the colours at their centres by 0.6 % of the range: curvature, noise and JPEG.
    return Trial(run, check, 0.015)


def _colour(number: int, channel: int, y: float, x: float) -> float:
    """Return the smooth colour of an image at a position from 0 to 1."""
    return 127.5 + 80 * math.sin(2 * math.pi * ((0.5 + 0.2 * number) * x + (0.4 + 0.1 * channel) * y) + channel)


def _image(number: int) -> bytes:
    """Return the pixels of an image by rows: smooth colours with noise."""
    noise = random_bytes(63 + number, 3 * _HEIGHT * _WIDTH)
    pixels = bytearray(3 * _HEIGHT * _WIDTH)
    for channel in range(3):
        for row in range(_HEIGHT):
            y = (row + 0.5) / _HEIGHT
            start = 3 * _WIDTH * row + channel
            colours = [_colour(number, channel, y, (column + 0.5) / _WIDTH) for column in range(_WIDTH)]
            shifts = noise[start : start + 3 * _WIDTH : 3]
            pixels[start : start + 3 * _WIDTH : 3] = bytes(
                round(colour + (shift - 127.5) / 127.5 * _NOISE) for colour, shift in zip(colours, shifts)
            )
    return bytes(pixels)


def _prepare_loader(backend: Backend, count: int, workers: int) -> Trial:
    raw = random_bytes(65, count * 3 * _SIZE**2)
    run = backend.load_batches(raw, (count, 3, _SIZE, _SIZE), _BATCH, workers)
    # Pixels are normalised from 0..255 to -1..1.
    expected = math.fsum((byte - 127.5) / 127.5 * raw.count(byte) for byte in range(256))

    def check(result: Tuple[int, float]) -> float:
        number, total = result
        return math.inf if number != count else abs(total - expected) / len(raw)

    return Trial(run, check, 1e-6)


def _prepare_tokens(backend: Backend, count: int) -> Trial:
    words, texts = vocabulary(), _texts(count)
    run = backend.tokenise(texts, words)
    places = {word: place for place, word in enumerate(words)}

    def check(result: Sequence[Sequence[int]]) -> float:
        expected = [[places[piece] for piece in split_words(text, places)] for text in texts]
        return 0.0 if [list(tokens) for tokens in result] == expected else math.inf

    return Trial(run, check, 0.0)


def _texts(count: int) -> List[str]:
    """Return texts of one to four sentences."""
    sentences = [sentence.strip() + "." for sentence in BOOK.split(".") if sentence.strip()]
    generator = random.Random(66)
    return [" ".join(generator.choice(sentences) for _ in range(generator.randint(1, 4))) for _ in range(count)]
