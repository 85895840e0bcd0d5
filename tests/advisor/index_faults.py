"""Faults of an index and their effect on a recommendation: the table of `docs/reference/evidence/reliability.md`.

`python -m tests.advisor.index_faults` prints that table; a test compares it with the page.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler

from tests.package_index import Fault

PLACES = ("page", "metadata", "file")
"""Places of a fault: the page of a package, the separate metadata of its newest wheel, or that wheel if there is no
separate metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The effect of a fault on a recommendation.

    Attributes:
        exit_code: Exit code of the command.
        tries: Number of requests for the address, of parts or of the whole file.
        message: A part of the error message or of the reason in the report.
        falls_back: The fallback, for the table.
    """

    exit_code: int
    tries: int
    message: str = ""
    falls_back: str = ""

    @property
    def cell(self) -> str:
        """The cell of the table."""
        requests_text = f", {self.tries} requests" if self.tries > 1 else ""
        return f"**{self.exit_code}** {self.falls_back}{requests_text}".replace(" ,", ",").strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One fault.

    Attributes:
        name: What the index does, for the table.
        outcomes: Effect of the fault by its place; impossible places are absent.
        answer: Function that answers instead of the index.
        host: Kind of server at the address, if the fault is not in the response.
    """

    name: str
    outcomes: Mapping[str, Outcome]
    answer: Fault | None = None
    host: str = ""


def send(
    body: bytes = b"", *, status: int = 200, kind: str = "application/vnd.pypi.simple.v1+json", **more: str
) -> Fault:
    """Return a fault that sends a fixed response."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        headers = {"Content-Type": kind, "Content-Length": str(len(body))}
        for name, value in (headers | {name.replace("_", "-"): value for name, value in more.items()}).items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)

    return answer


def redirect_to_itself(request: BaseHTTPRequestHandler) -> None:
    """Redirect to the same address."""
    send(status=302, Location=request.path)(request)


def stay_silent(request: BaseHTTPRequestHandler) -> None:
    """Wait until the client gives up."""
    with contextlib.suppress(OSError):
        request.rfile.read(1)
    request.close_connection = True


def drip(request: BaseHTTPRequestHandler) -> None:
    """Send the body byte by byte, without an end."""
    request.send_response(200)
    request.send_header("Content-Length", str(10**9))
    request.end_headers()
    with contextlib.suppress(OSError):
        while True:
            # The reader must not receive large pieces: it would need many megabytes until its time ends.
            time.sleep(0.001)
            request.wfile.write(b" ")
    request.close_connection = True


def drip_headers(request: BaseHTTPRequestHandler) -> None:
    """Send the headers byte by byte, without an end."""
    with contextlib.suppress(OSError):
        request.wfile.write(b"HTTP/1.1 200 OK\r\nX-Name: ")
        while True:
            # A line is too long after 65 536 bytes; it must not arrive in a few large pieces.
            time.sleep(0.001)
            request.wfile.write(b"x")
    request.close_connection = True


def truncate(request: BaseHTTPRequestHandler) -> None:
    """Close the connection in the middle of the body."""
    send(b'{"meta":', Content_Length="1000")(request)
    request.close_connection = True


def reset(request: BaseHTTPRequestHandler) -> None:
    """Reset the connection by an abortive close (RFC 9293, section 3.10.7.4)."""
    request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    request.connection.close()
    request.close_connection = True


def speak_another_protocol(request: BaseHTTPRequestHandler) -> None:
    """Answer like an SSH server (RFC 4253, section 4.2)."""
    request.wfile.write(b"SSH-2.0-OpenSSH_9.9\r\n")
    request.close_connection = True


def _everywhere(exit_code: int, tries: int, message: str) -> dict[str, Outcome]:
    return {place: Outcome(exit_code=exit_code, tries=tries, message=message) for place in PLACES}


def _absent() -> dict[str, Outcome]:
    reason = "the file no longer exists on the index"
    return {
        "page": Outcome(exit_code=3, tries=1, message="is not on any configured index", falls_back="no such package"),
        "metadata": Outcome(exit_code=0, tries=1, falls_back="reads the wheel"),
        "file": Outcome(exit_code=0, tries=1, message=reason, falls_back="skips the version"),
    }


def _unlike_page(message: str) -> dict[str, Outcome]:
    """Outcomes of a response that is not a page and whose hash differs from the one on the page."""
    page = Outcome(exit_code=4, tries=1, message=message)
    return {"page": page, "metadata": _differs(1), "file": _differs(2)}


def _differs(tries: int) -> Outcome:
    return Outcome(exit_code=4, tries=tries, message="does not match the one on its index page")


ROWS = (
    Row(name="404", answer=send(status=404), outcomes=_absent()),
    Row(name="410", answer=send(status=410), outcomes=_absent()),
    Row(name="500", answer=send(status=500), outcomes=_everywhere(4, 4, "it answers 500 after 4 attempts")),
    Row(name="503", answer=send(status=503), outcomes=_everywhere(4, 4, "it answers 503 after 4 attempts")),
    Row(
        name="429 with `Retry-After`",
        answer=send(status=429, Retry_After="7"),
        outcomes=_everywhere(4, 4, "it answers 429 after 4 attempts"),
    ),
    Row(
        name="no answer",
        answer=stay_silent,
        outcomes=_everywhere(4, 4, "no answer in time, 4 attempts"),
    ),
    Row(
        name="one byte at a time, in the body",
        answer=drip,
        outcomes={
            **_everywhere(4, 1, "the answer was not complete after 300 seconds"),
            "file": Outcome(exit_code=4, tries=2, message="the answer was not complete after 3600 seconds"),
        },
    ),
    Row(
        name="one byte at a time, in the headers",
        answer=drip_headers,
        outcomes=_everywhere(4, 1, "the answer was not complete after 300 seconds"),
    ),
    Row(
        name="truncated answer",
        answer=truncate,
        outcomes={
            **_everywhere(4, 4, "the connection was closed before the answer was complete, 4 attempts"),
            "file": Outcome(exit_code=4, tries=5, message="the connection was closed before the answer was complete"),
        },
    ),
    Row(
        name="connection reset",
        answer=reset,
        outcomes=_everywhere(4, 4, "the connection was closed before the answer was complete, 4 attempts"),
    ),
    Row(name="connection refused", host="refused", outcomes=_everywhere(4, 4, "no connection (refused), 4 attempts")),
    Row(
        name="unknown host name",
        host="unknown",
        outcomes=_everywhere(4, 1, "no connection (the host name cannot be resolved)"),
    ),
    Row(
        name="self-signed certificate",
        host="self-signed",
        outcomes=_everywhere(4, 1, "its certificate is not trusted: self-signed certificate"),
    ),
    Row(
        name="expired certificate",
        host="expired",
        outcomes=_everywhere(4, 1, "its certificate is not trusted: certificate has expired"),
    ),
    Row(
        name="certificate of another host",
        host="other name",
        outcomes=_everywhere(4, 1, "its certificate is not trusted: IP address mismatch"),
    ),
    Row(name="no TLS on an `https` address", host="plain", outcomes=_everywhere(4, 4, "no TLS connection (")),
    Row(name="not HTTP", answer=speak_another_protocol, outcomes=_everywhere(4, 1, "the answer is not HTTP")),
    Row(name="redirect loop", answer=redirect_to_itself, outcomes=_everywhere(4, 11, "more than 10 redirects")),
    Row(
        name="neither HTML nor JSON",
        answer=send(b"welcome to the hotel", kind="text/plain"),
        outcomes=_unlike_page("content type `text/plain` is not one of the simple repository API"),
    ),
    Row(
        name="a login page",
        answer=send(b"<html><body><form>welcome</form></body></html>", kind="text/html"),
        outcomes={
            **_unlike_page(""),
            "page": Outcome(
                exit_code=3,
                tries=1,
                message="the index page of `a`, required by line 1, lists no files",
                falls_back="page without files",
            ),
        },
    ),
    Row(name="empty answer", answer=send(), outcomes=_unlike_page("did not answer with a project page")),
    Row(
        name="another file than the page lists",
        host="changed",
        outcomes={place: _differs(tries) for place, tries in (("metadata", 1), ("file", 2))},
    ),
    Row(name="file changes between two ranges", host="changing", outcomes={"file": _differs(3)}),
)


def table() -> str:
    """Return the table of the documentation."""
    lines = ["| fault of the index | project page | metadata | file |", "| --- | --- | --- | --- |"]
    for row in ROWS:
        cells = [row.outcomes[place].cell if place in row.outcomes else "" for place in PLACES]
        lines.append(f"| {row.name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
