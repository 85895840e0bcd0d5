"""The catalogue of run-time settings."""

from __future__ import annotations

import importlib.resources
import tomllib
from typing import get_args

import pytest
from packaging.specifiers import SpecifierSet

from knowledge.catalogue.settings import ANY, Numerics, Setting, setting_error, shipped_settings
from knowledge.domain.frameworks import frameworks

SETTINGS = tuple(shipped_settings().values())


def test_each_setting_is_in_one_file_and_a_framework_has_no_other() -> None:
    folder = importlib.resources.files("knowledge.catalogue") / "data" / "settings"
    names = [name for file in folder.iterdir() for name in tomllib.loads(file.read_text(encoding="utf-8"))]

    assert sorted(names) == sorted(shipped_settings())
    for framework in frameworks().values():
        assert framework.document("settings").keys() <= shipped_settings().keys()


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_a_setting_is_complete(setting: Setting) -> None:
    assert {framework.backend for framework in setting.frameworks} <= {*frameworks(), ANY}
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
            assert set(choice.devices) <= set(setting.devices)
            assert set(choice.systems) <= {"linux", "darwin", "windows"}
            assert bool(choice.library) == any("{library}" in text for text in choice.environment.values())


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_a_default_that_is_a_value_changes_nothing(setting: Setting) -> None:
    for framework in setting.frameworks:
        default = next((choice for choice in framework.choices if choice.value == framework.default), None)
        # JAX's TF32 is the default of GPUs that have it only.
        if default is not None and (setting.name, framework.backend) != ("tf32", "jax"):
            assert default.numerics == "exact", framework.backend


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_excluded_settings_exist(setting: Setting) -> None:
    choices = [choice for framework in setting.frameworks for choice in framework.choices]
    for excluded in (*setting.excludes, *(e for choice in choices for e in choice.excludes)):
        name, _, value = excluded.partition("=")
        assert setting_error(name, value or next(iter(shipped_settings()[name].choices), 1)) is None
