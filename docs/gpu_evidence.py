"""Writes the tables of `reference/evidence/accelerators.md` and draws its plots, from shipped published measurements.

pip install 'seshat-advisor[docs]' && python docs/gpu_evidence.py

The table of held-out predictions is that of `python -m benchmarks.held_out`.
"""

from __future__ import annotations

import math
import re
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from advisor.report.evidence import draw_svg, ratios_plot
from advisor.report.tables import aligned_table
from docs.timm import medians_table
from knowledge.domain.observation import PUBLISHED, words_of
from knowledge.estimate.compared_settings import USUAL_VALUES, setting_change
from knowledge.evidence.accelerator_pairs import AcceleratorPair, load_pairs
from knowledge.evidence.contrasts import Contrast
from knowledge.evidence.published_rows import published_contrasts
from knowledge.evidence.timm import timm_tables
from knowledge.store.engine import open_knowledge_base

DOCS = Path(__file__).parent
PAGE = DOCS / "reference" / "evidence" / "accelerators.md"
PLOTS = DOCS / "explanation" / "plots"
FAMILIES = {"v100": r"v100", "t4": r"tesla t4", "a100": r"a100", "h100": r"h100"}
"""Accelerators of the tables, with what their names contain."""
FEWEST = 3
"""Least number of pairs of a row of a plot."""


def family_of(name: str) -> str:
    """Return the accelerator of the tables that a name is of, or an empty text."""
    return next((family for family, pattern in FAMILIES.items() if re.search(pattern, name, re.IGNORECASE)), "")


def spread(means: Sequence[float]) -> tuple[float, float, float]:
    """Return the median of ratios and the ends of the middle 80 %, from their logarithms."""
    ordered = sorted(means)
    low, high = (ordered[round(share * (len(ordered) - 1))] for share in (0.1, 0.9))
    return math.exp(statistics.median(ordered)), math.exp(low), math.exp(high)


def cells(means: Sequence[float]) -> tuple[str, str, str]:
    """Return the number of pairs, the median ratio and the middle 80 % as cells of a table."""
    median, low, high = spread(means)
    return str(len(means)), f"{median:.2f}", f"{low:.2f} to {high:.2f}"


def grouped(
    contrasts: Iterable[Contrast], key: Callable[[Contrast], tuple[str, ...] | None]
) -> dict[tuple[str, ...], list[float]]:
    """Return the log ratios of contrasts by a key, sorted; contrasts without a key are left out."""
    groups: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for c in contrasts:
        if (name := key(c)) is not None:
            groups[name].append(c.mean)
    return dict(sorted(groups.items()))


def amp_key(c: Contrast) -> tuple[str, ...] | None:
    """Return accelerator, mode, model and comparison of a pair of mixed precision."""
    change, family = setting_change(c), family_of(c.machine.name)
    if change is None or change[0] != "precision" or change[1] not in ("amp", "fp16") or not family:
        return None
    if change[2] not in USUAL_VALUES:
        return None
    return family, words_of(c.label)["mode"], words_of(c.label)["task"], f"{change[1]} over {change[2] or 'fp32'}"


def xla_key(c: Contrast) -> tuple[str, ...] | None:
    """Return mode, model and precision of a pair of XLA."""
    change = setting_change(c)
    if change is None or change[:2] != ("xla", "on"):
        return None
    return words_of(c.label)["mode"], words_of(c.label)["task"], c.side.settings.get("precision", "fp32")


def release_key(c: Contrast) -> tuple[str, ...] | None:
    """Return framework, versions and source of a pair of versions."""
    if c.side.version == c.reference.version:
        return None
    return c.framework, f"{c.reference.version} to {c.side.version}", c.source


def h100_key(c: Contrast) -> tuple[str, ...] | None:
    """Return model and precision of a pair of PyTorch 1.13 and 2.3 on one H100."""
    releases = (c.reference.version[:4], c.side.version[:3])
    if c.framework != "torch" or releases != ("1.13", "2.3") or family_of(c.machine.name) != "h100":
        return None
    if words_of(c.label)["gpus"] != "1":
        return None
    return words_of(c.label)["task"], c.side.settings.get("precision", "fp32")


def settings_table(heads: Sequence[str], groups: dict[tuple[str, ...], list[float]]) -> str:
    """Return groups of ratios as a table, or a sentence if there are none."""
    if not groups:
        return "No such pair was published."
    return aligned_table(
        (*heads, "pairs", "median", "middle 80 %"), ((*name, *cells(means)) for name, means in groups.items())
    )


def mlperf_table(pairs: Iterable[AcceleratorPair], one: str, other: str) -> str:
    """Return the pairs of two accelerators in MLPerf as a table."""
    rows: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for pair in pairs:
        names = (pair.accelerator.split("-")[0], pair.reference.split("-")[0])
        if pair.source.startswith("MLPerf") and set(names) == {one, other}:
            sign = 1 if names[0] == one else -1
            rows[pair.source, pair.task, str(pair.count)].append(sign * pair.mean)
    listed = sorted(rows.items(), key=lambda row: (row[0][0], row[0][1], int(row[0][2])))
    return aligned_table(
        ("round", "benchmark", "accelerators", "pairs", "median", "middle 80 %"), ((*k, *cells(m)) for k, m in listed)
    )


def draw(name: str, title: str, groups: dict[tuple[str, ...], list[float]]) -> None:
    """Draw the groups with enough pairs."""
    rows = [(" ".join(key), *spread(means)) for key, means in groups.items() if len(means) >= FEWEST]
    rows.sort(key=lambda row: (row[0].split()[0], -row[1]))
    (PLOTS / name).write_text(draw_svg(ratios_plot(rows, title=title), rows=len(rows)), encoding="utf-8")


def replace_table(text: str, name: str, content: str) -> str:
    """Return the page with a table between its markers replaced."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, rest = text.split(begin)
    return f"{before}{begin}\n\n{content}\n\n{end}{rest.split(end)[1]}"


def evidence() -> tuple[list[Contrast], list[AcceleratorPair]]:
    """Return the shipped published contrasts and pairs of accelerators."""
    with tempfile.TemporaryDirectory() as folder, open_knowledge_base(str(Path(folder) / "k.sqlite")) as store:
        return list(published_contrasts(store.observations(indicator=PUBLISHED))), list(load_pairs(store))


def page(contrasts: Sequence[Contrast], pairs: Sequence[AcceleratorPair]) -> str:
    """Return the page with its tables."""
    tables = {
        "amp": settings_table(("accelerator", "mode", "model", "comparison"), grouped(contrasts, amp_key)),
        "xla": settings_table(("mode", "model", "precision"), grouped(contrasts, xla_key)),
        "releases": settings_table(("framework", "versions", "source"), grouped(contrasts, release_key)),
        "h100": settings_table(("model", "precision"), grouped(contrasts, h100_key)),
        "timm": "\n".join(medians_table(timm_tables())),
        "b200": mlperf_table(pairs, "b200", "h100"),
    }
    text = PAGE.read_text(encoding="utf-8")
    for name, content in tables.items():
        text = replace_table(text, name, content)
    return text


def main() -> None:
    """Write the tables and draw the plots."""
    contrasts, pairs = evidence()
    losing = [c.mean for c in contrasts if xla_key(c)]
    print(f"XLA: {len(losing)} pairs, {sum(m < -0.03 for m in losing) / len(losing):.0%} lose more than 3 %")
    PAGE.write_text(page(contrasts, pairs), encoding="utf-8")
    amp, xla = grouped(contrasts, amp_key), grouped(contrasts, xla_key)
    draw("gpu-amp.svg", "What mixed precision gains, by accelerator and model (median, middle 80 %)", amp)
    draw("gpu-xla.svg", "What XLA gains in TensorFlow, by model and precision (median, middle 80 %)", xla)


if __name__ == "__main__":
    main()
