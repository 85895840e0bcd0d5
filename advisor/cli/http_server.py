"""The HTTP server of `advisor serve` and `advisor dashboard`, which import it when they need its libraries."""

from __future__ import annotations

import logging
import signal
import socket
import sys
from collections.abc import Collection
from typing import Any

import typer
import uvicorn
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from advisor.cli.console import warn
from knowledge.domain.errors import UnavailableError
from knowledge.service.access import LOGGER, with_peer

_SWITCH_SECONDS = 0.0005
LOCAL = ("127.0.0.1", "::1", "localhost")
"""Names and addresses of this machine that no other one reaches."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address.

    Raises:
        UnavailableError: If it cannot be listened on.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        raise UnavailableError(
            f"`{host}:{port}` cannot be listened on: {error.strerror}", hint="name another `--port`"
        ) from None
    # asyncio sets this only on sockets that it creates; without it, each response waits 40 ms for a confirmation.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if host not in LOCAL:
        warn("tokens and observations travel in the clear", hint="put a proxy that speaks TLS before it")
    return listening


def address_of(host: str, listening: socket.socket) -> str:
    """Return the address of a server."""
    return f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"


def run(app: Any, listening: socket.socket, *, proxies: Collection[str] = LOCAL[:2]) -> None:
    """Serve an application until a signal ends it; the error output gets the lines that it logs of its requests.

    Args:
        app: The application.
        listening: The socket.
        proxies: Addresses of proxies whose header with the client's address is believed.
    """
    LOGGER.addHandler(logging.StreamHandler())
    LOGGER.setLevel(logging.INFO)
    behind_proxies: Any = ProxyHeadersMiddleware(app, trusted_hosts=list(proxies))
    # uvicorn's own lines hold whole addresses, and no token's name.
    config = uvicorn.Config(
        with_peer(behind_proxies),
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=30,
        proxy_headers=False,
    )
    # Threads that read the database give up the interpreter at each row; by default they wait 5 ms for their next turn.
    sys.setswitchinterval(_SWITCH_SECONDS)
    # uvicorn ends what is under way, then raises the signal again: the knowledge base is to be closed, too.
    signal.signal(signal.SIGTERM, _stop)
    uvicorn.Server(config).run(sockets=[listening])


def _stop(_: int, __: object) -> None:
    raise typer.Exit
