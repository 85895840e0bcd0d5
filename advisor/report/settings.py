"""How reports show what run-time settings are worth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from advisor.domain.words import count
from knowledge.estimate.setting_effect import SettingEffect, SettingSource

_MOST_KINDS = 3


def setting_lines(effects: Sequence[SettingEffect]) -> Iterator[str]:
    """Yield a line for each setting with a clear effect: how large it is for which workloads, and what it rests on.

    Settings without a clear effect are named in one line.
    """
    groups: dict[str, list[SettingEffect]] = {}
    for effect in effects:
        groups.setdefault(
            f"`{effect.measured_as}` over `{effect.over.partition('=')[2]}` in {effect.package}", []
        ).append(effect)
    unclear = []
    for change, listed in groups.items():
        clear = sorted((e for e in listed if not e.low <= 1 <= e.high), key=lambda e: -e.speedup)
        if not clear:
            unclear.append(change)
            continue
        gains = ", ".join(
            f"{e.speedup:.2f} [{e.low:.2f}, {e.high:.2f}] for `{e.workload}`" for e in clear[:_MOST_KINDS]
        )
        others = len(clear) - len(clear[:_MOST_KINDS])
        more = f" and {count(others, 'other kind')}" if others else ""
        doubtful = len(listed) - len(clear)
        more += f", no clear effect for {count(doubtful, 'other kind')}" if doubtful else ""
        yield f"{change}, times as fast: {gains}{more}; {_basis(clear[0])}"
    if unclear:
        yield f"no clear effect: {', '.join(unclear)}"


def _basis(effect: SettingEffect) -> str:
    """Return what the effect rests on: pairs at the tasks of its workload on such an accelerator, or what else."""
    where = [
        *(() if effect.same_tasks else ("of other tasks",)),
        *(() if effect.same_accelerator else ("on similar accelerators",)),
    ]
    return " ".join([", ".join(map(_source, effect.sources)), *where])


def _source(source: SettingSource) -> str:
    age = f" (published until {source.last_year})" if source.last_year else ""
    return f"{count(source.pairs, 'pair')} {'of ' if age else ''}{source.name}{age}"
