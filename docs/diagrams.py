"""Draws the diagrams of `explanation/overview.md` as SVG: `python docs/diagrams.py`.

The layout is written down here, in units of one pixel; nothing is needed but the standard library. The drawings have a
background of their own and follow the reader's choice of light or dark, so that they are legible on any page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.sax.saxutils import escape

FOLDER = Path(__file__).parent / "explanation" / "diagrams"

TITLE_SIZE = 16
LINE_SIZE = 14
LINE_HEIGHT = 18
CHARACTER_WIDTH = 0.56
"""Mean width of a character, as a share of the font size, rounded up."""

STYLE = """
  .page { fill: #ffffff; stroke: #d0d7de; }
  .group { fill: #f6f8fa; stroke: #d0d7de; }
  .box { fill: #ffffff; stroke: #57606a; }
  .store { fill: #ddf4ff; stroke: #0969da; }
  .outside { fill: #fff8c5; stroke: #9a6700; }
  .result { fill: #dafbe1; stroke: #1a7f37; }
  text { fill: #1f2328; font-family: system-ui, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; }
  .title { font-size: 16px; font-weight: 600; }
  .line { font-size: 14px; }
  .note { font-size: 14px; fill: #57606a; }
  .arrow { stroke: #57606a; stroke-width: 1.5; fill: none; }
  .head { fill: #57606a; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; stroke: #30363d; }
    .group { fill: #161b22; stroke: #30363d; }
    .box { fill: #21262d; stroke: #8b949e; }
    .store { fill: #0c2d6b; stroke: #58a6ff; }
    .outside { fill: #3b2300; stroke: #d29922; }
    .result { fill: #033a16; stroke: #3fb950; }
    text { fill: #e6edf3; }
    .note { fill: #9da7b3; }
    .arrow { stroke: #9da7b3; }
    .head { fill: #9da7b3; }
  }
"""

Kind = Literal["group", "box", "store", "outside", "result"]
Side = Literal["left", "right", "top", "bottom"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A rectangle with a title and lines below it.

    Attributes:
        title: First line.
        lines: Further lines.
        x: Left edge.
        y: Upper edge.
        width: Its width.
        height: Its height.
        kind: Its colour; the lines of a group, which contains other boxes, are to the right of its title.
    """

    title: str
    lines: tuple[str, ...] = ()
    x: int
    y: int
    width: int
    height: int
    kind: Kind = "box"

    def at(self, side: Side, share: float = 0.5) -> tuple[float, float]:
        """Return a point on an edge.

        Args:
            side: The edge.
            share: How far along it, from left to right or from top to bottom.
        """
        if side in ("left", "right"):
            return self.x + (self.width if side == "right" else 0), self.y + share * self.height
        return self.x + share * self.width, self.y + (self.height if side == "bottom" else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """A line with a head at its end.

    Attributes:
        points: Its corners, the end last.
        label: Text next to it.
        label_at: Start of the text.
    """

    points: tuple[tuple[float, float], ...]
    label: str = ""
    label_at: tuple[float, float] = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagram:
    """A drawing.

    Attributes:
        title: Description for readers who do not see the drawing.
        width: Its width.
        height: Its height.
        boxes: Groups before the boxes inside them.
        arrows: Arrows between boxes.
    """

    title: str
    width: int
    height: int
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...] = ()

    def svg(self) -> str:
        """Return the drawing as an SVG document."""
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" role="img">',
            f"<title>{escape(self.title)}</title>",
            f"<style>{STYLE}</style>",
            f'<rect class="page" x="0.5" y="0.5" width="{self.width - 1}" height="{self.height - 1}" rx="8"/>',
            *(line for box in self.boxes for line in _box_lines(box)),
            *(line for arrow in self.arrows for line in _arrow_lines(arrow)),
            "</svg>",
            "",
        ]
        return "\n".join(lines)


def _text(x: float, y: float, kind: str, text: str) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(text)}</text>'


def _box_lines(box: Box) -> Iterator[str]:
    yield (
        f'<rect class="{box.kind}" x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" '
        f'rx="{8 if box.kind == "group" else 5}"/>'
    )
    yield _text(box.x + 10, box.y + 22, "title", box.title)
    for number, line in enumerate(box.lines):
        if box.kind == "group":
            yield _text(box.x + 24 + len(box.title) * 11, box.y + 22 + number * LINE_HEIGHT, "note", line)
        else:
            yield _text(box.x + 10, box.y + 42 + number * LINE_HEIGHT, "line", line)


def _arrow_lines(arrow: Arrow) -> Iterator[str]:
    yield f'<polyline class="arrow" points="{" ".join(f"{x:g},{y:g}" for x, y in arrow.points)}"/>'
    (before_x, before_y), (x, y) = arrow.points[-2:]
    length = ((x - before_x) ** 2 + (y - before_y) ** 2) ** 0.5
    along_x, along_y = (x - before_x) / length, (y - before_y) / length
    corners = [(x, y)]
    corners += [(x - 9 * along_x - sign * 4.5 * along_y, y - 9 * along_y + sign * 4.5 * along_x) for sign in (1, -1)]
    yield f'<polygon class="head" points="{" ".join(f"{a:g},{b:g}" for a, b in corners)}"/>'
    if arrow.label:
        yield _text(*arrow.label_at, "note", arrow.label)


def row(y: int, height: int, left: int, right: int, boxes: Sequence[tuple[str, tuple[str, ...]]]) -> tuple[Box, ...]:
    """Return boxes of equal width in a row, ten pixels apart.

    Args:
        y: Upper edge of all.
        height: Height of all.
        left: Left edge of the first.
        right: Right edge of the last.
        boxes: Title and lines of each.
    """
    width = (right - left + 10) // len(boxes) - 10
    return tuple(
        Box(title=title, lines=lines, x=left + number * (width + 10), y=y, width=width, height=height)
        for number, (title, lines) in enumerate(boxes)
    )


def architecture() -> Diagram:
    """Return the packages of the program, a group for each of the three top-level packages."""
    advisor = (
        Box(
            title="advisor", lines=("advises, checks, runs campaigns",), x=12, y=12, width=976, height=404, kind="group"
        ),
        *row(
            46,
            58,
            24,
            976,
            (
                ("cli", ("commands: options, output, exit codes",)),
                ("dashboard", ("pages for browsers, and their JSON",)),
            ),
        ),
        Box(
            title="report",
            lines=("text, JSON, HTML, SARIF, JUnit, GitHub, GitLab, Markdown, Mermaid, DOT",),
            x=24,
            y=114,
            width=952,
            height=58,
        ),
        Box(
            title="api",
            lines=("Python functions: advise, check, explain, prices, compare, estimate, measure",),
            x=24,
            y=182,
            width=952,
            height=58,
        ),
        *row(
            250,
            86,
            24,
            976,
            (
                ("campaign", ("plans tasks,", "stores results")),
                ("gate", ("checks a lock", "or a change")),
                ("experiment", ("what to run,", "until when")),
                ("resolve", ("optimum and", "explanations")),
                ("locks", ("lock files,", "CycloneDX")),
                ("project", ("requirements,", "sources")),
                ("index", ("package index", "with a cache")),
            ),
        ),
        Box(title="domain", lines=("shared values: requirement, target",), x=24, y=346, width=952, height=58),
    )
    runners = (
        Box(title="pi_runners", lines=("measures stacks",), x=12, y=456, width=976, height=200, kind="group"),
        *row(
            490,
            72,
            24,
            976,
            (
                ("executors", ("this machine, Slurm,", "Kubernetes")),
                ("plan", ("blocks, matrix files",)),
                ("execution", ("environments, rounds",)),
                ("profile", ("time shares of a program",)),
            ),
        ),
        *row(
            572,
            72,
            24,
            976,
            (
                ("harness", ("times and checks", "results")),
                ("indicators", ("measured programs",)),
                ("models", ("published models,", "defined once")),
                ("frameworks", ("operations, names,", "traces")),
                ("hooks", ("run in programs",)),
            ),
        ),
    )
    knowledge = (
        Box(
            title="knowledge",
            lines=("observations, rules, predictions",),
            x=12,
            y=696,
            width=976,
            height=268,
            kind="group",
        ),
        *row(
            730,
            86,
            24,
            976,
            (
                ("service", ("a knowledge base", "over HTTP")),
                ("estimate", ("predictions from", "one model")),
                ("evidence", ("comparisons,", "ratios")),
                ("exchange", ("reads and checks", "observations")),
                ("store", ("SQLite or", "PostgreSQL")),
            ),
        ),
        *row(
            826,
            58,
            24,
            976,
            (
                ("catalogue", ("facts: rules, builds, settings",)),
                ("hardware", ("detection, profiles",)),
                ("data", ("what ships",)),
            ),
        ),
        Box(
            title="domain",
            lines=("shared values: hardware, stack, observation, errors",),
            x=24,
            y=894,
            width=952,
            height=58,
        ),
    )
    down = tuple(Arrow(points=((500, y), (500, y + 40)), label="imports", label_at=(512, y + 25)) for y in (416, 656))
    return Diagram(
        title="The packages of the program: advisor imports pi_runners and knowledge, pi_runners imports knowledge",
        width=1000,
        height=976,
        boxes=(*advisor, *runners, *knowledge),
        arrows=down,
    )


def data_flow() -> Diagram:
    """Return how data flow from a project and measurements to a lock, a report and findings."""

    def box(title: str, *lines: str, column: int, y: int, kind: Kind = "box", height: int = 78) -> Box:
        return Box(title=title, lines=lines, x=12 + 256 * column, y=y, width=200, height=height, kind=kind)

    project = box("Project", "requirements,", "constraints, lock", column=0, y=40, kind="outside")
    index = box("Package index", "versions, metadata,", "vulnerabilities", column=0, y=142, kind="outside")
    machine = box("Hardware profile", "detected, shipped,", "or a file", column=0, y=244, kind="outside")
    plan = box("Stacks or matrix", "what to measure", column=0, y=444, kind="outside")
    resolve = box(
        "Resolve",
        "best score, with proof:",
        "advise(), explain(),",
        "prices()",
        column=1,
        y=40,
        height=96,
    )
    rules = box("Rules", "facts with sources", column=1, y=244, kind="store", height=60)
    measure = box("Measure", "rounds of processes:", "measure()", column=1, y=444)
    lock = box("Lock file", "one exact version", "of each package", column=2, y=40, kind="result")
    gate = box("Gate", "lock or change:", "check()", column=2, y=164)
    estimator = box("Estimator", "predicted speed:", "estimate()", column=2, y=304)
    base = box("Knowledge base", "observations:", "compare()", column=2, y=444, kind="store")
    report = box("Report", "reasons, evidence,", "prices, gaps", column=3, y=40, kind="result")
    findings = box("Findings", "exit code, annotations", "in CI", column=3, y=164, kind="result")
    others = box("Other sources", "files, services, and", "MLPerf results", column=3, y=444, kind="outside")
    arrows = (
        Arrow(points=((212, 66), (268, 66))),
        Arrow(points=(index.at("right"), (232, 181), (232, 88), (268, 88))),
        Arrow(points=(machine.at("right"), (246, 283), (246, 110), (268, 110))),
        Arrow(points=(rules.at("top"), resolve.at("bottom"))),
        Arrow(points=((468, 80), (524, 80))),
        Arrow(points=((468, 60), (496, 60), (496, 20), (880, 20), (880, 40))),
        Arrow(points=(lock.at("bottom"), gate.at("top"))),
        Arrow(points=(gate.at("right"), findings.at("left"))),
        Arrow(points=((468, 274), (486, 274), (486, 214), (524, 214))),
        Arrow(points=(estimator.at("top"), gate.at("bottom"))),
        Arrow(points=(estimator.at("left"), (504, 343), (504, 112), (468, 112))),
        Arrow(points=(base.at("top"), estimator.at("bottom"))),
        Arrow(points=(plan.at("right"), measure.at("left"))),
        Arrow(
            points=((112, 322), (112, 390), (368, 390), (368, 444)),
            label="the measuring machine",
            label_at=(124, 380),
        ),
        Arrow(points=(measure.at("right"), base.at("left"))),
        Arrow(points=((780, 470), (724, 470))),
        Arrow(points=((724, 500), (780, 500))),
    )
    return Diagram(
        title="From a project and measurements to a lock file, a report and findings",
        width=992,
        height=540,
        boxes=(
            *(project, index, machine, plan, resolve, rules, measure),
            *(lock, gate, estimator, base, report, findings, others),
        ),
        arrows=arrows,
    )


def drawings() -> dict[Path, str]:
    """Return every drawing by its path."""
    return {
        FOLDER / "architecture.svg": architecture().svg(),
        FOLDER / "data-flow.svg": data_flow().svg(),
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, text in drawings().items():
        path.write_text(text, encoding="utf-8")
