"""The catalogue of run-time settings."""

from __future__ import annotations

from typing import get_args

import pytest
from packaging.specifiers import SpecifierSet

from knowledge.settings.catalogue import setting_error, shipped_settings
from knowledge.settings.model import ANY, Numerics, Setting
from pi_runners.vocabulary import BACKENDS

SETTINGS = tuple(shipped_settings().values())


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_a_setting_is_complete(setting: Setting) -> None:
    assert {framework.backend for framework in setting.frameworks} <= {*BACKENDS, ANY}
    assert set(setting.devices) <= {"cpu", "cuda"}
    for framework in setting.frameworks:
        assert framework.documentation.startswith("https://")
        values = [choice.value for choice in framework.choices]
        assert len(values) == len(set(values)) > 0
        assert (values == [ANY]) == (setting.least is not None)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_every_value_says_how_it_is_applied_and_what_it_does_to_the_numbers(setting: Setting) -> None:
    for framework in setting.frameworks:
        for choice in framework.choices:
            assert choice.numerics in get_args(Numerics)
            is_default = choice.value == framework.default
            applied = choice.environment or choice.code or choice.processors or choice.hint
            assert applied or is_default, (framework.backend, choice)
            SpecifierSet(choice.versions)
            SpecifierSet(choice.capability)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_excluded_settings_exist(setting: Setting) -> None:
    for excluded in setting.excludes:
        name, _, value = excluded.partition("=")
        assert setting_error(name, value or next(iter(shipped_settings()[name].choices), 1)) is None
