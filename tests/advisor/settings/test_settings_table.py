"""Run-time settings in locks and in files next to locks."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.pylock import Pylock

from advisor.locks.formats.pylock import FORMAT as PYLOCK
from advisor.locks.registry import SETTINGS_FILE
from advisor.locks.setting_value import settings_table
from advisor.locks.settings_table import (
    locked_settings,
    read_settings,
    settings_path,
    settings_text,
    settings_texts,
)
from knowledge.catalogue.settings import ANY, shipped_settings
from knowledge.domain.errors import InputError
from tests.advisor.factories import build_problem, empty_stack

VALUES: dict[str, dict[str, int | str]] = {
    "torch": {"threads": 2, "amp": "bfloat16", "allocator": "tcmalloc"},
    "jax": {"threads": 4, "isa": "avx2"},
}


def every_value() -> list[tuple[str, str, int | str]]:
    """Return every framework, setting and value of the catalogue; an integer is the least one."""
    return [
        (framework.backend, setting.name, (setting.least or 0) if choice.value == ANY else choice.value)
        for setting in shipped_settings().values()
        for framework in setting.frameworks
        for choice in framework.choices
    ]


@given(st.lists(st.sampled_from(every_value()), max_size=8))
def test_settings_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, chosen: list[tuple[str, str, int | str]]
) -> None:
    values: dict[str, dict[str, int | str]] = {}
    for framework, name, value in chosen:
        values.setdefault(framework, {})[name] = value
    path = tmp_path_factory.getbasetemp() / SETTINGS_FILE
    path.write_text(settings_text(locked_settings(values)))

    content = read_settings(path)

    assert content is not None
    assert content.values == values
    assert content.changed == ()
    assert settings_text(content.settings) == path.read_text()


def test_a_setting_says_what_it_does_to_the_numbers_and_what_applies_it() -> None:
    table = settings_table(locked_settings(VALUES))

    assert table["settings-version"] == 1
    assert table["settings"] == [
        {
            "framework": "*",
            "name": "allocator",
            "value": "tcmalloc",
            "numerics": "exact",
            "environment": {"LD_PRELOAD": "libtcmalloc_minimal.so.4"},
        },
        {
            "framework": "jax",
            "name": "isa",
            "value": "avx2",
            "numerics": "reordered",
            "environment": {"XLA_FLAGS": "--xla_cpu_max_isa=AVX2"},
        },
        {"framework": "jax", "name": "threads", "value": 4, "numerics": "reordered", "processors": "count"},
        {
            "framework": "torch",
            "name": "amp",
            "value": "bfloat16",
            "numerics": "reduced",
            "code": ["with torch.autocast(next(model.parameters()).device.type, dtype=torch.bfloat16): ..."],
        },
        {
            "framework": "torch",
            "name": "threads",
            "value": 2,
            "numerics": "reordered",
            "environment": {"MKL_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"},
        },
    ]


def test_the_order_of_the_settings_does_not_change_the_bytes() -> None:
    reverse = {f: dict(reversed(named.items())) for f, named in reversed(VALUES.items())}

    assert settings_text(locked_settings(reverse)) == settings_text(locked_settings(VALUES))


def test_a_pylock_contains_the_settings_and_stays_valid(tmp_path: Path) -> None:
    settings = locked_settings(VALUES)
    path = tmp_path / "pylock.toml"
    without = PYLOCK.write(path, [empty_stack(tmp_path, build_problem())])
    text = PYLOCK.write(path, [empty_stack(tmp_path, build_problem(), settings=settings)])
    path.write_text(text)

    content = read_settings(path)

    Pylock.from_dict(tomllib.loads(text)).validate()
    assert content is not None
    assert content.settings == settings
    assert text.startswith(without)
    assert "tool" not in tomllib.loads(without)


def test_a_lock_for_several_targets_contains_the_settings_that_all_of_them_have(tmp_path: Path) -> None:
    pythons = ("3.11", "3.12")
    stacks = [
        empty_stack(
            tmp_path, build_problem(python=python), settings=locked_settings({"torch": {"threads": 2, "isa": isa}})
        )
        for python, isa in zip(pythons, ("avx2", "avx512"), strict=True)
    ]

    table = tomllib.loads(PYLOCK.write(Path("pylock.toml"), stacks))["tool"]["advisor"]

    assert [setting["name"] for setting in table["settings"]] == ["threads"]


@pytest.mark.parametrize(
    ("lock", "file"),
    [
        ("pylock.toml", "pylock.toml"),
        ("pylock.gpu.toml", "pylock.gpu.toml"),
        ("requirements.txt", "advisor-settings.toml"),
        ("Pipfile.lock", "advisor-settings.toml"),
        ("uv.lock", "advisor-settings.toml"),
        ("gpu.txt", "advisor-settings.gpu.toml"),
        ("service.cdx.json", "advisor-settings.service.toml"),
        ("advisor-settings.gpu.toml", "advisor-settings.gpu.toml"),
    ],
)
def test_each_lock_has_its_file(lock: str, file: str) -> None:
    assert settings_path(Path("folder", lock)) == Path("folder", file)


def test_a_file_of_an_earlier_advice_is_emptied(tmp_path: Path) -> None:
    lock, settings = tmp_path / "requirements.txt", tmp_path / SETTINGS_FILE

    assert settings_texts([lock], ()) == {}
    settings.write_text(settings_text(locked_settings(VALUES)))
    assert settings_texts([lock, tmp_path / "pylock.toml"], ()) == {settings: settings_text(())}


def test_a_lock_without_settings_has_none(tmp_path: Path) -> None:
    for name in ("pylock.toml", "requirements.txt"):
        (tmp_path / name).write_text("")

        assert read_settings(tmp_path / name) is None


def test_a_file_cannot_set_other_variables(tmp_path: Path) -> None:
    path = tmp_path / SETTINGS_FILE
    text = settings_text(locked_settings({"torch": {"threads": 2}}))
    path.write_text(text.replace("MKL_NUM_THREADS", "PYTHONSTARTUP"))

    content = read_settings(path)

    assert content is not None
    assert content.settings == locked_settings({"torch": {"threads": 2}})
    assert content.changed == ("threads=2",)


ENTRY = 'framework = "torch"\nname = "threads"\nvalue = 2\nnumerics = "reordered"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("settings-version = 1\n[[settings]\n", "is not valid TOML"),
        ("\udcff", "is not valid TOML"),
        ("settings-version = 1\nsettings = " + "[" * 100_000, "is not valid TOML"),
        ("settings = []\n", "field required, in `settings-version`"),
        ("settings-version = 2\nsettings = []\n", "has settings of version 2, and this program reads version 1"),
        ("settings-version = true\nsettings = []\n", "in `settings-version`"),
        ("settings-version = 1\nsettings = 3\n", "in `settings`"),
        ("settings-version = 1\nsettings = []\nother = 1\n", "in `other`"),
        (f"settings-version = 1\n[[settings]]\n{ENTRY}other = 1\n", "in `settings.0.other`"),
        (f"settings-version = 1\n[[settings]]\n{ENTRY.replace('2', '2.5')}", "in `settings.0.value"),
        (f"settings-version = 1\n[[settings]]\n{ENTRY.replace('2', '0')}", "must be an integer of at least 1"),
        (f"settings-version = 1\n[[settings]]\n{ENTRY.replace('torch', 'brain')}", "there is no framework `brain`"),
        (f"settings-version = 1\n[[settings]]\n{ENTRY.replace('threads', 'speed')}", "there is no setting `speed`"),
        (f"settings-version = 1\n[[settings]]\n{ENTRY}[[settings]]\n{ENTRY}", "the setting `threads` of `torch` twice"),
        (f"settings-version = 1\n[[settings]]\n{ENTRY}" + 'code = ["\n"]', "is not valid TOML"),
    ],
)
def test_a_damaged_file_is_one_sentence(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / SETTINGS_FILE
    path.write_bytes(text.encode("utf-8", "surrogateescape"))

    with pytest.raises(InputError) as error:
        read_settings(path)

    assert message in error.value.message
    assert str(path) in error.value.message
    assert "\n" not in error.value.message


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "pylock.toml"
    path.write_bytes(b"[[tool.advisor.settings]]\n" + content)

    with pytest.raises(InputError):
        read_settings(path)


def test_a_lock_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    for name in ("pylock.toml", "requirements.txt", SETTINGS_FILE):
        with pytest.raises(InputError, match="does not exist"):
            read_settings(tmp_path / name)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"torch": {"xla": "on"}}, "`torch` has no setting `xla`"),
        ({"torch": {"compile": "yes"}}, "`compile` must be one of"),
        ({"torch": {"allocator": "tcmalloc"}, "jax": {"allocator": "jemalloc"}}, "contradict each other"),
    ],
)
def test_settings_that_the_catalogue_does_not_have_are_refused(
    values: dict[str, dict[str, int | str]], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        locked_settings(values)
