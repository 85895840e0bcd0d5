"""Trains a classifier of photographs."""

import tensorflow as tf

model = tf.keras.Sequential([tf.keras.layers.Conv2D(32, 3), tf.keras.layers.Flatten(), tf.keras.layers.Dense(10)])
model.compile(optimizer="sgd", loss="mse")
