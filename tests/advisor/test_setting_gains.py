"""Gains of settings: those of several kinds of workload, and their records."""

from __future__ import annotations

import pytest

from knowledge.estimate.interface import PredictedGain
from knowledge.estimate.setting_gains import PairGain, SettingGains, gains_from, gains_record, least_gains
from tests.advisor.test_setting_choice import VALUES, V, gains_of


def test_gains_survive_the_cache() -> None:
    gains = gains_of({("amp", "bfloat16"): 7}, {(("amp", "bfloat16"), ("compile", "on")): 3})

    assert gains_from(gains_record([gains])) == (gains,)


def test_without_a_workload_a_setting_gains_what_it_gains_least() -> None:
    one = gains_of({("amp", "bfloat16"): 70, ("compile", "on"): 10})
    other = gains_of({("amp", "bfloat16"): 20})

    least = least_gains([one, other])

    assert list(least.alone[V]) == [("amp", "bfloat16")]
    assert least.alone[V]["amp", "bfloat16"].mean == pytest.approx(20 * 0.0101)


def test_without_a_workload_a_pair_gains_what_it_gains_least() -> None:
    """The kinds of workload that limit both settings together and each of them may differ."""
    pairs = [
        PairGain(**{name: PredictedGain(mean=mean, variance=0.0) for name, mean in means.items()})
        for means in ({"joint": 0.16, "first": 0.1, "second": 0.06}, {"joint": 0.2, "first": 0.3, "second": -0.1})
    ]
    every = [
        SettingGains(framework="torch", alone={V: {}}, together={V: {(VALUES[0], VALUES[1]): pair}}) for pair in pairs
    ]

    (pair,) = least_gains(every).together[V].values()

    assert (pair.joint.mean, pair.first.mean, pair.second.mean) == (0.16, 0.1, -0.1)
