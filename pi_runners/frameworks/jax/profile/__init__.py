"""Profiles of JAX; its profiler is that of TensorFlow, whose folder reads the traces."""
