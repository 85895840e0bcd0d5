"""Models of text."""

from __future__ import annotations

from typing import List, Sequence, Tuple

from pi_runners.harness.contract import Array, Parameter, Parameters
from pi_runners.models.layers import Inputs, Layers
from pi_runners.models.network import BATCH, Network, Published, both


class Bert(Network):
    """The encoder of BERT-base with its pooler and a classifier of two classes, as for fine-tuning."""

    name = "bert_base"
    summary = "BERT-base encoder: classification of sentences"
    source = "https://arxiv.org/abs/1810.04805 section 3"
    published = Published(
        109_483_778, 0, {"batch": 1, "length": 128}, "https://huggingface.co/google-bert/bert-base-uncased"
    )
    blocks = {"encoder_block": 12}  # noqa: RUF012
    parameters = {"batch": BATCH, "length": Parameter("tokens of a sequence", most=512)}  # noqa: RUF012
    optimiser = "adamw"
    sets = {  # noqa: RUF012
        "small": {"training": {"batch": 1, "length": 16}, "inference": {"batch": 1, "length": 32}},
        "medium": {"training": {"batch": 2, "length": 64}, "inference": {"batch": 1, "length": 128}},
        "large": {"training": {"batch": 64, "length": 512}, "inference": {"batch": 128, "length": 512}},
    }
    classes = 2
    probe = {"batch": 2, "length": 6}  # noqa: RUF012

    def inputs(self, p: Parameters, mode: str) -> List[Inputs]:
        shape = (p["batch"], p["length"])
        return [Inputs("indices", shape, 30522), Inputs("indices", shape, 2)]

    def forward(self, n: Layers, inputs: Sequence[Array], p: Parameters, mode: str) -> Array:
        """Embed, run twelve blocks with normalisation after each layer, pool the first token and classify it."""
        x = n.add(n.embedding("words", inputs[0], 30522, 768), n.embedding("sentences", inputs[1], 2, 768))
        x = n.layer_norm("norm", n.add_positions("positions", x, 512), 1e-12)
        for block in range(12):
            at = "block{}.".format(block + 1)
            x = n.layer_norm(at + "norm1", n.add(x, n.self_attention(at + "attention", x, 12)), 1e-12)
            y = n.dense(at + "narrow", n.gelu(n.dense(at + "widen", x, 3072)), 768)
            x = n.layer_norm(at + "norm2", n.add(x, y), 1e-12)
        return n.dense("classifier", n.tanh(n.dense("pooler", n.token(x, 0), 768)), 2)


class Encoder(Network):
    """Transformer encoder of any width and depth on vectors, with a classifier of the first token."""

    name = "encoder"
    summary = "transformer encoder of any width and depth: classification of sequences of vectors"
    source = "https://arxiv.org/abs/1706.03762 section 3.1, with normalisation before each layer"
    parameters = {  # noqa: RUF012
        "batch": BATCH,
        "length": Parameter("tokens of a sequence", most=4096),
        "width": Parameter("width of a token, a multiple of 64", least=64, most=4096),
        "layers": Parameter("blocks", most=16),
    }
    optimiser = "adamw"
    sets = {  # noqa: RUF012
        "small": both({"batch": 1, "length": 32, "width": 128, "layers": 4}),
        "medium": both({"batch": 8, "length": 128, "width": 256, "layers": 4}),
        "large": both({"batch": 32, "length": 512, "width": 1024, "layers": 12}),
    }
    classes = 1000
    probe = {"batch": 2, "length": 6, "width": 128, "layers": 2}  # noqa: RUF012
    multiples = {"width": 64}  # noqa: RUF012

    def inputs(self, p: Parameters, mode: str) -> List[Inputs]:
        return [Inputs("features", (p["batch"], p["length"], p["width"]))]

    def items(self, p: Parameters, mode: str) -> float:
        return float(p["batch"] * p["length"])

    def forward(self, n: Layers, inputs: Sequence[Array], p: Parameters, mode: str) -> Array:
        x = inputs[0]
        for block in range(p["layers"]):
            at = "block{}.".format(block + 1)
            x = n.add(x, n.self_attention(at + "attention", n.layer_norm(at + "norm1", x), p["width"] // 64))
            y = n.gelu(n.dense(at + "widen", n.layer_norm(at + "norm2", x), 4 * p["width"]))
            x = n.add(x, n.dense(at + "narrow", y, p["width"]))
        return n.dense("classifier", n.token(n.layer_norm("norm", x), 0), 1000)


class Gpt2(Network):
    """GPT-2 small: training on all tokens; inference as prefill of a prompt and as decoding of one token."""

    name = "gpt2"
    summary = "GPT-2 small: language model"
    source = "https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf"
    published = Published(
        124_439_808,
        0,
        {"batch": 1, "length": 128},
        "https://github.com/karpathy/llm.c/blob/836ec640f39a9bf6148ee96fc1c5445f4abeeeb7/README.md (`num_parameters`)",
    )
    blocks = {"encoder_block": 12, "word_classifier": 1}  # noqa: RUF012
    parameters = {  # noqa: RUF012
        "batch": BATCH,
        "length": Parameter("tokens of a sequence; when decoding, of the sequence so far", most=1023),
    }
    modes = ("training", "prefill", "decode")
    optimiser = "adamw"
    sets = {  # noqa: RUF012
        "small": {
            "training": {"batch": 1, "length": 16},
            "prefill": {"batch": 1, "length": 32},
            "decode": {"batch": 1, "length": 64},
        },
        "medium": {
            "training": {"batch": 1, "length": 64},
            "prefill": {"batch": 1, "length": 128},
            "decode": {"batch": 4, "length": 512},
        },
        "large": {
            "training": {"batch": 16, "length": 1023},
            "prefill": {"batch": 16, "length": 1023},
            "decode": {"batch": 64, "length": 1023},
        },
    }
    probe = {"batch": 2, "length": 6}  # noqa: RUF012
    _WORDS, _WIDTH, _HEADS, _BLOCKS = 50257, 768, 12, 12

    def inputs(self, p: Parameters, mode: str) -> List[Inputs]:
        """Return tokens; when decoding, one new token and the keys and values of the earlier ones."""
        if mode != "decode":
            return [Inputs("indices", (p["batch"], p["length"]), self._WORDS)]
        cache = Inputs("features", (p["batch"], self._HEADS, p["length"], self._WIDTH // self._HEADS))
        return [Inputs("indices", (p["batch"], 1), self._WORDS), *([cache] * 2 * self._BLOCKS)]

    def logits_shape(self, p: Parameters, mode: str) -> Tuple[int, int]:
        """Return one row for each token in training, and for the last token otherwise."""
        return int(p["batch"] * (p["length"] if mode == "training" else 1)), self._WORDS

    def items(self, p: Parameters, mode: str) -> float:
        """Return the tokens of a batch: one of each sequence when decoding."""
        return float(p["batch"] * (1 if mode == "decode" else p["length"]))

    def forward(self, n: Layers, inputs: Sequence[Array], p: Parameters, mode: str) -> Array:
        """Run twelve blocks with normalisation before each layer; the last layer shares the table of words."""
        x = n.embedding("words", inputs[0], self._WORDS, self._WIDTH)
        x = n.add_positions("positions", x, 1024, p["length"] if mode == "decode" else 0)
        for block in range(self._BLOCKS):
            at = "block{}.".format(block + 1)
            h = n.layer_norm(at + "norm1", x)
            if mode == "decode":
                cache = inputs[1 + 2 * block], inputs[2 + 2 * block]
                y = n.cached_attention(at + "attention", h, self._HEADS, cache)[0]
            else:
                y = n.self_attention(at + "attention", h, self._HEADS, causal=True)
            x = n.add(x, y)
            y = n.gelu(n.dense(at + "widen", n.layer_norm(at + "norm2", x), 4 * self._WIDTH), approximate=True)
            x = n.add(x, n.dense(at + "narrow", y, self._WIDTH))
        x = n.layer_norm("norm", x)
        last = n.rows(x) if mode == "training" else n.token(x, -1)
        return n.tied_dense("words", last)


class SequenceToSequence(Network):
    """LSTM encoder and decoder with attention to the encoder."""

    name = "seq2seq"
    summary = "LSTM sequence-to-sequence with attention: translation"
    source = "https://arxiv.org/abs/1508.04025 section 3 (dot attention), https://arxiv.org/abs/1409.3215 (depth)"
    blocks = {"recurrent_block": 4, "word_classifier": 1}  # noqa: RUF012
    parameters = {  # noqa: RUF012
        "batch": BATCH,
        "length": Parameter("tokens of a sentence", most=1024),
        "hidden": Parameter("hidden units of a layer", most=4096),
        "layers": Parameter("layers of the encoder and of the decoder", most=16),
        "words": Parameter("words of a language"),
    }
    sets = {  # noqa: RUF012
        "small": {
            "training": {"batch": 4, "length": 10, "hidden": 256, "layers": 2, "words": 8000},
            "inference": {"batch": 1, "length": 20, "hidden": 256, "layers": 2, "words": 8000},
        },
        "medium": {
            "training": {"batch": 16, "length": 20, "hidden": 512, "layers": 2, "words": 8000},
            "inference": {"batch": 4, "length": 20, "hidden": 1000, "layers": 4, "words": 8000},
        },
        "large": {
            "training": {"batch": 128, "length": 50, "hidden": 1000, "layers": 4, "words": 50000},
            "inference": {"batch": 128, "length": 50, "hidden": 1000, "layers": 4, "words": 50000},
        },
    }
    probe = {"batch": 2, "length": 5, "hidden": 32, "layers": 2, "words": 100}  # noqa: RUF012

    def inputs(self, p: Parameters, mode: str) -> List[Inputs]:
        return [Inputs("indices", (p["batch"], p["length"]), p["words"])] * 2

    def logits_shape(self, p: Parameters, mode: str) -> Tuple[int, int]:
        return int(p["batch"] * p["length"]), int(p["words"])

    def items(self, p: Parameters, mode: str) -> float:
        return float(p["batch"] * p["length"])

    def forward(self, n: Layers, inputs: Sequence[Array], p: Parameters, mode: str) -> Array:
        """Encode, decode from the last states of the encoder, attend to the encoder, and classify every word."""
        source = n.embedding("source", inputs[0], p["words"], p["hidden"])
        target = n.embedding("target", inputs[1], p["words"], p["hidden"])
        for layer in range(p["layers"]):
            source, state = n.lstm("encoder{}".format(layer + 1), source, p["hidden"])
            target, _ = n.lstm("decoder{}".format(layer + 1), target, p["hidden"], state)
        mixed = n.join(n.attend(target, source), target)
        return n.rows(n.dense("classifier", n.tanh(n.dense("mix", mixed, p["hidden"], bias=False)), p["words"]))
