"""`advisor workload`: profiles of the user's own program."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from advisor import api
from advisor.cli.command_help import CommandGroup
from advisor.cli.console import say, warn
from advisor.cli.options import FormatOption, print_either, print_json
from advisor.domain.words import visible
from advisor.project.workload.file import WORKLOAD_FILE, read_workloads, select_workload
from advisor.report.evidence import draw_svg
from advisor.report.workload import workload_json, workload_plot, workload_text, workloads_json, workloads_text
from knowledge.domain.errors import InputError
from knowledge.domain.shared_files import write_atomically
from knowledge.domain.workload import ProfiledWorkload

app = CommandGroup(
    help="Profile your own program: which operations take its time.", no_args_is_help=True, rich_markup_mode=None
)

_ProjectOption = Annotated[
    Path, typer.Option("--project", metavar="DIRECTORY", help="Project with the file `advisor-workload.toml`.")
]
_NameOption = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", help="Name of the workload.\nBy default the name of the program or trace."),
]
_LISTED_PARTS = 12


# Options after the first argument belong to the program.
@app.command("profile", context_settings={"allow_interspersed_args": False})
def profile(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="Program and its arguments, after `--`.")],
    steps: Annotated[int, typer.Option("--steps", min=1, max=10_000, help="Number of steps to profile.")] = 20,
    warm_up: Annotated[
        int, typer.Option("--warm-up", metavar="STEPS", min=1, help="Number of steps before these.")
    ] = 5,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=1, help="Interrupt the program after this time.")
    ] = 600.0,
    name: _NameOption = None,
    project: _ProjectOption = Path("."),
    format: FormatOption = "text",
) -> None:
    """Run a program with its framework's profiler, end it after some steps, and write a workload."""
    request = api.workload.ProfileRequest(
        command=tuple(command),
        directory=project,
        steps=steps,
        warm_up=warm_up,
        timeout_seconds=timeout,
        output=sys.stderr,
    )
    _print_result(api.workload.profile_workload(request, name=name), project, format)


@app.command("import")
def import_(
    trace: Annotated[
        Path,
        typer.Argument(
            metavar="TRACE",
            help="Trace of a profiler: JSON or XPlane.\n"
            "Of torch.profiler or ONNX Runtime (JSON), or of TensorFlow or JAX (XPlane file, JSON, or the "
            "directory that they wrote). JSON may be gzipped.",
        ),
    ],
    framework: Annotated[
        str | None,
        typer.Option("--framework", metavar="NAME==VERSION", help="Framework that wrote the trace; else unknown."),
    ] = None,
    steps: Annotated[
        int, typer.Option("--steps", min=0, help="Steps in a trace of TensorFlow or JAX.\n0 if unknown.")
    ] = 0,
    name: _NameOption = None,
    project: _ProjectOption = Path("."),
    format: FormatOption = "text",
) -> None:
    """Write a workload from a trace that exists."""
    result = api.workload.import_trace(trace, project=project, name=name, framework=framework, steps=steps)
    _print_result(result, project, format)


@app.command("list")
def list_workloads(project: _ProjectOption = Path("."), format: FormatOption = "text") -> None:
    """List the profiled workloads of a project."""
    workloads = read_workloads(project)
    if format == "json":
        print_json(workloads_json(workloads))
    elif workloads:
        typer.echo(workloads_text(workloads))
    else:
        say(f"`{project}` has no profiled workloads: `advisor workload profile -- python train.py` makes one")


@app.command("show")
def show(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Workload; optional if there is only one.")
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE.svg", help="Draw the time shares, too.")] = None,
    project: _ProjectOption = Path("."),
    format: FormatOption = "text",
) -> None:
    """Print where the time of a workload goes: parts, layers, dominating kernels."""
    selected = select_workload(project, name)
    _print(selected, format, parts=0)
    if plot is not None:
        write_plot(plot, *workload_plot(selected))


def _print_result(result: api.workload.WorkloadResult, project: Path, format: str) -> None:
    for sentence in result.warnings:
        warn(sentence)
    _print(result.workload, format, parts=_LISTED_PARTS)
    verb = "replaced" if result.replaced else "wrote"
    say(f"{verb} the workload `{result.workload.name}` in `{project / WORKLOAD_FILE}`")


def _print(workload: ProfiledWorkload, format: str, *, parts: int) -> None:
    print_either(format, workload_json(workload), visible(workload_text(workload, parts=parts)))


def write_plot(path: Path, draw: Callable[[Any], None], rows: int, *, panels: int = 0) -> None:
    """Draw a plot with a number of rows to an SVG file; with ``panels``, the function draws on this many axes.

    Raises:
        InputError: If the file has another suffix.
    """
    if path.suffix != ".svg":
        raise InputError(f"`{path}` is not drawn: plots are SVG", hint="name it `--plot FILE.svg`")
    write_atomically(path, draw_svg(draw, rows=rows, panels=panels))
    say(f"wrote `{path}`")
