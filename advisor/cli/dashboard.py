"""`advisor dashboard`: pages about the knowledge base and the project, in the browser or as files."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from advisor import api
from advisor.api.options import ProjectFiles, ProjectOptions
from advisor.cli.console import say
from advisor.cli.options import expand_options
from advisor.project.interface import NoRequirementsError
from knowledge.domain.errors import InputError
from knowledge.domain.extras import needs_extra

_HOST = "127.0.0.1"


@expand_options
def dashboard(
    project: ProjectOptions,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address only.")] = False,
    export: Annotated[
        Path | None,
        typer.Option("--export", metavar="DIRECTORY", help="Write the pages as files instead."),
    ] = None,
) -> None:
    """Show the knowledge base, and the advice for the project, as pages in the browser.

    Only this machine can open the pages, with the address that is printed: it holds a random token. `advisor serve
    --dashboard` serves them to a team.
    """
    directory, knowledge = project.files.directory, project.resolution.knowledge
    if not directory.is_dir():
        raise InputError(f"`{directory}` is not a directory")
    with needs_extra("serve", "`advisor dashboard`"):
        from advisor.cli import http_server
        from advisor.dashboard.access import Access, LocalSignIn
        from advisor.dashboard.app import create_dashboard
        from advisor.dashboard.site import Site
    if export is not None:
        _export(export, knowledge)
        return
    sign_in = LocalSignIn()
    with api.stores.open_readable_store(knowledge) as store:
        site = Site(
            store=store,
            knowledge=knowledge,
            access=Access(sign_in=sign_in),
            project=_project(project.files),
            options=project,
        )
        app = create_dashboard(site)
        listening = http_server.listen(_HOST, port)
        address = f"{http_server.address_of(_HOST, listening)}/?token={sign_in.token}"
        say("the dashboard is at the following address, which only you should know; Ctrl-C ends it")
        typer.echo(address)
        if not no_browser:
            webbrowser.open(address)
        http_server.run(app, listening)


def _project(files: ProjectFiles) -> Path | None:
    """Return the directory of the project, if it states requirements; the page of its advice reports other errors."""
    try:
        api.context.load_project(files, report=False)
    except NoRequirementsError:
        return None
    except InputError:
        pass
    return files.directory.resolve()


def _export(directory: Path, knowledge: str | None) -> None:
    """Write the pages as files."""
    from advisor.dashboard.export import export_pages
    from advisor.dashboard.site import Site

    with api.stores.open_readable_store(knowledge) as store:
        result = export_pages(Site(store=store, knowledge=knowledge), directory)
    for sentence in result.left_out:
        say(sentence)
    typer.echo(f"{result.pages} pages, {result.size_bytes / 1e6:.1f} MB: {directory / 'index.html'}")
