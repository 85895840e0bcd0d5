"""`advisor explain`, `advisor prices`, `advisor tree`: why the stack is what it is."""

from __future__ import annotations

from typing import Annotated

import typer

from advisor.cli.context import opened
from advisor.cli.options import FormatOption, check_format
from advisor.cli.project_options import ProjectOptions, asks

_PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")


@asks
def explain(
    asked: ProjectOptions,
    package: Annotated[str, typer.Argument(metavar="PACKAGE", help="A package of the advised stack.")],
    format: FormatOption = "text",
) -> None:
    """Explain a package: why this version, who requires it, why not the newest, what the runner-up loses."""
    from packaging.utils import canonicalize_name

    from advisor.report.reasons import explanation_json, explanation_text
    from advisor.resolve.alternatives import explain_package
    from advisor.resolve.recommend import recommend

    check_format(format)
    with opened(asked) as project:
        inquiry = project.ask(None)
        found = explain_package(inquiry, recommend(inquiry), canonicalize_name(package))
    typer.echo(explanation_json(found) if format == "json" else explanation_text(found))


@asks
def prices(
    asked: ProjectOptions,
    pythons: Annotated[
        list[str] | None,
        typer.Option(
            "--other-python", metavar="VERSION", help="Interpreter to price (repeatable); by default the field's."
        ),
    ] = None,
    no_pythons: Annotated[bool, typer.Option("--no-pythons", help="Do not price other interpreters.")] = False,
    format: FormatOption = "text",
) -> None:
    """Price each of the project's own constraints, and other interpreters: what giving it up would buy."""
    from advisor.report.reasons import prices_json, prices_text
    from advisor.resolve.prices import constraint_prices, python_prices
    from advisor.resolve.recommend import recommend

    check_format(format)
    with opened(asked) as project:
        inquiry = project.ask(None)
        optimum = recommend(inquiry).optimum
        found = list(constraint_prices(inquiry, optimum))
        if not no_pythons:
            found += python_prices(
                inquiry,
                optimum,
                versions=pythons or _PYTHONS,
                requires_python=project.prepared.project.requires_python,
                make_request=project.ask,
            )
    typer.echo(prices_json(found) if format == "json" else prices_text(found))


@asks
def tree(
    asked: ProjectOptions,
    package: Annotated[
        str | None, typer.Option("--package", metavar="NAME", help="Start here instead of at the project.")
    ] = None,
    invert: Annotated[bool, typer.Option("--invert", help="Show below each package what requires it.")] = False,
    depth: Annotated[int | None, typer.Option("--depth", min=1, help="Levels to show.")] = None,
    format: Annotated[str, typer.Option("--format", metavar="text|json|mermaid|dot", help="Output format.")] = "text",
) -> None:
    """Show the advised stack as a tree of requirements."""
    from packaging.utils import canonicalize_name

    from advisor.report.tree import FORMATS, tree_report
    from advisor.resolve.explain import dependency_graph
    from advisor.resolve.recommend import recommend

    check_format(format, among=FORMATS)
    with opened(asked) as project:
        inquiry = project.ask(None)
        advice = recommend(inquiry)
    graph = dependency_graph(inquiry.problem, inquiry.source, advice.optimum.stack)
    start = canonicalize_name(package) if package else None
    typer.echo(tree_report(graph, format=format, invert=invert, package=start, depth=depth))
