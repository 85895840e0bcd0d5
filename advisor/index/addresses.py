"""Whether two addresses are the same one, whoever reads them."""

from __future__ import annotations

import re

from advisor.index.configuration import without_credentials

_ADDRESS = re.compile(
    r"(?P<scheme>https?)://"
    r"(?:[\w.~%!$&'()*+,;=:-]*@)?"
    r"(?P<host>[\w.~-]+|\[[0-9a-f:.]+\])"
    r"(?::(?P<port>\d*))?"
    r"(?P<rest>(?:/[\w.~%!$&'()*+,;=:@/-]*)?(?:\?[\w.~%!$&'()*+,;=:@/?-]*)?)",
    re.ASCII | re.IGNORECASE,
)
"""An address of the web that every parser takes apart alike (RFC 3986).

Backslashes, blanks and control characters are not in it: browsers and uv read `https://a\\@b/` as an address of the
host `a` (https://url.spec.whatwg.org/#special-authority-ignore-slashes-state), Python as one of the host `b`.
"""
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_ENCODED = re.compile(r"%[0-9a-f]{2}", re.IGNORECASE)
_DECODED = frozenset("-._~!$&'()*+,;=:@")


def comparable(url: str) -> str:
    """Return an address so that equal ones are spelled alike: without credentials, port and escapes that mean nothing.

    Source: RFC 3986, 6.2.2 and 6.2.3. What not every parser takes apart alike, and what is no address of the web, is
    returned as it is, so that it only equals itself.
    """
    match = _ADDRESS.fullmatch(url)
    if match is None:
        return url
    scheme, host, port = match["scheme"].lower(), match["host"].lower(), match["port"]
    named = f":{port}" if port and port != _DEFAULT_PORTS[scheme] else ""
    return f"{scheme}://{host}{named}{_ENCODED.sub(_spelled, match['rest']) or '/'}"


def _spelled(match: re.Match[str]) -> str:
    """Return an escape decoded where it stands for what needs none."""
    character = chr(int(match[0][1:], 16))
    plain = character.isascii() and (character.isalnum() or character in _DECODED)
    return character if plain else match[0].upper()


def origin_of(url: str) -> str:
    """Return scheme, host and port of an address; all of it where it is none that every parser takes apart alike."""
    if _ADDRESS.fullmatch(url) is None:
        return url
    return "/".join(comparable(url).split("/")[:3])


def printable(url: str) -> str:
    """Return an address for people: without credentials, but never with another host than some program would reach."""
    return without_credentials(url) if _ADDRESS.fullmatch(url) else url


def is_on_this_machine(address: str) -> bool:
    """Whether an address names a directory or a file of this machine for every program.

    A ``file:`` address with a host and a path with two leading slashes may be another machine's.
    """
    if re.match(r"[/\\]{2}", address):
        return False
    if re.match(r"file:", address, re.IGNORECASE):
        return re.match(r"file:(//(localhost)?)?/(?![/\\])", address, re.IGNORECASE) is not None
    return ":" not in address or re.match(r"[a-z]:[/\\]", address, re.IGNORECASE) is not None
