"""Short descriptions of failed requests, whether to retry, and when."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress

import requests
from urllib3.exceptions import InvalidHeader
from urllib3.util import Retry

from advisor.index.http.session import TruncatedAnswerError
from advisor.index.limits import RETRY_AFTER_SECONDS

BACKOFF_SECONDS = 0.3
"""Seconds before the first retry; they double with each one."""
CERTIFICATE_HINT = (
    "set `SSL_CERT_FILE` (uv) or `PIP_CERT` (pip) to the certificate of its authority, or renew the certificate of "
    "the server"
)
_TRANSIENT = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)


def is_transient(error: Exception) -> bool:
    """Whether a retry can succeed: not with unknown hosts, wrong certificates, other protocols, malformed addresses."""
    return isinstance(error, _TRANSIENT) and not (
        _is_unknown_host(error) or is_certificate_failure(error) or _is_other_protocol(error)
    )


def _is_unknown_host(error: Exception) -> bool:
    """Whether a name server answered that there is no such host; without an answer, the code is `EAI_AGAIN`."""
    return any(isinstance(one, socket.gaierror) and one.errno == socket.EAI_NONAME for one in _causes(error))


def is_certificate_failure(error: Exception) -> bool:
    """Whether the server has a certificate that is not trusted."""
    return any(isinstance(one, ssl.SSLCertVerificationError) for one in _causes(error))


def _is_other_protocol(error: Exception) -> bool:
    # A closed or interrupted connection is an error of the HTTP library, too.
    broken = ConnectionError | http.client.IncompleteRead
    return any(isinstance(one, http.client.HTTPException) and not isinstance(one, broken) for one in _causes(error))


def cause_of(error: Exception) -> str:
    """Return a short description of why a request failed."""
    causes = tuple(_causes(error))
    for one in causes:
        if isinstance(one, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {one.verify_message.rstrip('.')}"
        if isinstance(one, ssl.SSLError) and one.reason:
            return f"no TLS connection ({one.reason.lower().replace('_', ' ')})"
        if isinstance(one, socket.gaierror):
            return "no connection (the host name cannot be resolved)"
        if isinstance(one, ConnectionRefusedError):
            return "no connection (refused)"
        if isinstance(one, ConnectionError | http.client.IncompleteRead):
            return "the connection was closed before the answer was complete"
        if isinstance(one, http.client.HTTPException):
            return "the answer is not HTTP"
    if isinstance(error, requests.Timeout) or any(isinstance(one, TimeoutError) for one in causes):
        return "no answer in time"
    if isinstance(error, TruncatedAnswerError):
        return str(error)
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def wait_seconds(retry_after: str, tries: int) -> float:
    """Return the seconds to wait before a retry (RFC 9110, section 10.2.3)."""
    requested = 0.0
    # Numbers and years may be too large for the libraries.
    with suppress(InvalidHeader, ValueError, OverflowError):
        requested = float(Retry().parse_retry_after(retry_after or "0"))
    return min(max(requested, float(BACKOFF_SECONDS * 2 ** (tries - 1))), RETRY_AFTER_SECONDS)
