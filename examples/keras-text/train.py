"""Trains a text classifier on random tokens: a program for `advisor workload profile`."""

import argparse
import time

import keras
import numpy as np

WORDS, LENGTH, CLASSES = 20_000, 128, 4


def build() -> keras.Model:
    """Return a classifier with one block of attention."""
    tokens = keras.Input((LENGTH,), dtype="int32")
    embedded = keras.layers.Embedding(WORDS, 128)(tokens)
    attended = keras.layers.MultiHeadAttention(num_heads=4, key_dim=32)(embedded, embedded)
    hidden = keras.layers.LayerNormalization()(embedded + attended)
    hidden = keras.layers.Dense(512, activation="relu")(hidden)
    pooled = keras.layers.GlobalAveragePooling1D()(hidden)
    return keras.Model(tokens, keras.layers.Dense(CLASSES)(pooled))


def main() -> None:
    """Train, and print the loss of each epoch and the throughput of the last one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=32)
    options = parser.parse_args()
    generator = np.random.default_rng(0)
    texts = generator.integers(WORDS, size=(1024, LENGTH), dtype=np.int32)
    labels = generator.integers(CLASSES, size=1024)
    model = build()
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    seconds = 0.0
    for _ in range(options.epochs):
        started = time.perf_counter()
        model.fit(texts, labels, batch_size=options.batch, verbose=2)
        seconds = time.perf_counter() - started
    if seconds:
        print(f"throughput: {len(texts) / seconds:.1f} texts/s", flush=True)


if __name__ == "__main__":
    main()
