"""A text with a vocabulary, and WordPiece in Python (Schuster and Nakajima 2012; arXiv 1609.08144 section 4.1)."""

from __future__ import annotations

import re
from collections import Counter
from typing import Container, List

BOOK = """
A neural network is a function with many weights. Training changes the weights so that the error on known examples
becomes smaller. Each step reads a batch of examples, computes the predictions of the network, and compares them with
the labels. The gradient of the error says in which direction every weight should move, and the optimiser moves it by
a small amount. Large networks need many steps, so the speed of one step decides how long a training takes.

The arithmetic of a step is mostly products of matrices. A processor reaches its peak only if the matrices are large
and if the library was written for its instruction set. Smaller operations, such as normalisations and activations,
are limited by the bandwidth of the memory. Compilers join them, so that intermediate results never leave the caches.

A training can also wait for its input. Images are read from files, decompressed, resized, cropped, flipped at random
and normalised; texts are split into words, and the words into pieces with numbers. If this preparation is slower than
the step, then a faster accelerator changes nothing. Therefore frameworks prepare the next batches in other threads or
processes while the current batch is computed.

Versions of libraries differ in all of these parts. A release may bring faster kernels for new processors, another
memory allocator, or a regression that nobody noticed. Only measurements on comparable hardware show which combination
of versions is fast; unfortunately, they take time, and their noise must be known before two numbers are compared.
"""
_UNKNOWN = "[UNK]"


def vocabulary() -> List[str]:
    """Return pieces: all letters, and the parts of at most six letters that several words of the text have."""
    parts: Counter[str] = Counter()
    letters = set()
    for word in set(_words(BOOK)):
        for start in range(len(word)):
            mark = "##" if start else ""
            letters |= {word[start], "##" + word[start]}
            parts.update(mark + word[start:end] for end in range(start + 2, min(len(word), start + 6) + 1))
    return [_UNKNOWN, *sorted(letters), *sorted(part for part, count in parts.items() if count > 1)]


def split_words(text: str, pieces: Container[str]) -> List[str]:
    """Return the pieces of a text: of each word the longest piece, then the longest piece of the rest.

    Args:
        text: The text.
        pieces: The vocabulary.
    """
    longest: List[str] = []
    for word in _words(text):
        start, split = 0, []
        while start < len(word):
            mark = "##" if start else ""
            end = next((end for end in range(len(word), start, -1) if mark + word[start:end] in pieces), 0)
            if not end:
                split = [_UNKNOWN]
                break
            split.append(mark + word[start:end])
            start = end
        longest += split
    return longest


def _words(text: str) -> List[str]:
    return re.findall(r"[a-z0-9]+|[^a-z0-9\s]", text.lower())
