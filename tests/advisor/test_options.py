"""Values of command-line options are read the same way by every command."""

from __future__ import annotations

import pytest

from advisor.cli.campaign import engine_options
from advisor.cli.options import read_pairs
from knowledge.domain.errors import InputError


def test_pairs_are_read_with_their_order_and_later_equals_signs() -> None:
    pairs = read_pairs([" b = 2", "a=x=y"], "--settings")

    assert pairs == [("b", "2"), ("a", "x=y")]


@pytest.mark.parametrize("text", ["m", "=1", "m=", " = "])
def test_a_pair_without_name_or_value_is_an_error_that_shows_how_to_write_it(text: str) -> None:
    with pytest.raises(InputError) as error:
        read_pairs(["n=1", text], "--parameters")

    assert error.value.message == f"`--parameters {text}` has no value"
    assert error.value.hint == "write it as `--parameters name=value`"


def test_an_executor_option_may_be_empty() -> None:
    assert engine_options(["partition=", "gres=gpu:1"]) == {"partition": "", "gres": "gpu:1"}
    assert engine_options(None) == {}
    with pytest.raises(InputError, match="`--engine gres` has no value"):
        engine_options(["gres"])
