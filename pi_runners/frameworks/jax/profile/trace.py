"""Reads traces of JAX, whose profiler is that of TensorFlow."""

from __future__ import annotations

from pi_runners.frameworks.tensorflow.profile.trace import READER

__all__ = ["READER"]
