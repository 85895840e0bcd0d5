"""Large documents, which reveal parsers that take more than linear time or memory.

`python -m tests.fuzz.growth PARSER NAME --bytes N` parses one and prints its time and memory as JSON.
"""

from __future__ import annotations

import argparse
import io
import json
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from advisor.index.limits import HEADER_BYTES, PAGE_BYTES, VARIANTS_BYTES
from tests.fuzz.parsers import PARSERS, Documented

_HEAD, _TAIL = b'{"meta":{"api-version":"1.0"},"files":[', b"]}"
_ENTRY = b'{"filename":"numpy-1.0.tar.gz","url":"a"}'
_VARIANTS = (
    b'{"$schema":"https://packaging.python.org/variants/1.0.0.json","default-priorities":{"namespace":["x86_64"]},'
    b'"variants":{'
)
_METADATA = b"Metadata-Version: 2.2\nName: own\nVersion: 1.0\n"


def _repeated(piece: bytes, *, head: bytes = b"", tail: bytes = b"") -> Callable[[int], bytes]:
    return lambda length: head + piece * (max(0, length - len(head) - len(tail)) // len(piece)) + tail


def _header(kind: bytes, *, size: int = 0, extended: bool = False) -> bytes:
    member = tarfile.TarInfo("own-1.0/a")
    member.type, member.size = kind, size
    block = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    block[482] = extended
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def _pax(value: str) -> bytes:
    member = tarfile.TarInfo("own-1.0/a")
    member.pax_headers = {"comment": value}
    return member.tobuf(tarfile.PAX_FORMAT)


def _one_header(kind: bytes) -> Callable[[int], bytes]:
    def build(length: int) -> bytes:
        size = max(1, length - 512) // 512 * 512
        return _header(kind, size=size) + b"9" * size

    return build


def _wheel(length: int) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as opened:
        for number in range(length // 120):
            opened.writestr(zipfile.ZipInfo(f"own/{number}"), b"")
        opened.writestr(zipfile.ZipInfo("own-1.0.dist-info/METADATA"), _METADATA)
    return content.getvalue()


_END = _header(tarfile.REGTYPE)

GROWING: dict[str, dict[str, Callable[[int], bytes]]] = {
    "json-page": {
        "files": _repeated(_ENTRY + b",", head=_HEAD, tail=_ENTRY + _TAIL),
        "objects": _repeated(b"{},", head=_HEAD, tail=_ENTRY + _TAIL),
        "lists": _repeated(b"[],", head=_HEAD, tail=_ENTRY + _TAIL),
        "nesting": _repeated(b"[", head=_HEAD),
        "digits": _repeated(b"9", head=_HEAD + b'{"filename":"numpy-1.0.tar.gz","url":"a","size":', tail=b"}" + _TAIL),
        "name": _repeated(b"a", head=_HEAD + b'{"url":"a","filename":"', tail=b'.zip"}' + _TAIL),
        "address": _repeated(b"../", head=_HEAD + b'{"filename":"numpy-1.0.tar.gz","url":"', tail=b'"}' + _TAIL),
    },
    "html-page": {
        "links": _repeated(b'<a href="a">numpy-1.0.tar.gz</a>'),
        "text": _repeated(b"x", head=b'<a href="a">', tail=b"</a>"),
        "comments in text": _repeated(b"x<!---->", head=b'<a href="a">' + b"x" * 100_000, tail=b"</a>"),
        "references in text": _repeated(b"&amp;", head=b'<a href="a">', tail=b"</a>"),
        "elements": _repeated(b"<b>"),
        "open links": _repeated(b'<a href="a">'),
        "bases": _repeated(b'<base href="a">'),
    },
    "metadata": {
        "requirements": _repeated(b"Requires-Dist: numpy>=1; extra == 'a'\n", head=_METADATA),
        "digits": _repeated(b"9", head=b"Metadata-Version: 2.2\nName: own\nVersion: "),
        "folds": _repeated(b"\n a", head=_METADATA + b"Requires-Dist: numpy"),
        "specifiers": _repeated(b">=1,", head=_METADATA + b"Requires-Python: ", tail=b"<4\n"),
        "extras": _repeated(b"Provides-Extra: a\n", head=_METADATA),
        "variant markers": _repeated(b"Requires-Dist: b; 'a' in variant_namespaces\n", head=_METADATA),
        "long variant marker": _repeated(
            b"variant_label == 'a' or ", head=_METADATA + b"Requires-Dist: b; ", tail=b"os_name == 'a'\n"
        ),
    },
    "sdist-tar": {
        "members": _repeated(_END),
        "sparse headers": _repeated(b"\0" * 504 + b"\1" + b"\0" * 7, head=_header(b"S", extended=True)),
        "extended headers": _repeated(_header(b"x", size=5) + b"9" * 512),
        "global headers": _repeated(_header(b"g", size=512) + b"9" * 512),
        "long names": _repeated(_header(b"L", size=512) + b"9" * 512),
        "one extended header": _one_header(b"x"),
        "members with headers": _repeated(_pax("9" * 400)),
    },
    "wheel": {"members": _wheel},
    "variants": {
        "values": _repeated(b'"v3",', head=_VARIANTS + b'"a":{"x86_64":{"level":[', tail=b'"v3"]}}}}'),
        "labels": lambda length: (
            _VARIANTS + b",".join(b'"l%d":{"x86_64":{"level":["v3"]}}' % n for n in range(length // 40)) + b"}}"
        ),
        "nesting": _repeated(b'{"a":', head=_VARIANTS + b'"a":'),
        "digits": _repeated(b"9", head=_VARIANTS + b'"a":', tail=b"}}"),
    },
}
"""Functions by parser that make a document of about a given number of bytes."""


_LONGEST = {"metadata": HEADER_BYTES, "variants": VARIANTS_BYTES}


def main() -> None:
    """Parse one document and print its time and memory."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("parser", choices=GROWING)
    options.add_argument("name")
    options.add_argument("--bytes", type=int, help="about how long it is (default: the longest that is read)")
    arguments = options.parse_args()
    content = GROWING[arguments.parser][arguments.name](arguments.bytes or _LONGEST.get(arguments.parser, PAGE_BYTES))
    refused = ""
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        try:
            PARSERS[arguments.parser].read(content, Path(folder))
        except Documented as error:
            refused = str(error)[:200]
        seconds = time.process_time() - began
    # Not `ru_maxrss`: it contains the peak of the process that started it.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    peak = 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    print(json.dumps({"seconds": round(seconds, 3), "peak_bytes": peak, "refused": refused}))


if __name__ == "__main__":
    main()
