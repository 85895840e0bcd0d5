"""`advisor explain`, `advisor prices`, `advisor tree`: why the stack is what it is."""

from __future__ import annotations

from typing import Annotated

import typer
from packaging.utils import canonicalize_name

from advisor import api
from advisor.api.options import ProjectOptions
from advisor.cli.advise import asks_for_builds
from advisor.cli.console import print_report, report_layout
from advisor.cli.options import FormatOption, check_format, expand_options
from advisor.report.advice.reasons import explanation_json, explanation_text, prices_json, prices_text
from advisor.report.advice.tree import FORMATS, tree_report
from advisor.resolve.explanation.graph import dependency_graph


@expand_options
@asks_for_builds
def explain(
    project: ProjectOptions,
    package: Annotated[
        str, typer.Argument(metavar="PACKAGE", help="A package of the advised stack, or a replaced one.")
    ],
    format: FormatOption = "text",
) -> None:
    """Explain a package: why this version, who requires it, why not the newest, what the runner-up loses."""
    with api.session.open_session(project) as session:
        explanation = session.explain(package)
    is_json = format == "json"
    print_report(explanation_json(explanation) if is_json else explanation_text(explanation, report_layout()))


@expand_options
@asks_for_builds
def prices(
    project: ProjectOptions,
    pythons: Annotated[
        list[str] | None,
        typer.Option(
            "--other-python", metavar="VERSION", help="Interpreter to price (default: 3.10 to 3.14).\nRepeatable."
        ),
    ] = None,
    no_pythons: Annotated[bool, typer.Option("--no-pythons", help="Do not price other interpreters.")] = False,
    format: FormatOption = "text",
) -> None:
    """Price each of the project's own constraints, and other interpreters: what giving it up would buy."""
    with api.session.open_session(project) as session:
        all_prices = session.prices(other_pythons=() if no_pythons else pythons or api.session.OTHER_PYTHONS)
    print_report(prices_json(all_prices) if format == "json" else prices_text(all_prices, report_layout()))


@expand_options
@asks_for_builds
def tree(
    project: ProjectOptions,
    package: Annotated[
        str | None, typer.Option("--package", metavar="NAME", help="Start here instead of at the project.")
    ] = None,
    invert: Annotated[bool, typer.Option("--invert", help="Show below each package what requires it.")] = False,
    depth: Annotated[int | None, typer.Option("--depth", metavar="LEVELS", min=1, help="Levels to show.")] = None,
    format: Annotated[str, typer.Option("--format", metavar="FORMAT", help="text, json, mermaid or dot.")] = "text",
) -> None:
    """Show the advised stack as a tree of requirements."""
    check_format(format, among=FORMATS)
    start = canonicalize_name(package) if package else None
    with api.session.open_session(project) as session:
        solved = session.solved()
    graph = dependency_graph(solved.request.problem, solved.request.source, solved.stack)
    typer.echo(tree_report(graph, format=format, invert=invert, package=start, depth=depth))
