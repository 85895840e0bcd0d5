"""Trains a small image classifier: what a project of this kind looks like to `advisor`."""

import keras
from sklearn.datasets import load_digits


def build() -> keras.Model:
    """Return two convolutions and a classifier."""
    return keras.Sequential(
        [
            keras.layers.Input((8, 8, 1)),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


if __name__ == "__main__":
    images, labels = load_digits(return_X_y=True)
    model = build()
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(images.reshape(-1, 8, 8, 1) / 16, labels, epochs=5)
