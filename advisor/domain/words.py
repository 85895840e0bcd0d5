"""Phrases that messages and reports share."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from knowledge.domain.ratio import Ratio, WithRatio

if TYPE_CHECKING:
    # Every command imports this module.
    from knowledge.catalogue.rules import RuntimeRule
    from knowledge.estimate.interface import Prediction

_INDICATOR = re.compile(r"(?P<name>\w+)@\d+\[(?P<parameters>[^\]]*)\](?: (?P<dtype>\S+))?")
_SUBJECTS = ("model", "task", "benchmark", "block")
"""Parameters of indicators that say what runs."""
_SIZES = ("batch", "length", "size", "gpus")
"""Further parameters that are named with a whole model."""
_ACRONYMS = {"bert": "BERT", "gpt2": "GPT-2", "vit": "ViT", "resnet50": "ResNet-50", "unet": "U-Net", "dlrm": "DLRM"}
RatioForm = Literal["short", "exact", "percent", "time"]
_USUAL_TYPES = ("", "float32", "as-published", "as-submitted")


class WithInterval(Protocol):
    """A ratio of speeds, or of times, with its interval."""

    @property
    def low(self) -> float:
        """Lower end of the interval."""

    @property
    def high(self) -> float:
        """Upper end of the interval."""


def visible(text: str) -> str:
    """Return a text with control characters escaped: text of servers and files must not control the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 package``, ``2 packages``.

    Args:
        number: The number.
        noun: The noun in the singular, whose plural ends in ``s``.
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def size_text(size: int) -> str:
    """Return a number of bytes with a decimal unit, as pip prints it: ``312 MB``, ``1.1 GB``."""
    amount, units = float(size), ["bytes", "kB", "MB", "GB", "TB"]
    while round(amount) >= 1000 and len(units) > 1:
        amount /= 1000
        units.pop(0)
    # Below ten, the first decimal place matters.
    digits = 1 if units[0] != "bytes" and round(amount, 1) < 10 else 0
    return f"{amount:.{digits}f} {units[0]}"


def size_texts(size: int, other: int) -> tuple[str, str]:
    """Return two different numbers of bytes as different texts: exactly, if they are the same when rounded."""
    texts = size_text(size), size_text(other)
    return (f"{size:,} bytes", f"{other:,} bytes") if size != other and texts[0] == texts[1] else texts


def memory_text(size: int | None) -> str:
    """Return the memory of a machine in GiB, with four digits; empty if it is not known."""
    return "" if size is None else f"{float(f'{size / 2**30:.4g}'):g} GiB"


def rate_text(rate: float | None, unit: str) -> str:
    """Return a rate with a decimal prefix, such as ``1.56 TB/s``; empty if it is not known."""
    if rate is None:
        return ""
    prefix, factor = next(((p, f) for p, f in (("P", 1e15), ("T", 1e12), ("G", 1e9)) if rate >= f), ("M", 1e6))
    return f"{rate / factor:.4g} {prefix}{unit}"


def duration_text(seconds: float) -> str:
    """Return a duration with three digits: ``1.23 s``, ``45.6 us``."""
    units = ((1, "s"), (1e3, "ms"), (1e6, "us"))
    factor, unit = next(((f, u) for f, u in units if seconds * f >= 1), (1e9, "ns"))
    return f"{seconds * factor:.3g} {unit}"


def energy_text(joules: float) -> str:
    """Return an energy with three digits: ``1.23 J``, ``45.6 uJ``."""
    units = ((1e-3, "kJ"), (1, "J"), (1e3, "mJ"))
    factor, unit = next(((f, u) for f, u in units if joules * f >= 1), (1e6, "uJ"))
    return f"{joules * factor:.3g} {unit}"


def flops_text(flops: float) -> str:
    """Return a number of floating-point operations, to one digit: ``about 20 GFLOP``."""
    rounded = float(f"{flops:.1g}")
    unit, name = (1e12, "TFLOP") if rounded >= 1e12 else (1e9, "GFLOP") if rounded >= 1e9 else (1e6, "MFLOP")
    return f"about {rounded / unit:g} {name}"


def quoted(names: Collection[str], most: int = sys.maxsize) -> str:
    """Return names in backticks, separated by commas; of more than the most, only the first ones and the number."""
    return listed([f"`{name}`" for name in names], most)


def listed(texts: Sequence[str], most: int) -> str:
    """Return texts, separated by commas; of more than the most, only the first ones and the number of the others."""
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


def in_words(words: Sequence[str], conjunction: str) -> str:
    """Return words as a list in a sentence: ``text, json or html``.

    Args:
        words: At least two words.
        conjunction: The word before the last one.
    """
    return f"{', '.join(words[:-1])} {conjunction} {words[-1]}"


def unmeasured_text(names: Collection[str]) -> str:
    """Return that packages have no measurement on comparable hardware, or only such as are too noisy."""
    return f"{quoted(names)} {'has' if len(names) == 1 else 'have'} no usable measurement on comparable hardware"


def no_speedup_text(prediction: Prediction) -> str:
    """Return why there is no speed-up to report; empty if there is one."""
    if prediction.is_known:
        return ""
    if prediction.obstacle:
        return prediction.obstacle
    if prediction.unmeasured:
        return unmeasured_text(prediction.unmeasured)
    if prediction.newest_measured:
        listed = ", ".join(f"`{name}` up to {version}" for name, version in prediction.newest_measured)
        return f"on such hardware, only {listed} was compared"
    if prediction.not_compared:
        return f"the two versions of {quoted(prediction.not_compared)} were not compared on such hardware"
    return "no measured package differs"


def workload_text(prediction: Prediction) -> str:
    """Return which workload a prediction is for: the selected one, or the kind for which the stack gains least.

    If no measured package differs, the prediction is the same for all kinds.
    """
    if not prediction.workload:
        return "no workload selected"
    if len(prediction.kinds) < 2:
        return f"workload `{prediction.workload}`{', the only measured kind' if prediction.kinds else ''}"
    number = len(prediction.kinds)
    if not (prediction.is_known and prediction.changes):
        return f"{number} kinds of workloads"
    return f"workload `{prediction.workload}`, the least of {number} kinds"


def range_text(prediction: Prediction) -> str:
    """Return the range of the speed-ups over the kinds or the sizes of programs; empty if both are known."""
    if len(prediction.kinds) > 1:
        ratios = sorted(kind.speedup for kind in prediction.kinds)
        least, most = ratio_text(ratios[0], "exact"), ratio_text(ratios[-1], "exact")
        return f"{least}x to {most}x, depending on the workload; select it with `--workload`"
    if prediction.sizes:
        first, last = prediction.sizes[0], prediction.sizes[-1]
        if ratio_text(first.speedup) != ratio_text(last.speedup):
            least, most = ratio_text(first.speedup, "exact"), ratio_text(last.speedup, "exact")
            return f"{least}x for {first.workload} to {most}x for {last.workload} sizes"
    return ""


def operations_text(prediction: Prediction) -> str:
    """Return that a prediction comes from single operations, to be appended to it; empty if it does not."""
    names = [change.package for change in prediction.changes if change.package in prediction.operations_only]
    return f"; from single operations only: no whole model was measured with {quoted(names)}" if names else ""


def ratio_text(ratio: float, form: RatioForm = "short") -> str:
    """Return a ratio of speeds, or an end of its interval, as every text and table of the program rounds it.

    Args:
        ratio: The ratio; 1 is no difference.
        form: ``short`` in sentences, ``exact`` in tables and plots, ``percent`` for the gain without its unit,
            ``time`` for a ratio of times, such as that of a documented slow-down.
    """
    match form:
        case "short":
            return f"{ratio:.2f}"
        case "exact":
            return f"{ratio:.3f}"
        case "percent":
            return f"{(ratio - 1) * 100:z.1f}"
        case "time":
            return f"{ratio:.3g}"


def interval_text(ratio: WithInterval, form: RatioForm = "short") -> str:
    """Return the interval of a ratio: ``[1.08, 1.28]``."""
    return f"[{ratio_text(ratio.low, form)}, {ratio_text(ratio.high, form)}]"


def ends_text(ratio: WithInterval, form: RatioForm = "short") -> str:
    """Return the interval of a ratio for a cell of a table: ``1.08 to 1.28``."""
    return f"{ratio_text(ratio.low, form)} to {ratio_text(ratio.high, form)}"


def speed_text(ratio: Ratio | WithRatio, other: str = "") -> str:
    """Return a ratio of speeds in words, with its interval.

    Args:
        ratio: The ratio.
        other: What it is compared with; empty if the reader knows.
    """
    own = ratio if isinstance(ratio, Ratio) else ratio.ratio
    if own.is_significant():
        return f"{ratio_text(ratio.speedup)} times as fast{f' as {other}' if other else ''} {interval_text(ratio)}"
    return f"no clear difference{f' from {other}' if other else ''}: {ratio_text(ratio.speedup)} {interval_text(ratio)}"


def slowdown_text(ratio: Ratio, other: str = "") -> str:
    """Return a ratio of times in words: ``8.1 % slower [7.6, 8.5]``, or ``7.75 times as slow [7.30, 8.23]``."""
    if ratio.speedup >= 2:
        return f"{ratio_text(ratio.speedup)} times as slow{f' as {other}' if other else ''} {interval_text(ratio)}"
    than = f" than {other}" if other else ""
    if ratio.speedup < 1:
        percent, low, high = (ratio_text(2 - value, "percent") for value in (ratio.speedup, ratio.high, ratio.low))
        return f"{percent} % faster{than} [{low}, {high}]"
    return f"{ratio_text(ratio.speedup, 'percent')} % slower{than} {interval_text(ratio, 'percent')}"


def unknown_driver_text(runtime: RuntimeRule) -> str:
    """Return which driver a CUDA runtime needs, for a target whose driver is not known."""
    return (
        f"CUDA {runtime.cuda} needs driver {runtime.driver} or newer, and the driver of the target is not known; "
        "`driver` in a hardware profile states it"
    )


def indicator_text(label: str) -> str:
    """Return the label of an indicator in words: ``BERT base training, batch 1``; any other text unchanged."""
    match = _INDICATOR.match(label)
    if match is None:
        return label
    if match["name"] == "benchmark" and "identity=" in match["parameters"]:
        return "the project's own benchmark"
    parameters = dict(part.split("=", 1) for part in match["parameters"].split(",") if "=" in part)
    subject = next((parameters[name] for name in _SUBJECTS if name in parameters), "")
    words = " ".join(_ACRONYMS.get(word, word) for word in (subject or match["name"]).split("_"))
    mode = parameters.pop("mode", "" if not subject else parameters.get("scenario", ""))
    rest = [(n, v) for n, v in parameters.items() if (n in _SIZES if subject else True) and (n, v) != ("gpus", "1")]
    dtype = match["dtype"] or ""
    parts = [" ".join(filter(None, (words, mode))), *(f"{name} {value}" for name, value in rest)]
    return ", ".join([*parts, *([] if dtype in _USUAL_TYPES else [dtype])])


_SIZE = re.compile(r"\s*(?P<number>\d{1,12}(?:\.\d{1,12})?)\s*(?P<unit>kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB)\s*")
_DECIMAL = {"kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BINARY = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def parse_size(text: str) -> int | None:
    """Return the number of bytes of a size such as ``200 MB`` or ``1.5GiB``; ``None`` if it is not a size."""
    match = _SIZE.fullmatch(text)
    return round(float(match["number"]) * (_DECIMAL | _BINARY)[match["unit"]]) if match else None
