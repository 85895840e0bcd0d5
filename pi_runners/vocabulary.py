"""Names that requests, matrix files and reports use: framework distributions and their backends.

The code that runs inside measured environments (:mod:`pi_runners.harness`, ``backends``, ``indicators``) does not need
this module: a request names the backend.
"""

from __future__ import annotations

FRAMEWORKS = {
    "numpy": "numpy",
    "tensorflow": "tensorflow",
    "tensorflow-cpu": "tensorflow",
    "tensorflow-gpu": "tensorflow",
    "tf-nightly": "tensorflow",
    "torch": "torch",
    "jax": "jax",
    "onnxruntime": "onnxruntime",
    "onnxruntime-gpu": "onnxruntime",
}
"""Backend of each distribution that provides a framework."""

INPUT_LIBRARIES = {
    "pillow": "pillow",
    "opencv-python-headless": "opencv",
    "opencv-python": "opencv",
    "tokenizers": "tokenizers",
}
"""Backend of each distribution that prepares input: it is measured, but does not count for the speed of a stack."""

MEASURED = {**FRAMEWORKS, **INPUT_LIBRARIES}
"""Backend of each distribution that can be measured."""

BACKENDS = tuple(dict.fromkeys(MEASURED.values()))
"""Names of the backends."""
