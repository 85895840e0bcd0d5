"""Predicted times of machines at a workload, and the efficiency of several accelerators."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from knowledge.domain.observation import Observation
from knowledge.estimate.machine_times import MachineSize, PublishedTimes
from knowledge.estimate.model_cache import (
    shipped_level_variances,
    shipped_ratio_variances,
    shipped_scaling_variances,
)
from knowledge.estimate.scaling_model import EFFECTS, ROW, Enlargement, ScalingModel, fit_scaling
from knowledge.estimate.time_levels import ACCELERATOR, CONFIGURATION, DRIFT, LEVELS, PUBLISHER, fit_levels
from knowledge.evidence.accelerator_pairs import accelerator_pairs
from knowledge.evidence.accelerator_rows import DEFAULT, MLPERF, TO_QUALITY, accelerator_rows, load_rows
from knowledge.evidence.scaling_pairs import scaling_pairs
from knowledge.store.engine import open_knowledge_base
from tests.knowledge.published_rows import row

GPUS = {"V100-SXM2-16GB": 1.0, "Tesla T4": 0.4, "A100-SXM4-40GB": 2.0, "RTX 3090": 1.5}
LOSS = 0.05
"""Loss of log efficiency for each doubling."""


def together(observation: Observation, count: int) -> Observation:
    """Return a row of several accelerators, which lose a part of their efficiency."""
    gpus = tuple(replace(gpu, count=count) for gpu in observation.hardware.accelerators)
    seconds = observation.samples[0] / count * math.exp(LOSS * math.log2(count))
    parameters = {**observation.indicator.parameters, "gpus": count}
    return replace(
        observation,
        hardware=replace(observation.hardware, accelerators=gpus),
        indicator=replace(observation.indicator, parameters=parameters),
        samples=(seconds,),
    )


def world(levels: Sequence[float] = (0.01, 0.011, 0.012)) -> list[Observation]:
    """Return rows of accelerators, alone and together, in configurations that differ in the version."""
    single = [
        row(level / speed, gpu=gpu, version=f"1.{number + 10}.0")
        for number, level in enumerate(levels)
        for gpu, speed in GPUS.items()
    ]
    return [*single, *(together(one, count) for one in single for count in (2, 4, 8))]


def published(observations: Iterable[Observation]) -> PublishedTimes:
    """Return what rows say."""
    rows = accelerator_rows(observations)
    return PublishedTimes(
        rows=rows,
        pairs=accelerator_pairs(rows),
        scaling=ScalingModel(scaling_pairs(rows), shipped_scaling_variances()),
        variances=shipped_ratio_variances(),
        levels=shipped_level_variances(),
    )


def test_published_times_are_predicted() -> None:
    machines = [MachineSize(accelerator="v100-sxm2-16gb"), MachineSize(accelerator="a100-sxm4-40gb", count=8)]

    times = published(world()).predict(machines, tasks=[("resnet50", "training")], regime=DEFAULT)

    assert times is not None
    assert times.level is not None
    slow, fast = times.item(0), times.item(1)
    assert slow.low < 0.011 < slow.high
    assert fast.speedup == pytest.approx(0.011 / 2 / 8 * math.exp(3 * LOSS), rel=0.15)
    assert fast.low < 0.011 / 2 / 8 * math.exp(3 * LOSS) < fast.high


def test_the_ratio_of_machines_is_less_uncertain_than_their_times() -> None:
    machines = [MachineSize(accelerator="v100-sxm2-16gb"), MachineSize(accelerator="a100-sxm4-40gb")]

    times = published(world((0.005, 0.01, 0.02))).predict(machines, tasks=[("resnet50", "training")], regime=DEFAULT)

    assert times is not None
    ratio = times.speedup(1, 0)
    assert ratio.low < 2.0 < ratio.high
    assert ratio.deviation < times.item(0).deviation
    assert times.speedup(0, 0).deviation == pytest.approx(0.0, abs=1e-6)


def test_sources_that_count_different_items_give_no_time() -> None:
    observations = world((0.0001, 0.01, 1.0))

    times = published(observations).predict(
        [MachineSize(accelerator="a100-sxm4-40gb")], tasks=[("resnet50", "training")], regime=DEFAULT
    )

    assert times is not None
    assert times.level is None
    assert 0.3 < times.item(0).speedup < 3.0


def test_an_accelerator_that_nobody_published_is_less_certain() -> None:
    machines = [MachineSize(accelerator="a100-sxm4-40gb"), MachineSize(accelerator="h100-sxm5-80gb")]

    times = published(world()).predict(machines, tasks=[("resnet50", "training")], regime=DEFAULT)

    assert times is not None
    assert times.direct[1] == 0
    assert times.item(1).deviation > times.item(0).deviation
    assert times.speedup(1, 0).speedup > 1.0


def test_nothing_is_predicted_for_a_task_that_nobody_compared() -> None:
    times = published(world()).predict(
        [MachineSize(accelerator="a100-sxm4-40gb")], tasks=[("gnmt", "training")], regime=DEFAULT
    )

    assert times is None


def test_pairs_of_numbers_have_the_batch_of_one_accelerator() -> None:
    one = row(0.01)
    other = replace(one, indicator=replace(one.indicator, parameters={**one.indicator.parameters, "batch": 512}))

    pairs = scaling_pairs(accelerator_rows([one, together(one, 8), together(other, 4)]))

    (pair,) = pairs
    assert (pair.few, pair.many) == (1, 8)
    assert pair.mean == pytest.approx(-3 * LOSS)


def test_a_table_that_mixed_up_batches_is_left_out() -> None:
    one = row(0.01)
    wrong = replace(together(one, 8), samples=(0.01 / 8 * 10,))

    assert scaling_pairs(accelerator_rows([one, wrong])) == ()


def test_times_of_several_accelerators_say_how_long_one_takes() -> None:
    observations = [one for one in world() if one.indicator.parameters.get("gpus") == 8]

    times = published(observations).predict(
        [MachineSize(accelerator="a100-sxm4-40gb")], tasks=[("resnet50", "training")], regime=DEFAULT
    )

    assert times is not None
    assert times.level is not None
    assert times.level.count == 8
    # Nothing says how much eight lose here: only other tasks do.
    assert times.item(0).low < 0.011 / 2 < times.item(0).high


def trained() -> PublishedTimes:
    """Return what rows of trainings to a quality say: a submitter for each version."""
    rows = [
        replace(one, unit=TO_QUALITY, regime=MLPERF, submitter=one.configuration, seconds=one.seconds * 1e6, batch="")
        for one in accelerator_rows(world())
        if one.count > 1
    ]
    times = published([])
    return replace(
        times,
        rows=rows,
        pairs=accelerator_pairs(rows),
        scaling=ScalingModel(scaling_pairs(rows), shipped_scaling_variances()),
    )


def test_the_time_of_a_training_to_a_quality_is_predicted() -> None:
    machines = [MachineSize(accelerator="a100-sxm4-40gb", count=8)]

    times = trained().predict(machines, tasks=[("resnet50", "training")], regime=MLPERF)

    assert times is not None
    assert times.level is not None
    assert times.level.unit == TO_QUALITY
    assert times.item(0).low < 0.011e6 / 2 / 8 * math.exp(3 * LOSS) < times.item(0).high


def test_variances_of_levels_are_fitted() -> None:
    variances = fit_levels(trained().quality_priors())

    assert set(variances) == {*LEVELS, DRIFT}
    # All are of one year.
    assert variances[DRIFT] == 0
    # The submitters differ by 8 % at each accelerator alike.
    assert 0.03 < math.sqrt(variances[PUBLISHER] + variances[CONFIGURATION]) < 0.2
    assert math.sqrt(variances[ACCELERATOR]) < 0.1


def test_software_becomes_faster_from_year_to_year() -> None:
    times, step = trained(), math.log(0.8)
    first = min(row.year for row in times.rows)
    later = [
        replace(row, source=f"round {age}", year=first + age, seconds=row.seconds * math.exp(step * age))
        for row in times.rows
        for age in range(4)
    ]
    grown = replace(times, rows=later)
    fitted = fit_levels(grown.quality_priors())
    old_only = [row for row in later if row.year == first or row.accelerator != "a100-sxm4-40gb"]

    predicted = replace(grown, rows=old_only, levels=fitted).times(
        [MachineSize(accelerator="a100-sxm4-40gb", count=8)], tasks=[("resnet50", "training")], regime=MLPERF
    )

    old = [row.seconds for row in times.rows if (row.accelerator, row.count) == ("a100-sxm4-40gb", 8)]
    truth = statistics.median(old) * math.exp(3 * step)
    assert fitted[DRIFT] == pytest.approx(step, abs=0.03)
    assert predicted.item(0).low < truth < predicted.item(0).high
    # Its own time is of the first year.
    assert predicted.item(0).speedup == pytest.approx(truth, rel=0.15)


@pytest.mark.shipped
def test_a_round_of_mlperf_is_predicted_from_the_others() -> None:
    with open_knowledge_base("sqlite://") as store:
        rows = load_rows(store)
    hidden = [row for row in rows if (row.source, row.task) == ("MLPerf Training v4.1", "llama2_70b_lora")]
    remaining = [row for row in rows if row.source != "MLPerf Training v4.1"]
    times = replace(
        published([]),
        rows=remaining,
        pairs=accelerator_pairs(remaining),
        scaling=ScalingModel(scaling_pairs(remaining), shipped_scaling_variances()),
    ).predict(
        [MachineSize(accelerator=row.accelerator, count=row.count) for row in hidden],
        tasks=[("llama2_70b_lora", "training")],
        regime=MLPERF,
    )

    assert times is not None
    items = [times.item(place) for place in range(len(hidden))]
    inside = [item.low < row.seconds < item.high for item, row in zip(items, hidden, strict=True)]
    errors = [math.log(row.seconds) - item.mean for item, row in zip(items, hidden, strict=True)]
    assert len(hidden) > 10
    assert sum(inside) / len(inside) > 0.85
    assert statistics.median(map(abs, errors)) < 0.15


def test_short_trainings_lose_more() -> None:
    (pair, *_) = scaling_pairs(accelerator_rows(world()))
    pairs = [
        replace(pair, is_to_quality=True, few=8, many=64, seconds=seconds, mean=mean, configuration=f"{number}")
        for number, (seconds, mean) in enumerate([(600.0, -0.6), (90000.0, -0.05)] * 6)
    ]
    model = ScalingModel(pairs, shipped_scaling_variances())
    target = Enlargement(
        task=pair.task, mode=pair.mode, is_to_quality=True, accelerator=pair.accelerator, few=8, many=64, seconds=600.0
    )

    (short, long), _ = model.predict([target, replace(target, seconds=90000.0)])

    assert short < long - 0.2


def test_variances_of_scaling_are_fitted() -> None:
    variances = fit_scaling(scaling_pairs(accelerator_rows(world())))
    model = ScalingModel(scaling_pairs(accelerator_rows(world())), variances)

    (mean,), _ = model.predict(
        [Enlargement(task="resnet50", mode="training", is_to_quality=False, accelerator="t4", few=1, many=4)]
    )

    assert set(variances) == {*map(" ".join, EFFECTS), ROW}
    assert mean == pytest.approx(-2 * LOSS, abs=0.03)


def test_a_held_out_pair_is_predicted_from_the_others() -> None:
    pairs = scaling_pairs(accelerator_rows(world()))
    model = ScalingModel(pairs, shipped_scaling_variances())

    predictions = list(model.held_out([[number] for number in range(len(pairs))]))

    assert len(predictions) == len(pairs)
    for (number,), (mean,), (deviation,) in predictions:
        assert abs(pairs[number].mean - mean) < 0.1
        assert 0 < deviation < 1
