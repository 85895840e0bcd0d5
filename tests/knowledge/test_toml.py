"""TOML with keys that would fill the memory is refused before it is parsed."""

from __future__ import annotations

import tomllib

import pytest

from knowledge.domain.documents import parse_toml

LONG = ".".join(["a"] * 101)


@pytest.mark.parametrize(
    "text",
    [
        f"{LONG} = 1",
        f"\n\n[{LONG}]\n",
        f"b = [{{ {LONG} = 1 }}]",
        "a = 1\nb = { " + " . ".join(["'a.b'"] * 101) + " = 1 }",
        f'b = ["""a"""", {{ {LONG} = "" }}]',
        # Text that only resembles a string or a comment does not hide a key.
        f'b = ["""\n\' """, {{ {LONG} = "\'" }}]',
        f'b = "\\"#" # it\'s\n{LONG} = "\'"',
        f"b = '\\'\n{LONG} = '#'",
    ],
)
def test_a_key_of_many_parts_is_refused_with_its_line(text: str) -> None:
    line = text[: text.find("a.a" if "a.a" in text else "'a.b'")].count("\n") + 1

    with pytest.raises(tomllib.TOMLDecodeError, match=rf"more than 100 parts \(at line {line}"):
        parse_toml(text)


@pytest.mark.parametrize(
    "text",
    [
        f'a = "{LONG}" # {LONG}',
        f"a = '{LONG}'",
        f'a = """\n{LONG}\n\\"""{LONG}"""',
        f"a = '''\n{LONG}\n'''",
        "a = [" + "1.5, " * 1000 + "]",
        ".".join(["a"] * 100) + " = 1",
        "\n".join(f"a.b{n}.c = 1" for n in range(200)),
    ],
)
def test_dots_outside_keys_do_not_count(text: str) -> None:
    assert parse_toml(text) == tomllib.loads(text)


@pytest.mark.parametrize("part", ['"""\\', "'", '"', "'''", "a", "a.", ".", "\\", "#", '"\\', '"""', " ", "a ", "\n"])
def test_the_search_for_long_keys_terminates_for_any_text(part: str) -> None:
    # Each of these would take hours if the time were quadratic in the length.
    with pytest.raises(ValueError):
        parse_toml("]" + part * 500_000)


@pytest.mark.parametrize("digits", ["0x" + "f" * 5000, "0b" + "1_" * 5000 + "1", "9" * 5000])
def test_an_integer_that_cannot_be_printed_is_refused(digits: str) -> None:
    with pytest.raises(ValueError, match="digits"):
        parse_toml(f"a = 1\nb = {digits}")
