"""Damages documents: bytes, lines, numbers, nesting, and values of the wrong type in a TOML or JSON tree."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

import tomli_w

from knowledge.domain.documents import parse_toml
from knowledge.domain.identity import content_hash

LONGEST = 2**20
"""Maximum length of a document in bytes: several changes multiply its length."""
_NUMBER = re.compile(rb"\d+")
_RUNS = (*b" \t([{)]}<>a9-.,\"'#\\;=~!&|\n\r\0", 0x80)
_NESTED = (b"[", b"{", b"(", b'{"a":', b"a = [", b"a={a=", b"[[", b"<a>", b"- ", b"a.", b"not ", b"-", b"(extra and ")
_TEXTS = (
    *("", "\0", "\u2028", "\u0085", "\ufeff", "\ud800", "\U0001f4a9", "e\u0301", "\u202e", "\u0663", "\u00b2"),
    *(" ", "\n", "\r", "\t", "\x1b[31m", ".", "..", "../..", "/", "\\", "%00", "%", "*", "==*", "a" * 300),
    *("http://[", "https://[::1", "http://a:b", "http://a:99999/", "http://\u2100/", "file:///", "file://a/b", "//"),
    *("${HOME}", "${NOTHING_OF_THIS_NAME}", "${", "$(x)", "{}", "{0}", "%s", "a b", "@", "a @ http://b", "a[", "a[b]"),
    *(">=", "==", ">=1", "~=1", "===a", "<9999999999", "1!0", "1.0+local", "1.0.dev0", "v1", "==1.*", "^1", "^", "||"),
    *(
        "; ",
        "python_version",
        "python_version > '3'",
        "python_version in 3",
        "extra == 'a'",
        "'a' in extras",
        "os_name",
    ),
    *(
        "sha256:",
        "sha256=",
        "sha256:zz",
        "1e999",
        "nan",
        "inf",
        "-1",
        "0x10",
        "9" * 5000,
        "1." + "9" * 5000,
        "1." * 900,
    ),
    *("true", "null", "2026-13-45", "2026-01-01", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"),
    *("(" * 3000, "[" * 3000, "a; " + "(" * 3000, "a[" + "b," * 3000, "(" * 300 + "os_name == 'a'" + ")" * 300),
    *("a; " + "(" * 900 + "os_name == 'a'" + ")" * 900, "numpy==" + "9" * 5000, ">=" + "9" * 5000),
)
_NUMBERS = (
    *(0, -1, 1, 2**31, 2**63 - 1, -(2**63), 2**63, 2**64, 10**30, 10**400, 10**4000),
    *(0.0, -0.0, 1e-320, 1e308, float("inf"), float("-inf"), float("nan"), 0.1),
)


def mutate(content: bytes, kind: str, random: random.Random) -> bytes:
    """Return a damaged document.

    Args:
        content: A document.
        kind: ``json``, ``jsonl`` or ``toml`` for a document with a tree; any other value for lines.
        random: Random generator.
    """
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        if kind in _TREES and random.random() < 0.6:
            content = _TREES[kind](content, random)
        else:
            content = random.choice(_BYTES)(content, random)
    return content[:LONGEST]


def flip(content: bytes, random: random.Random) -> bytes:
    """Change some bits."""
    damaged = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 8)) if damaged else 0):
        damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
    return bytes(damaged)


def truncate(content: bytes, random: random.Random) -> bytes:
    """Remove the end, or a part in the middle."""
    first, last = _span(content, random)
    return content[:first] if random.random() < 0.5 else content[:first] + content[last:]


def _span(content: bytes, random: random.Random) -> tuple[int, int]:
    first = random.randint(0, len(content))
    return first, min(len(content), first + random.choice((1, 8, 64, 1024)))


def _shuffle_lines(content: bytes, random: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    if not lines:
        return content
    first, second = random.randrange(len(lines)), random.randrange(len(lines))
    way = random.randrange(4)
    if way == 0:
        lines[first], lines[second] = lines[second], lines[first]
    elif way == 1:
        lines.insert(second, lines[first])
    elif way == 2:
        del lines[first]
    else:
        most = max(1, LONGEST // max(1, len(lines[first])))
        lines[first : first + 1] = [lines[first]] * min(most, random.choice((2, 50, 1000)))
    return b"".join(lines[:20_000])


def _insert(content: bytes, random: random.Random) -> bytes:
    first, last = _span(content, random)
    way = random.randrange(5)
    if way == 0:
        word = bytes([random.choice(_RUNS)]) * random.choice((1, 2, 100, 3000, 30_000))
    elif way == 1:
        word = random.choice(_NESTED) * random.choice((2, 50, 1200, 6000))
    elif way == 2:
        word = bytes(random.choices(range(256), k=random.choice((1, 2, 4, 16))))
    elif way == 3:
        start, end = _span(content, random)
        word = content[start:end] * random.choice((1, 2, 30, 600))
    else:
        word = random.choice(_TEXTS).encode("utf-8", "surrogatepass")
    return content[:first] + word[:60_000] + content[first if random.random() < 0.5 else last :]


def _number(content: bytes, random: random.Random) -> bytes:
    matches = list(_NUMBER.finditer(content))
    if not matches:
        return content
    place = random.choice(matches)
    word = random.choice((*(str(number) for number in _NUMBERS), "", "9" * 5000, "x", "1e5", "\u0663", "\u00b2"))
    return content[: place.start()] + word.encode() + content[place.end() :]


def _encode(content: bytes, random: random.Random) -> bytes:
    text = content.decode("utf-8", "replace")
    return random.choice(
        (
            lambda: b"\xef\xbb\xbf" + content,
            lambda: text.encode("utf-16"),
            lambda: text.encode("utf-32-le", "replace"),
            lambda: content.replace(b"\n", b"\r\n"),
            lambda: content.replace(b"\n", b"\r"),
            lambda: content.replace(b"\n", b" "),
            lambda: text.replace("\n", "\u2028").encode(),
            lambda: content.replace(b'"', b"'"),
        )
    )()


_BYTES = (flip, truncate, _shuffle_lines, _insert, _insert, _number, _encode)


def _mutate_json(content: bytes, random: random.Random) -> bytes:
    try:
        tree = json.loads(content)
    except (ValueError, RecursionError):
        return flip(content, random)
    text = json.dumps(change_tree(tree, random), indent=random.choice((None, 2)), ensure_ascii=random.random() < 0.7)
    return text.encode("utf-8", "surrogatepass")


def _mutate_jsonl(content: bytes, random: random.Random) -> bytes:
    """Change one record and mostly update its hash, so that the parser gets past the check of the hash."""
    lines = content.split(b"\n")
    place = random.randrange(len(lines))
    try:
        entry = json.loads(lines[place])
        if random.random() < 0.8 and isinstance(entry["record"], dict):
            entry["record"] = change_tree(entry["record"], random)
            if random.random() < 0.8:
                entry["id"] = content_hash(entry["record"])
        else:
            entry = change_tree(entry, random)
        lines[place] = json.dumps(entry).encode("utf-8", "surrogatepass")
    except (ValueError, KeyError, TypeError, RecursionError):
        return flip(content, random)
    return b"\n".join(lines)


def _mutate_toml(content: bytes, random: random.Random) -> bytes:
    try:
        tree = change_tree(parse_toml(content.decode()), random)
        return tomli_w.dumps(tree).encode("utf-8", "surrogatepass")
    except (ValueError, TypeError, AttributeError, RecursionError):
        return flip(content, random)


_TREES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "json": _mutate_json,
    "jsonl": _mutate_jsonl,
    "toml": _mutate_toml,
}


def change_tree(tree: Any, random: random.Random) -> Any:
    """Return a tree with one value replaced, removed or duplicated."""
    places: list[tuple[Any, Any]] = []
    queue = [tree]
    while queue:
        inner = queue.pop()
        keys = inner if isinstance(inner, dict) else range(len(inner)) if isinstance(inner, list) else ()
        places += [(inner, key) for key in keys]
        queue += [inner[key] for key in keys]
    if not places or random.random() < 0.02:
        return _value(random)
    # Large documents are mostly lists of files; keys that occur once must be selected as often.
    container, key = random.choice(sorted(places, key=lambda p: str(p[1]))[:: max(1, len(places) // 400)])
    way = random.randrange(6)
    if way == 0:
        del container[key]
    elif way == 1 and isinstance(container, dict):
        container[random.choice((_text(random), str(key).upper(), f" {key}"))] = container.pop(key)
    elif way == 2 and isinstance(container, list):
        container.insert(key, container[key])
    elif way == 3:
        container[key] = random.choice(([container[key]], {"a": container[key]}, str(container[key])))
    elif way == 4:
        container[key] = str(container[key]) + _text(random)
    else:
        container[key] = _value(random)
    return tree


def _text(random: random.Random) -> str:
    return random.choice(_TEXTS)


def _value(random: random.Random) -> Any:
    way = random.randrange(4)
    if way == 0:
        return random.choice(_NUMBERS)
    if way == 1:
        return _text(random)
    if way == 2:
        value: Any = random.choice(_TEXTS)
        for _ in range(random.choice((1, 3, 200))):
            value = [value] if random.random() < 0.5 else {"a": value}
        return value
    return random.choice((None, True, False, [], {}, [[]], [{}], {"a": {}}, {"": ""}, [None], [1, "a"], {"0": 0}))
