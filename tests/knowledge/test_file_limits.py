"""Measurement files that would fill the memory, or take unlimited time to read, are refused with an error message."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from knowledge.domain.errors import InputError
from knowledge.exchange.files import SkippedLine, observation_file, read_lines, read_observations
from knowledge.exchange.mlperf.descriptions import read_description
from knowledge.exchange.mlperf.tree import read_results
from tests.knowledge.mlperf_files import MLL
from tests.knowledge.samples import block, observation

MIB = 2**20


def test_a_decompression_bomb_is_refused() -> None:
    bomb = gzip.compress(b"\n" * (64 * MIB))

    cases: tuple[list[SkippedLine] | None, ...] = (None, [])
    for damaged in cases:
        with pytest.raises(InputError, match=r"`o\.jsonl\.gz` cannot be read: .* more than 100 times"):
            read_lines(bomb, where="o.jsonl.gz", damaged=damaged)


def test_a_small_compressed_file_may_have_a_high_compression_ratio() -> None:
    content = gzip.compress(observation_file([observation()]) + b"\n" * (2 * MIB), mtime=0)

    assert len(content) * 100 < 2 * MIB
    assert list(read_observations(read_lines(content, where="o"), where="o")) == [observation()]


def test_concatenated_compressed_files_are_read_as_one() -> None:
    observations = list(block({"2.0.0": 1.0, "2.1.0": 1.2}, rounds=2))
    lines = observation_file(observations).splitlines(keepends=True)

    content = b"".join(gzip.compress(line) for line in lines) + b"\0" * 100

    assert list(read_observations(read_lines(content, where="o"), where="o")) == observations


@pytest.mark.parametrize("compressed", [True, False])
def test_a_line_longer_than_a_delivery_is_refused(compressed: bool) -> None:
    # Text that does not compress well: half a million numbers.
    content = b"\n[" + b"".join(b"%d," % (n * n) for n in range(17 * MIB // 12)) + b"\n"
    content = gzip.compress(content, 1) if compressed else content

    with pytest.raises(InputError, match="o.jsonl:2: .* longer than 16 MiB"):
        list(read_lines(content, where="o.jsonl"))


@pytest.mark.parametrize("number", [1, 3])
def test_a_line_that_is_not_text_is_reported_and_the_others_are_read(number: int) -> None:
    lines = observation_file([observation()]).split(b"\n")
    lines.insert(number - 1, b"\xff")
    content = b"\n".join(lines)
    damaged: list[SkippedLine] = []

    with pytest.raises(InputError, match=rf"o\.jsonl:{number}: not UTF-8"):
        list(read_observations(read_lines(content, where="o.jsonl"), where="o.jsonl"))
    valid = list(read_observations(read_lines(content, where="o", damaged=damaged), where="o", damaged=damaged))

    assert valid == [observation()]
    assert [line.number for line in damaged] == [number]


def test_reading_stops_in_a_file_of_damaged_lines_only() -> None:
    damaged: list[SkippedLine] = []

    with pytest.raises(InputError, match="more than 10000 lines are not records"):
        list(read_observations(read_lines(b"ab\n" * 10_001, where="o", damaged=damaged), where="o", damaged=damaged))


def test_lines_before_the_damage_of_a_compressed_file_are_read() -> None:
    observations = list(block({"2.0.0": 1.0, "2.1.0": 1.2}, rounds=400))
    content = bytearray(gzip.compress(observation_file(observations)))
    content[len(content) // 2 :] = b"\xff" * 100
    damaged: list[SkippedLine] = []

    valid = list(read_observations(read_lines(bytes(content), where="o", damaged=damaged), where="o", damaged=damaged))

    assert 0 < len(valid) < len(observations)
    assert valid == observations[: len(valid)]
    assert "damaged or truncated" in damaged[-1].reason


@pytest.mark.parametrize("text", ["{a: " + "[" * 12_000, '{"a",' + '{"a":' * 12_000, '{"a": 1,, ' + '["]", ' * 3000])
def test_a_deeply_nested_description_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="more than 100 lists and mappings"):
        read_description(text)


def test_deeply_nested_json_is_refused() -> None:
    with pytest.raises(ValueError, match="too deeply nested"):
        read_description('{"a":' * 10_000)


def tree(logs: dict[str, bytes], mode: str = "w") -> bytes:
    """Return an archive of logs of the MLPerf round v0.6."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in logs.items():
            member = tarfile.TarInfo(f"v0.6/made-up/results/dgx1/resnet/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"\n" * (64 * MIB + 1), "larger than 64 MiB"), (b":::MLL\n" * (3 * MIB), "more than 16 MiB of log lines")],
)
def test_a_log_that_is_too_large_is_listed_and_the_others_are_read(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "v0.6.tar.gz"
    path.write_bytes(tree({"result_0.txt": content, "result_1.txt": MLL.encode()}, "w:gz"))

    results = read_results(path)

    assert len(results.observations) == 1
    assert [(s.path.rpartition("/")[2], reason in s.reason) for s in results.skipped] == [("result_0.txt", True)]


def test_other_text_between_the_lines_of_a_log_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "v0.6.tar.gz"
    path.write_bytes(tree({"result_0.txt": b"progress\r" * (3 * MIB) + b"\n" + MLL.encode()}, "w:gz"))

    assert len(read_results(path).observations) == 1


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
def test_a_compressed_archive_damaged_within_a_log_is_an_error_message(tmp_path: Path, mode: str) -> None:
    log = b"".join(b"%d\n" % (n * n) for n in range(100_000))
    content = bytearray(tree({"result_0.txt": log}, mode))
    content[len(content) // 2 : len(content) // 2 + 100] = b"\xff" * 100
    path = tmp_path / "v0.6.tar"
    path.write_bytes(content)

    with pytest.raises(InputError, match="cannot be read"):
        read_results(path)


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_an_archive_with_an_impossible_size_is_an_error_message(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "v0.6.tar"
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        member = tarfile.TarInfo("v0.6/README")
        member.pax_headers = {"size": "9" * 30}
        archive.addfile(member)

    with pytest.raises(InputError, match="cannot be read"):
        read_results(path)
