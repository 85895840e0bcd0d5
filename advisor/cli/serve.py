"""`advisor serve`: the knowledge base over HTTP."""

from __future__ import annotations

import logging
import signal
import socket
from functools import partial
from typing import Annotated

import typer

from advisor import api
from advisor.cli.console import say, warn
from advisor.cli.options import KnowledgeOption
from knowledge.domain.errors import UnavailableError
from knowledge.domain.extras import needs_extra
from pi_runners.catalogue import Indicators


def serve(
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 8642,
    most: Annotated[float, typer.Option("--max-body", metavar="MB", min=0.001, help="Largest delivery.")] = 16.0,
    knowledge: KnowledgeOption = None,
) -> None:
    """Serve the knowledge base over HTTP: runners deliver observations, others read them.

    Make tokens with `advisor knowledge token create`. It speaks plain HTTP: put a proxy that speaks TLS before it.
    Each request is logged as one line of JSON on the error output. `/metrics` has figures for Prometheus; the page
    about monitoring in the documentation (`advisor docs`) names its alert rules and its dashboard.
    """
    with needs_extra("serve", "`advisor serve`"):
        import uvicorn

        from knowledge.service.access import LOGGER
        from knowledge.service.app import create_app
    with api.stores.open_writable_store(knowledge) as store:
        campaigns = partial(api.campaigns.newest_campaign_tasks, knowledge=knowledge)
        app = create_app(store, Indicators(), most_bytes=int(most * 1e6), campaigns=campaigns)
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listening = socket.create_server((host, port), family=family, backlog=512)
        except OSError as error:
            raise UnavailableError(
                f"`{host}:{port}` cannot be listened on: {error.strerror}", hint="name another `--port` or `--host`"
            ) from None
        # asyncio sets this only on sockets that it creates; without it, each response waits 40 ms for a confirmation.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if host not in ("127.0.0.1", "::1", "localhost"):
            warn("tokens and observations travel in the clear", hint="put a proxy that speaks TLS before it")
        url_host = f"[{host}]" if ":" in host else host
        say(f"serving `{store.address}` at http://{url_host}:{listening.getsockname()[1]}")
        LOGGER.addHandler(logging.StreamHandler())
        LOGGER.setLevel(logging.INFO)
        # uvicorn's own lines hold whole addresses, and no token's name.
        config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=30)
        # uvicorn ends what is under way, then raises the signal again: the knowledge base is to be closed, too.
        signal.signal(signal.SIGTERM, _stop)
        uvicorn.Server(config).run(sockets=[listening])


def _stop(_: int, __: object) -> None:
    raise typer.Exit
