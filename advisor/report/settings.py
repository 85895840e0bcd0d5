"""How reports show what run-time settings are worth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from advisor.domain.words import count
from knowledge.estimate.interface import PublishedSource, SettingEffect

_MOST_LINES = 6


def setting_lines(effects: Sequence[SettingEffect]) -> Iterator[str]:
    """Yield a line for each setting, the largest gain first: its predicted effect, and what it rests on."""
    clear = [effect for effect in effects if not effect.low <= 1 <= effect.high]
    for effect in clear[:_MOST_LINES]:
        yield (
            f"{_change(effect)}: {effect.speedup:.2f} times as fast [{effect.low:.2f}, {effect.high:.2f}], "
            f"`{effect.workload}`; {_basis(effect)}"
        )
    if len(clear) > _MOST_LINES:
        yield f"and {count(len(clear) - _MOST_LINES, 'other')} (`--format json` lists them)"
    unclear = [effect for effect in effects if effect not in clear]
    if unclear:
        listed = ", ".join(
            f"{_change(effect)} {effect.speedup:.2f} [{effect.low:.2f}, {effect.high:.2f}]" for effect in unclear
        )
        yield f"no clear effect: {listed}"


def _change(effect: SettingEffect) -> str:
    return f"`{effect.package}`: `{effect.setting}` over `{effect.over.partition('=')[2]}`"


def _basis(effect: SettingEffect) -> str:
    listed = ", ".join(map(_source, effect.sources))
    return listed if effect.same_accelerator else f"{listed}, on similar accelerators"


def _source(source: PublishedSource) -> str:
    first, last = source.first_year, source.last_year
    years = str(last) if first == last else f"{first} to {last}"
    return f"{count(source.pairs, 'pair')} of {source.name}, {years}"
