"""`advisor hardware compare`: how much faster one accelerator is than another."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from advisor.cli.console import print_report, report_layout
from advisor.cli.options import FormatOption, KnowledgeOption, check_format


def compare_hardware(
    accelerator: Annotated[str, typer.Argument(metavar="ACCELERATOR", help="An accelerator or a hardware profile.")],
    reference: Annotated[str, typer.Argument(metavar="REFERENCE", help="The one to compare with.")],
    workload: Annotated[str, typer.Option("--workload", metavar="NAME", help="Workload to predict for.")],
    format: FormatOption = "text",
    knowledge: KnowledgeOption = None,
) -> None:
    """Predict how much faster one accelerator is than another, from published measurements."""
    from advisor.api.queries import compare_hardware as compare
    from advisor.report.accelerators import hardware_comparison_document, hardware_comparison_text

    check_format(format)
    comparison = compare(accelerator, reference, workload=workload, knowledge=knowledge)
    if format == "json":
        typer.echo(json.dumps(hardware_comparison_document(comparison), indent=2))
    else:
        print_report(hardware_comparison_text(comparison, report_layout()))
