"""The library tokenizers on the CPU; it only splits texts."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, Sequence

import tokenizers
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from pi_runners.harness.contract import Backend, Parameters


class TokenizersBackend(Backend):
    """Texts are split in batches, in all threads."""

    name = "tokenizers"
    dtypes = ("float32",)
    on_processors = "tokenizers"

    def __init__(self, device: str, dtype: str, settings: Parameters) -> None:
        super().__init__(device, dtype, settings)
        if "threads" in settings:
            # Threads start with the first batch.
            os.environ["RAYON_NUM_THREADS"] = str(settings["threads"])

    def describe(self) -> Dict[str, Any]:
        return {"tokenizers": tokenizers.__version__}

    def tokenise(self, texts: Sequence[str], vocabulary: Sequence[str]) -> Callable[[], List[List[int]]]:
        """`WordPiece` after the normaliser and the splitter of BERT."""
        places = {word: place for place, word in enumerate(vocabulary)}
        tokenizer = Tokenizer(WordPiece(places, unk_token=vocabulary[0]))
        tokenizer.normalizer = BertNormalizer()
        tokenizer.pre_tokenizer = BertPreTokenizer()
        batch = list(texts)
        return lambda: [encoding.ids for encoding in tokenizer.encode_batch(batch)]
