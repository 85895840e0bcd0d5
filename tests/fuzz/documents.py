"""Valid documents of every parsed format, from which damaged ones are generated."""

from __future__ import annotations

import bz2
import csv
import gzip
import importlib.resources
import io
import json
import lzma
import tarfile
import tomllib
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from knowledge.exchange.files import observation_file
from tests.knowledge.mlperf_files import MLL, MLLOG, V05
from tests.knowledge.samples import block

TRACES = Path(__file__).parents[1] / "fixtures" / "traces"
MLPERF = Path(__file__).parents[1] / "fixtures" / "mlperf"
WORKLOADS = b"""\
schema_version = 1
[[workload]]
name = "train"
framework = "torch"
framework_version = "2.13.0"
steps = 20
seconds_per_step = 0.03
unattributed = 0.25
command = ["python", "train.py"]
[workload.versions]
numpy = "2.4.6"
[workload.layers]
framework = 0.75
Python = 0.25
[[workload.kernel]]
name = "aten::mm"
share = 0.75
[[workload.part]]
indicator = "matmul"
share = 0.75
calls = 2.0
direction = "forward"
[workload.part.parameters]
m = 64
transpose_b = "yes"
"""

PYPROJECT = b"""\
[project]
name = "a"
requires-python = ">=3.11"
dependencies = ["numpy>=1.26,<3; python_version > '3.8'", "torch[opt]==2.*"]
[project.optional-dependencies]
opt = ["a[other]", "scipy"]
other = ["pandas~=2.0"]
[dependency-groups]
dev = ["pytest", {include-group = "lint"}]
lint = ["ruff"]
[tool.uv]
index-strategy = "first-index"
find-links = ["wheels"]
override-dependencies = ["numpy==2.0"]
[[tool.uv.index]]
name = "own"
url = "https://index.example/simple/"
explicit = true
[tool.uv.sources]
torch = { index = "own" }
[[tool.pdm.source]]
name = "pypi"
url = "https://index.example/simple/"
include_packages = ["numpy"]
[tool.pdm.resolution.overrides]
numpy = "2.0"
[[tool.poetry.source]]
name = "own"
url = "https://index.example/simple/"
priority = "supplemental"
[tool.poetry.dependencies]
numpy = { version = "^2", source = "own" }
[tool.advisor]
min-age = 7
constraints = ["scipy<2"]
overrides = ["pandas==2.2"]
objective = "performance"
[tool.advisor.package-index]
torch = "https://torch.example/simple/"
[tool.advisor.settings]
onednn = "on"
[tool.advisor.targets.gpu]
hardware = "cpu-zen4"
python = "3.12"
lock = "pylock.toml"
[tool.advisor.gate]
max-gap = 0.1
max-growth = "200 MB"
fail = ["ADV001"]
[[tool.advisor.gate.ignore]]
code = "ADV002"
package = "numpy"
reason = "it is known"
until = 2030-01-01
"""
REQUIREMENTS = b"""\
# What the project requires.
--index-url https://index.example/simple/
--extra-index-url https://extra.example/simple/
--find-links wheels
--only-binary :all:
--pre
numpy>=1.26,<3 ; python_version > "3.8"  # a comment
torch[opt]==2.* ; sys_platform == 'linux' and extra != "a"
scipy == 1.14.0 \\
    --hash=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef \\
    --hash=sha512:00
-e git+https://example.org/a.git#egg=a
"""
PINNED = b"""\
--index-url https://index.example/simple/
numpy==2.0.1 \\
    --hash=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
torch==2.4.0+cpu ; python_version > "3.8"
"""
PYLOCK = b"""\
lock-version = "1.0"
requires-python = ">=3.11"
environments = ["sys_platform == 'linux'"]
created-by = "a tool"
[[packages]]
name = "numpy"
version = "2.0.1"
marker = "python_version > '3.8'"
requires-python = ">=3.9"
index = "https://index.example/simple/"
[[packages.wheels]]
name = "numpy-2.0.1-cp312-cp312-manylinux_2_28_x86_64.whl"
url = "https://index.example/numpy-2.0.1-cp312-cp312-manylinux_2_28_x86_64.whl"
upload-time = 2024-07-21T13:00:00Z
size = 100
hashes = { sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" }
[[packages]]
name = "own"
version = "1.0"
[packages.vcs]
type = "git"
url = "https://example.org/own.git"
commit-id = "0123"
[[packages]]
name = "zipped"
version = "1.0"
[packages.sdist]
name = "zipped-1.0.tar.gz"
path = "./zipped-1.0.tar.gz"
hashes = { sha256 = "00" }
"""
SBOM = json.dumps(
    {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "components": [
            {
                "type": "library",
                "name": "numpy",
                "version": "2.0.1",
                "purl": "pkg:pypi/numpy@2.0.1",
                "hashes": [{"alg": "SHA-256", "content": "00"}],
            }
        ],
    }
).encode()
JSON_PAGE = json.dumps(
    {
        "meta": {"api-version": "1.1"},
        "name": "numpy",
        "versions": ["2.0.1"],
        "files": [
            {
                "filename": f"numpy-2.0.{n}-cp312-cp312-manylinux_2_28_x86_64.whl",
                "url": f"../../numpy-2.0.{n}.whl",
                "hashes": {"sha256": "0" * 64},
                "requires-python": ">=3.9",
                "size": 100,
                "upload-time": "2024-07-21T13:00:00.123456Z",
                "yanked": "broken" if n else False,
                "core-metadata": {"sha256": "1" * 64},
            }
            for n in range(3)
        ],
    }
).encode()
HTML_PAGE = b"""<!DOCTYPE html><html><head><meta name="pypi:repository-version" content="1.1"><base href="https://b.example/">
<title>Links for numpy</title></head><body><h1>Links for numpy</h1>
<a href="numpy-2.0.0.whl#sha256=00" data-requires-python="&gt;=3.9" data-yanked="x">numpy-2.0.0-py3-none-any.whl</a><br>
<a href="/numpy-2.0.1.tar.gz" data-core-metadata="sha256=11" data-gpg-sig="true">numpy-2.0.1.tar.gz</a><br/>
</body></html>"""
METADATA = b"""\
Metadata-Version: 2.2
Name: Own
Version: 1.0
Summary: made up
Requires-Python: >=3.9
Provides-Extra: opt
Requires-Dist: numpy<3,>=1.26
Requires-Dist: torch[a]==2.*; (python_version > "3.8" and extra == 'opt') or os_name in "posix nt"
Requires-Dist: own-cuda; ('nvidia :: sm_arch' in variant_features or variant_label == '') and extra == 'opt'
Dynamic: Description
Classifier: Programming Language :: Python
Description-Content-Type: text/markdown

# Own
A description.
"""
MATRIX = b"""\
name = "made-up"
indicators = ["matmul", { name = "softmax", size = "small" }]
python = ["3.12"]
dtypes = ["float32"]
rounds = 2
samples = 3
min-time = 0.01
timeout = 60
memory-limit-gigabytes = 4
[settings]
onednn = ["on", "off"]
[[stack]]
framework = "torch>=2"
versions = "all"
with = ["numpy<3"]
settings = { threads = [1, 2] }
[[include]]
framework = "numpy"
indicators = ["matmul"]
[[exclude]]
framework = "torch==2.0.1"
python = "3.12"
settings = { onednn = "on" }
"""
SYSTEM = b"""{"submitter": "made-up", "division": "closed", "status": "onprem", "framework": "MXNet NVIDIA 19.05",
 "nodes": "{'num_accelerators': 8, 'accelerator': 'Tesla V100', 'sys_mem_size': '512 GB'}", "number_of_nodes": "1",
 "other_software_stack": {"cuda_version": "10.1 Update 1", "cudnn_version": "7.6.0"}, "host_processors_per_node": 2,
 "host_processor_model_name": "Intel Xeon E5", "accelerators_per_node": 8, "accelerator_model_name": "V100 16GB"}"""


_COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda content: content,
    "gz": lambda content: gzip.compress(content, mtime=0),
    "bz2": bz2.compress,
    "xz": lzma.compress,
}


def wheel() -> bytes:
    """Return a small wheel."""
    package = {"own/__init__.py": b"x = 1\n" * 20}
    return make_zip({**package, "own-1.0.dist-info/METADATA": METADATA, "own-1.0.dist-info/RECORD": b""}, deflated=True)


def make_zip(files: Mapping[str, bytes], *, deflated: bool = False) -> bytes:
    """Return a ZIP archive; the same files give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, compress_type=archive.compression)
    return buffer.getvalue()


def make_tar(files: Mapping[str, bytes], *, compression: str = "") -> bytes:
    """Return a tar archive, optionally compressed by ``gz``, ``bz2`` or ``xz``."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return _COMPRESSIONS[compression](buffer.getvalue())


def sdists() -> list[bytes]:
    long = {f"own-1.0/{'a' * 150}.py": b"x = 1\n", "own-1.0/PKG-INFO": METADATA}
    return [make_tar(long, compression="gz")]


def zipped_sdists() -> list[bytes]:
    return [make_zip({"own-1.0/PKG-INFO": METADATA})]


def tars() -> list[bytes]:
    logs = {f"results/dgx1/resnet/result_{n}.txt": text.encode() for n, text in enumerate((V05, MLL, MLLOG))}
    files = {f"made-up/{name}": log for name, log in logs.items()} | {"made-up/systems/dgx1.json": SYSTEM}
    return [make_tar(files, compression=compression) for compression in _COMPRESSIONS]


def summaries() -> list[bytes]:
    """Return a summary of LoadGen for each scenario, and of the MultiStream of earlier rounds."""
    with tarfile.open(MLPERF / "inference.tar.gz") as archive:
        names = [name for name in archive.getnames() if name.endswith("summary.txt")]
        scenarios = {tuple(name.split("/results/")[1].split("/")[2:3]) + (name[:2],): name for name in sorted(names)}
        files = [archive.extractfile(name) for name in scenarios.values()]
        return [file.read() for file in files if file is not None]


def observations() -> list[bytes]:
    return [observation_file(block({"2.0.0": 1.0, "2.1.0": 1.2}, rounds=2))]


def matrices() -> list[bytes]:
    return [MATRIX, (importlib.resources.files("knowledge.data") / "matrices" / "frameworks.toml").read_bytes()]


def traces(framework: str) -> list[bytes]:
    """Return the recorded trace of a framework with its first, its heaviest and its last events."""
    (path,) = TRACES.glob(f"{framework}-*.json.gz")
    document = json.loads(gzip.decompress(path.read_bytes()))
    events = document if isinstance(document, list) else document["traceEvents"]
    heavy = [event for event in events if any(word in str(event.get("name")) for word in ("conv", "Conv", "dot"))]
    events[:] = [*events[:15], *heavy[:10], *events[-5:]]
    return [json.dumps(document).encode()]


def xplanes() -> list[bytes]:
    return [gzip.decompress((TRACES / "jax-step.xplane.pb.gz").read_bytes())]


def shortened(lock: bytes, *, toml: bool) -> bytes:
    """Return a lock with one entry of each kind: most entries of a long list have the same keys.

    Damage then hits different keys more often, and an input takes a tenth of the time.
    """
    tree = tomllib.loads(lock.decode()) if toml else json.loads(lock)
    return (tomli_w.dumps(_shortened(tree)) if toml else json.dumps(_shortened(tree))).encode()


def _shortened(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _shortened(value) for key, value in tree.items()}
    if isinstance(tree, list):
        kinds = {str(sorted(entry) if isinstance(entry, dict) else type(entry)): entry for entry in reversed(tree)}
        return [_shortened(entry) for entry in tree if any(entry is retained for retained in kinds.values())]
    return tree


SETUP_PY = b"""\
import os
from setuptools import setup, find_packages
HERE = os.path.dirname(__file__)
BASE = ["numpy>=1.26,<3; python_version > '3.8'", "scipy"]
EXTRAS = {"opt": ["torch[opt]==2.*"], ":os_name == 'nt'": ["colorama"]}
def read(name):
    with open(os.path.join(HERE, name)) as file:
        return file.read().splitlines()
setup(
    name="a",
    version="1.0",
    packages=find_packages(),
    python_requires=">=3.8",
    install_requires=BASE + ["pandas~=2.0", "b @ https://index.example/b-1.0.tar.gz"],
    extras_require=EXTRAS,
    **{"url": "https://index.example"},
)
"""
SETUP_CFG = b"""\
[metadata]
name = a
version = attr: a.__version__
[options]
python_requires = >=3.8
install_requires =
    numpy>=1.26,<3; python_version > '3.8'
    # a comment
    torch[opt]==2.*
[options.extras_require]
opt = scipy; pandas~=2.0
"""
SETTINGS_PY = b"""\
import os
import torch as t
from torch.cuda.amp import autocast
import tensorflow as tf
os.environ["OMP_NUM_THREADS"] = "4"
os.environ.update({"TF_ENABLE_ONEDNN_OPTS": "0"}, XLA_FLAGS="--xla_cpu_max_isa=AVX2")
if __name__ == "__main__":
    t.set_num_threads(2 + 2)
    t.backends.cudnn.benchmark = True
    with autocast(enabled=True, dtype=t.bfloat16):
        model = t.compile(model.to(memory_format=t.channels_last), mode="max-autotune")
    model.compile(optimizer="adam", jit_compile=True)
"""
DOCKERFILE = b"""\
# escape=\\
FROM python:3.12 AS base
ENV OMP_NUM_THREADS=4 \\
    # cores
    TF_ENABLE_ONEDNN_OPTS="0"
ENV XLA_FLAGS --xla_cpu_max_isa=AVX2
CMD ["sh", "-c", "OMP_NUM_THREADS=2 python a.py"]
"""
WORKFLOW = b"""\
env: &e
  OMP_NUM_THREADS: ${{ matrix.threads }}
jobs:
  test:
    env: {<<: *e, TF_ENABLE_ONEDNN_OPTS: '0'}
    steps:
      - run: |
          export OMP_NUM_THREADS=2
          MKL_NUM_THREADS=4 python a.py
---
spec:
  containers:
    - env:
        - {name: OMP_NUM_THREADS, value: "4"}
      command: [sh, -c, "OMP_NUM_THREADS=7 python a.py"]
"""
SCRIPT = b"""\
#!/bin/bash
#SBATCH --export=ALL,OMP_NUM_THREADS=8
export MKL_NUM_THREADS=${MKL_NUM_THREADS:-4} TF_ENABLE_ONEDNN_OPTS='0'
if [ -z "$X" ]; then
  OMP_NUM_THREADS=2 \\
    python a.py && bash -c "OMP_NUM_THREADS=3 python b.py"
fi
docker run -e OMP_NUM_THREADS=1 image
"""
DOTENV = b"""\
# threads
export OMP_NUM_THREADS="4" # cores
TF_ENABLE_ONEDNN_OPTS = '0'
XLA_FLAGS=--xla_cpu_max_isa=AVX2 --other
"""
ENVIRONMENT = b"""\
name: a
channels: [conda-forge, defaults]
dependencies:
  - python=3.11
  - numpy=1.26.4=py311h64a7726_0
  - conda-forge::pandas>=2,<3
  - cudatoolkit 11.8
  - pip
  - pip:
      - torch==2.*
      - --extra-index-url https://index.example/simple/
      - -e .
"""
PIXI = b"""\
[workspace]
name = "a"
channels = ["conda-forge"]
platforms = ["linux-64", "osx-arm64"]
[dependencies]
python = "3.11.*"
numpy = { version = ">=1.26,<3", channel = "conda-forge" }
[pypi-dependencies]
torch = { version = ">=2", extras = ["opt"], index = "https://index.example/simple/" }
b = { git = "https://index.example/b.git", rev = "abc" }
[feature.gpu.dependencies]
cudatoolkit = "11.8"
[target.linux-64.dependencies]
scipy = "*"
"""
NOTEBOOK = b"""\
{"nbformat": 4, "metadata": {"kernelspec": {"name": "python3"}}, "cells": [
{"cell_type": "markdown", "source": ["# a"]},
{"cell_type": "code", "outputs": [], "source": ["%pip install -q numpy 'scipy>=1.10'\\n", "import numpy"]},
{"cell_type": "code", "source": "!pip install torch==2.* --extra-index-url https://index.example/simple/\\n"}]}
"""


def advisories(suffix: str) -> list[bytes]:
    """Return the records of advisory databases in a format."""
    folder = TRACES.parent / "advisories"
    return [path.read_bytes() for path in sorted(folder.glob(f"*{suffix}"))]


def published() -> list[bytes]:
    """Tables of published measurements, as CSV and as JSON Lines."""
    lines = (
        (Path(__file__).parents[1] / "fixtures" / "published" / "small.csv").read_text(encoding="utf-8").splitlines()
    )
    rows = list(csv.DictReader(lines[:1] + lines[1:60:6]))
    return ["\n".join(lines[:1] + lines[1:60:6]).encode(), "\n".join(json.dumps(row) for row in rows).encode()]
