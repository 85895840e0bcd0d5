"""A program to profile, with a module in place of ONNX Runtime, which writes a recorded profile."""

from __future__ import annotations

from pathlib import Path

TRACES = Path(__file__).parents[2] / "fixtures" / "traces"

MODULE = """
import pathlib, time
PROFILE = pathlib.Path(__file__).with_name("profile.json")
class SessionOptions:
    enable_profiling = False
    profile_file_prefix = ""
class InferenceSession:
    def __init__(self, path, sess_options=None, providers=()):
        self.options = sess_options or SessionOptions()
    def run(self, names, inputs):
        time.sleep(0.001)
        return [inputs]
    def run_with_iobinding(self, binding):
        pass
    def end_profiling(self):
        path = self.options.profile_file_prefix + "_now.json"
        pathlib.Path(path).write_bytes(PROFILE.read_bytes())
        return path
"""
PROGRAM = """
import onnxruntime, sys
session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
for number in range(int(sys.argv[1])):
    assert session.run(None, {"x": number}) == [{"x": number}]
print("the last line")
"""
