"""Profiles of ONNX Runtime."""
