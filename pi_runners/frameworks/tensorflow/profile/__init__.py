"""Profiles of TensorFlow and Keras."""
