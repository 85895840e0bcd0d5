"""Train a transformer encoder on random tokens, and print the seconds of the steps after the first."""

import os
import time

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np

WORDS, LENGTH, WIDTH, HEADS, LAYERS, CLASSES = 30_000, 128, 512, 8, 4, 4
BATCH, STEPS = 16, 2


def build() -> keras.Model:
    """Return a classifier of the size of BERT-small (https://arxiv.org/abs/1908.08962)."""
    tokens = keras.Input((LENGTH,), dtype="int32")
    hidden = keras.layers.Embedding(WORDS, WIDTH)(tokens)
    for _ in range(LAYERS):
        attended = keras.layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(hidden, hidden)
        hidden = keras.layers.LayerNormalization()(hidden + attended)
        wide = keras.layers.Dense(4 * WIDTH, activation="gelu")(hidden)
        hidden = keras.layers.LayerNormalization()(hidden + keras.layers.Dense(WIDTH)(wide))
    pooled = keras.layers.GlobalAveragePooling1D()(hidden)
    return keras.Model(tokens, keras.layers.Dense(CLASSES)(pooled))


def main() -> None:
    """Train."""
    keras.utils.set_random_seed(0)
    generator = np.random.default_rng(0)
    texts = generator.integers(WORDS, size=(BATCH * STEPS, LENGTH), dtype=np.int32)
    labels = generator.integers(CLASSES, size=BATCH * STEPS)
    model = build()
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(texts, labels, batch_size=BATCH, epochs=1, verbose=0)
    start = time.perf_counter()
    model.fit(texts, labels, batch_size=BATCH, epochs=1, verbose=0)
    print(f"seconds: {time.perf_counter() - start:.6f}")


if __name__ == "__main__":
    main()
