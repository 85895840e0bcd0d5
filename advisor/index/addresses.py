"""Addresses: of files on this machine, and compared in a form that every URL parser reads in the same way."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from advisor.index.configuration import without_credentials
from knowledge.domain.errors import without_secrets

_ADDRESS = re.compile(
    r"(?P<scheme>https?)://"
    r"(?:[\w.~%!$&'()*+,;=:-]*@)?"
    r"(?P<host>[\w.~-]+|\[[0-9a-f:.]+\])"
    r"(?::(?P<port>\d*))?"
    r"(?P<rest>(?:/[\w.~%!$&'()*+,;=:@/-]*)?(?:\?[\w.~%!$&'()*+,;=:@/?-]*)?)",
    re.ASCII | re.IGNORECASE,
)
"""An HTTP address that every parser splits in the same way (RFC 3986).

It has no backslashes, spaces and control characters: browsers and uv read `https://a\\@b/` as an address of the host
`a` (https://url.spec.whatwg.org/#special-authority-ignore-slashes-state), Python as one of the host `b`.
"""
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_ENCODED = re.compile(r"%[0-9a-f]{2}", re.IGNORECASE)
_DECODED = frozenset("-._~!$&'()*+,;=:@")


def comparable(url: str) -> str:
    """Return an address in a normal form: without credentials, default port and unnecessary percent-encodings.

    Source: RFC 3986, 6.2.2 and 6.2.3. An address that parsers split differently, or that is not an HTTP address, is
    returned unchanged, so that it is equal only to itself.
    """
    match = _ADDRESS.fullmatch(url)
    if match is None:
        return url
    scheme, host, port = match["scheme"].lower(), match["host"].lower(), match["port"]
    explicit_port = f":{port}" if port and port != _DEFAULT_PORTS[scheme] else ""
    return f"{scheme}://{host}{explicit_port}{_ENCODED.sub(_normal_encoding, match['rest']) or '/'}"


def _normal_encoding(match: re.Match[str]) -> str:
    """Return a percent-encoding, decoded if its character needs no encoding."""
    character = chr(int(match[0][1:], 16))
    plain = character.isascii() and (character.isalnum() or character in _DECODED)
    return character if plain else match[0].upper()


def origin_of(url: str) -> str:
    """Return scheme, host and port of an address; the whole address if parsers split it differently."""
    if _ADDRESS.fullmatch(url) is None:
        return url
    return "/".join(comparable(url).split("/")[:3])


def printable(url: str) -> str:
    """Return an address for messages: without secrets; an address that parsers split differently stays visible."""
    return without_secrets(without_credentials(url) if _ADDRESS.fullmatch(url) else url)


def is_on_this_machine(address: str) -> bool:
    """Whether every program reads an address as a directory or a file of this machine.

    A ``file:`` address with a host, or a path with two leading slashes, may be on another machine.
    """
    if re.match(r"[/\\]{2}", address):
        return False
    if re.match(r"file:", address, re.IGNORECASE):
        return re.match(r"file:(//(localhost)?)?/(?![/\\])", address, re.IGNORECASE) is not None
    return ":" not in address or re.match(r"[a-z]:[/\\]", address, re.IGNORECASE) is not None


def local_path(url: str) -> Path | None:
    """Return the path of a ``file:`` address or a plain path; `None` for a remote address."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        # This decodes `%20` to a space; decoding twice would give another file. `urllib.request.url2pathname` does the
        # same on POSIX, and is slow to import.
        return Path(unquote(parts.path))
    return None if parts.scheme in ("http", "https") else Path(url)


def url_of_path(path: Path) -> str:
    """Return the ``file:`` address of a path."""
    return path.resolve().as_uri()
