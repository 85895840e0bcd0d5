"""A trace that is truncated, empty, of another program or very large gives an error with a hint, or is read."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from pi_runners.profile.events import TraceError
from pi_runners.profile.read import read_trace

TRACES = Path(__file__).parents[2] / "fixtures" / "traces"
TORCH = gzip.decompress((TRACES / "torch-cnn.json.gz").read_bytes())
XPLANE = gzip.decompress((TRACES / "jax-step.xplane.pb.gz").read_bytes())
OTHER = json.dumps({"traceEvents": [{"ph": "X", "cat": "blink", "name": "paint", "ts": 1, "dur": 2}]}).encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (TORCH[: len(TORCH) // 2], "truncated or damaged after"),
        (gzip.compress(TORCH, mtime=0)[:9000], "its compressed content has no end"),
        (b"hello world", "neither JSON nor a complete XPlane file"),
        (XPLANE[:1000], "neither JSON nor a complete XPlane file"),
        (b"{}", "has no `traceEvents`"),
        (b"[]", "has no `traceEvents`"),
        (b'{"traceEvents": 5}', "has no `traceEvents`"),
        (b'{"traceEvents": [{"ts": NaN}]}', "not a trace in JSON"),
        (b'{"traceEvents": [{"args": ' + b"[" * 50_000, "nested too deeply"),
        (OTHER, "is of torch.profiler, TensorFlow, JAX or ONNX Runtime"),
        (b'[{"cat": "Session", "name": "model_loading", "ts": 1, "dur": 1, "ph": "X"}]', "has no run of a model"),
        (b'{"traceEvents": [{"cat": "cpu_op", "ph": "i", "ts": 1}]}', "has no operations"),
        (
            b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 0}]}',
            "has no duration",
        ),
    ],
)
def test_a_bad_trace_gives_an_error_that_names_it(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(content)

    with pytest.raises(TraceError, match=message) as caught:
        read_trace(path)

    assert str(path) in caught.value.message
    assert caught.value.exit_code == 2


def test_a_missing_trace_and_a_directory_without_traces_are_errors(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        read_trace(tmp_path / "nothing.json")
    with pytest.raises(TraceError, match=r"has no `\*\.xplane\.pb`"):
        read_trace(tmp_path)


def test_damaged_graphs_of_a_program_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.xplane.pb").write_bytes(XPLANE)
    (tmp_path / "graphs.json").write_text('{"MatMul": {"operator": 5}}')

    with pytest.raises(TraceError, match=r"graphs\.json` does not hold the graphs of a program"):
        read_trace(tmp_path)


def test_impossible_times_and_numbers_are_ignored(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 10}
    odd = [
        {**event, "ts": 1e300},
        {**event, "dur": -5},
        {**event, "dur": "long"},
        {**event, "tid": {"a": 1}},
        {**event, "args": "none"},
        {**event, "args": {"correlation": "9", "Input Dims": {"a": 1}, "Input type": 5}},
        {**event, "args": {"Input Dims": [[-1, 5], [5, "x"]], "Input type": [None, 3]}},
        {**event, "args": {"Input Dims": [[2**62, 5], [5, 2]]}},
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [*odd, "text", None, 5, []]}))

    summary = read_trace(path)

    assert all(claim.parameters == () for claim in summary.division.claims)
    assert summary.division.total == 10


MEASURE = """
import sys
from pathlib import Path
from pi_runners.profile.read import read_trace
summary = read_trace(Path(sys.argv[1]))
# Not `ru_maxrss`: it contains the peak of the process that started this one.
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(summary.steps, len(summary.division.claims), int(peak.split()[1]) // 1024)
"""


def write_large(path: Path, megabytes: int) -> int:
    """Write a trace that repeats the recorded one, and return its number of steps."""
    events = json.loads(TORCH)["traceEvents"]
    first = min(e["ts"] for e in events if e.get("ph") == "X")
    length = max(e["ts"] + e["dur"] for e in events if e.get("ph") == "X" and e.get("cat") == "cpu_op") - first
    steps = 0
    with path.open("w") as file:
        file.write('{"schemaVersion": 1, "traceEvents": [')
        copy = 0
        while file.tell() < megabytes * 10**6:
            text = ",\n".join(json.dumps({**e, "ts": e["ts"] + copy * length}) for e in events if e.get("ph") == "X")
            file.write(("" if copy == 0 else ",\n") + text)
            copy += 1
            steps += 2
        file.write("]}")
    return steps


def memory_of_reading(path: Path) -> tuple[int, int, int]:
    """Return steps, claims and the peak memory in MB of a process that reads a trace."""
    result = subprocess.run([sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True, check=True)
    steps, claims, peak = map(int, result.stdout.split())
    return steps, claims, peak


def test_a_large_trace_is_streamed(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    steps = write_large(path, 20)
    small = tmp_path / "small.json"
    small.write_bytes(TORCH)

    large_steps, claims, peak = memory_of_reading(path)

    assert large_steps == steps
    _, small_claims, baseline = memory_of_reading(small)
    assert claims == small_claims
    # As Python objects, the events would take more than the file.
    assert peak < baseline + 20


MEASURE_EVENTS = """
import sys
from pathlib import Path
from pi_runners.frameworks.tensorflow.profile.xplane import read_xplane
count = sum(event.duration == 1e-6 for plane in read_xplane(Path(sys.argv[1])) for event in plane.events())
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(count, int(peak.split()[1]) // 1024)
"""


def write_xplane(path: Path, events: int) -> None:
    """Write an XPlane file with one plane, of one line."""

    def field(number: int, content: bytes) -> bytes:
        length = len(content)
        return (
            bytes([number << 3 | 2, *(length >> shift & 127 | 128 for shift in (0, 7, 14, 21)), length >> 28]) + content
        )

    event = field(4, b"\x08\x01\x10\x05\x18\x01")
    metadata = field(4, b"\x08\x01" + field(2, field(2, b"f")))
    # The name of a line and the metadata of a plane may come after what they describe.
    path.write_bytes(field(1, field(3, event * events + field(2, b"python")) + field(2, b"/host:CPU") + metadata))


def memory_of_events(path: Path) -> tuple[int, int]:
    """Return the events and the peak memory in MB of a process that reads an XPlane file."""
    result = subprocess.run(
        [sys.executable, "-c", MEASURE_EVENTS, str(path)], capture_output=True, text=True, check=True
    )
    count, peak = map(int, result.stdout.split())
    return count, peak


def test_the_events_of_an_xplane_file_are_not_all_in_memory(tmp_path: Path) -> None:
    path, small = tmp_path / "large.xplane.pb", tmp_path / "small.xplane.pb"
    write_xplane(path, 600_000)
    write_xplane(small, 10)

    count, peak = memory_of_events(path)

    assert count == 600_000
    _, baseline = memory_of_events(small)
    assert path.stat().st_size > 7e6
    # Parsed as a whole, the events would take more than 70 MB. The file is mapped, so its pages count.
    assert peak < baseline + 12


@pytest.mark.slow
def test_a_trace_of_300_mb_is_read_with_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write_large(path, 300)

    steps, _, peak = memory_of_reading(path)

    assert steps > 100
    assert peak < 500
