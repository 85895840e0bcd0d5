"""Settings of a target of which the estimator knows a part."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from packaging.version import Version

from advisor.resolve.score.setting_choice import TargetSettings
from knowledge.catalogue.settings import SettingChoice
from knowledge.estimate.gains import SettingValue
from tests.advisor.factories import MACHINE


class KnownTo(TargetSettings):
    """Settings that some versions of each package know, whatever the catalogue says."""

    def __init__(self, table: Mapping[tuple[str, SettingValue], Collection[int]]) -> None:
        super().__init__(hardware=MACHINE)
        object.__setattr__(self, "table", table)

    def choice(self, framework: str, value: SettingValue, version: Version) -> SettingChoice | None:
        table: Mapping[tuple[str, SettingValue], Collection[int]] = self.table  # type: ignore[attr-defined]
        is_known = int(str(version)) in table.get((framework, value), ())
        return SettingChoice(value=value[1], numerics="reordered") if is_known else None


AMP, ALLOCATOR = ("amp", "bfloat16"), ("allocator", "tcmalloc")
