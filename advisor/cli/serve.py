"""`advisor serve`: the knowledge base over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import typer

from advisor import api
from advisor.api.option import Option
from advisor.api.options import ProjectOptions
from advisor.cli.console import say
from advisor.cli.options import IndexPlaces, KnowledgeOption, expand_options
from knowledge.domain.errors import InputError
from knowledge.domain.extras import needs_extra
from pi_runners.catalogue import Indicators

_PATH = "/dashboard"
"""Path of the dashboard on the server."""


@dataclass(frozen=True, kw_only=True)
class DashboardOptions:
    """Whether the dashboard is served, too, and how people sign in to it."""

    dashboard: Annotated[
        bool, Option("--dashboard", help="Serve the dashboard, too.\nIt is at `/dashboard`, and people sign in to it.")
    ] = False
    user_header: Annotated[
        str, Option("--user-header", metavar="NAME", help="Header with the user, from an authenticating proxy.")
    ] = ""
    role_header: Annotated[str, Option("--role-header", metavar="NAME", help="Header with the role of that user.")] = ""
    proxies: Annotated[
        tuple[str, ...],
        Option("--proxy", metavar="ADDRESS", help="Proxy whose headers are believed (default: this machine)."),
    ] = ()


@expand_options
def serve(
    pages: DashboardOptions,
    indexes: IndexPlaces,
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

    With `--dashboard`, people sign in with a token, or the proxy names them.
    """
    if (pages.user_header or pages.role_header) and not pages.dashboard:
        raise InputError("`--user-header` and `--role-header` are for the dashboard", hint="add `--dashboard`")
    with needs_extra("serve", "`advisor serve`"):
        from advisor.cli import http_server
        from knowledge.service.app import create_app
    with api.stores.open_writable_store(knowledge) as store:
        campaigns = partial(api.campaigns.newest_campaign_tasks, knowledge=knowledge)
        app = create_app(store, Indicators(), most_bytes=int(most * 1e6), campaigns=campaigns)
        believed = frozenset(pages.proxies or http_server.LOCAL[:2])
        if pages.dashboard:
            from advisor.dashboard.access import Access, TeamSignIn
            from advisor.dashboard.app import mount_dashboard
            from advisor.dashboard.site import Site

            sign_in = TeamSignIn(store, user_header=pages.user_header, role_header=pages.role_header, proxies=believed)
            site = Site(
                store=store,
                knowledge=knowledge,
                access=Access(sign_in=sign_in),
                options=ProjectOptions(indexes=indexes),
            )
            mount_dashboard(app, site, _PATH)
        listening = http_server.listen(host, port)
        address = http_server.address_of(host, listening)
        say(f"serving `{store.address}` at {address}")
        if pages.dashboard:
            say(f"the dashboard is at {address}{_PATH}/")
        http_server.run(app, listening, proxies=believed)
