"""Train a transformer on the handwritten digits of scikit-learn; each square of 2 x 2 pixels is a token."""

import argparse
import time

import keras
from keras import layers
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

EPOCHS, BATCH, WIDTH, HEADS, BLOCKS = 4, 64, 192, 4, 3
SIDE, PATCH = 8, 2
TOKENS = (SIDE // PATCH) ** 2


class Positions(layers.Layer):
    """Adds a trained vector to each token."""

    def build(self, shape: tuple[int, ...]) -> None:
        """Make the vectors."""
        self.vectors = self.add_weight(shape=shape[1:], initializer="uniform")

    def call(self, tokens: object) -> object:
        """Return the sum."""
        return tokens + self.vectors


def build_model() -> keras.Model:
    """Return a model that classifies images."""
    inputs = keras.Input((SIDE, SIDE, 1))
    patches = layers.Conv2D(WIDTH, PATCH, strides=PATCH)(inputs)
    tokens = Positions()(layers.Reshape((TOKENS, WIDTH))(patches))
    for _ in range(BLOCKS):
        normal = layers.LayerNormalization()(tokens)
        tokens = layers.Add()([tokens, layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(normal, normal)])
        hidden = layers.Dense(4 * WIDTH, activation="gelu")(layers.LayerNormalization()(tokens))
        tokens = layers.Add()([tokens, layers.Dense(WIDTH)(hidden)])
    features = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(tokens))
    return keras.Model(inputs, layers.Dense(10, dtype="float32")(features))


class Clock(keras.callbacks.Callback):
    """Measures the seconds of the last epoch."""

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        """Start the clock."""
        self.start = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        """Stop the clock."""
        self.seconds = time.perf_counter() - self.start


def read_options() -> argparse.Namespace:
    """Return what the command line selects."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--amp", action="store_true", help="compute in bfloat16, with float32 weights")
    parser.add_argument("--xla", action="store_true", help="compile with XLA")
    return parser.parse_args()


def main() -> None:
    """Train for some epochs, and print the speed of the last one."""
    options = read_options()
    keras.mixed_precision.set_global_policy("mixed_bfloat16" if options.amp else "float32")
    keras.utils.set_random_seed(0)
    digits = load_digits()
    images, test_images, classes, test_classes = train_test_split(
        digits.images[..., None] / 16, digits.target, test_size=261, random_state=0, stratify=digits.target
    )
    model = build_model()
    model.compile(
        optimizer=keras.optimizers.Adam(1e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=options.xla,
    )
    clock = Clock()
    model.fit(images, classes, batch_size=BATCH, epochs=EPOCHS, callbacks=[clock], verbose=0)
    _, accuracy = model.evaluate(test_images, test_classes, verbose=0)
    print(f"accuracy: {accuracy:.3f}")
    print(f"images per second: {len(images) / clock.seconds:.2f}")


if __name__ == "__main__":
    main()
