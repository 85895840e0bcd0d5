"""The hierarchical model of gains: what data may and may not do to a prediction."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from docs.programs import compositions
from knowledge.estimate.gain_fit import LEAST, fit_variances
from knowledge.estimate.gain_model import GainModel
from knowledge.estimate.gain_space import Array, Space
from knowledge.estimate.gain_terms import Blend, Variances, terms_of
from knowledge.estimate.programs import OPERATIONS, Program, program_of_run
from knowledge.evidence.contrasts import Contrast, Machine, Side
from tests.examples import examples
from tests.knowledge.contrasts import ELSEWHERE, HERE, contrast, side

TERMS = terms_of("cpu")
VARIANCES = Variances(
    terms=dict.fromkeys(TERMS, 0.05**2), label=2 * 0.01**2, arm=2 * 0.015**2, noise=1.0, scales={"threads=1": 2.0}
)
PLAIN, OLD, OLDER = side("2.9.0"), side("2.8.0"), side("2.4.0")
FAST = replace(PLAIN, settings={"allocator": "tcmalloc"})
THREAD = replace(PLAIN, settings={"threads": "1"})
BOTH = replace(PLAIN, settings={"allocator": "tcmalloc", "threads": "1"})
STACKS = (PLAIN, OLD, OLDER, FAST, THREAD, BOTH)
SIZES = (1e8, 1e10, 1e12)


def label_of(flops: float, model: str = "encoder", mode: str = "training") -> str:
    return f"model@1[flops={flops:.0g},mode={mode},model={model}] float32 torch/cpu"


def program_of(c: Contrast) -> Program:
    flops = float(c.label.partition("flops=")[2].partition(",")[0])
    return program_of_run(c.label, "model", flops=flops, bytes=flops / 20)


def measured(
    arm: Side, mean: float, error: float = 0.01, *, flops: float = 1e10, machine: Machine = HERE, block: str = "b"
) -> Contrast:
    return contrast(arm, PLAIN, mean, error, label=label_of(flops), machine=machine, block=block, arm=STACKS.index(arm))


def blend(flops: float) -> Blend:
    return ((1.0, program_of(measured(FAST, 0.0, flops=flops))),)


def gain(
    contrasts: Sequence[Contrast], arm: Side, reference: Side = PLAIN, flops: float = 1e10, machine: Machine = HERE
) -> tuple[float, float]:
    (predicted,) = GainModel(contrasts, program_of, VARIANCES).predict([(arm, reference)], [blend(flops)], machine)
    return float(predicted.means[0]), math.sqrt(predicted.variances[0])


contrasts_of_one_machine = st.lists(
    st.builds(
        measured,
        st.sampled_from(STACKS[1:]),
        st.floats(-0.5, 0.5),
        st.floats(0.002, 0.3),
        flops=st.sampled_from(SIZES),
        machine=st.sampled_from((HERE, ELSEWHERE)),
        block=st.sampled_from("bcd"),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=examples(60), deadline=None)
@given(contrasts_of_one_machine, st.permutations(STACKS), st.sampled_from(SIZES))
def test_gains_are_antisymmetric_consistent_in_triangles_and_independent_of_order(
    contrasts: list[Contrast], stacks: list[Side], flops: float
) -> None:
    one, other, third = stacks[:3]
    pairs = [(one, other), (other, one), (other, third), (one, third)]

    usual, reordered = (
        GainModel(rows, program_of, VARIANCES).predict(pairs, [blend(flops)], HERE)[0]
        for rows in (contrasts, contrasts[::-1])
    )

    forth, back, further, whole = usual.means
    assert back == pytest.approx(-forth, abs=1e-9)
    assert forth + further == pytest.approx(whole, abs=1e-9)
    assert usual.variances[0] == pytest.approx(usual.variances[1], abs=1e-9)
    for now, then in zip(reordered, usual, strict=True):
        assert now == pytest.approx(then, abs=1e-7)


@settings(max_examples=examples(60), deadline=None)
@given(contrasts_of_one_machine, st.sampled_from(STACKS[1:]), st.sampled_from(SIZES))
def test_further_data_never_widen_an_interval(contrasts: list[Contrast], arm: Side, flops: float) -> None:
    _, before = gain(contrasts[:-1], arm, flops=flops) if len(contrasts) > 1 else (0.0, math.inf)
    _, after = gain(contrasts, arm, flops=flops)

    assert after <= before + 1e-9


def test_imprecise_data_create_no_certainty() -> None:
    known = [measured(THREAD, -0.5)]
    noise = [measured(FAST, mean, 2.0, block=f"noise {n}") for n, mean in enumerate((-1.0, 0.5, 2.0))]

    _, alone = gain(known, FAST)
    _, beside = gain([*known, *noise], FAST)

    assert beside == pytest.approx(alone, rel=0.02)


def test_a_precise_measurement_of_this_program_on_this_machine_decides() -> None:
    elsewhere = [
        measured(FAST, 0.3, 0.005, machine=ELSEWHERE, block=f"there {n}", flops=f) for n, f in enumerate(SIZES)
    ]

    before, _ = gain(elsewhere, FAST)
    after, deviation = gain([*elsewhere, measured(FAST, 0.0, 0.002, block="own")], FAST)

    assert before > 0.1
    assert abs(after) < 0.03
    assert deviation < 0.03


def test_a_gain_that_grows_with_the_size_is_predicted_between_and_beyond_the_sizes() -> None:
    grows = [measured(FAST, 0.1 * n, 0.01, flops=flops) for n, flops in enumerate((1e8, 1e9, 1e10, 1e11))]

    small, _ = gain(grows, FAST, flops=3e8)
    large, _ = gain(grows, FAST, flops=3e10)
    beyond, deviation = gain(grows, FAST, flops=1e13)
    _, within = gain(grows, FAST, flops=3e9)

    assert 0.0 < small < 0.1 < 0.15 < large < 0.3
    assert beyond > large
    assert deviation > within


def test_a_ratio_that_does_not_tell_its_size_has_that_of_others_at_the_same_program() -> None:
    known, unknown = (replace(measured(arm, 0.4, block=arm.version), flops=f) for arm, f in ((OLD, 1e12), (OLDER, 0.0)))

    def place(rows: Sequence[Contrast]) -> float:
        model = GainModel(rows, lambda c: program_of_run(c.label, c.family, flops=c.flops), VARIANCES)
        (own,) = model.predict([(OLDER, PLAIN)], [((1.0, program_of_run(known.label, "model", flops=1e12)),)], HERE)
        return float(own.means[0])

    assert place([known, unknown]) == pytest.approx(place([unknown, known]))


def test_what_two_settings_do_together_may_differ_from_what_they_do_alone() -> None:
    alone = [measured(FAST, 0.0), measured(THREAD, 0.1)]

    together, _ = gain([*alone, measured(BOTH, 0.6)], BOTH)
    added, _ = gain(alone, BOTH)

    assert together > 0.4
    assert added < 0.2


def test_a_reduced_precision_says_nothing_about_processors_with_another_feature() -> None:
    half = replace(PLAIN, settings={"amp": "bfloat16"})
    amx = replace(ELSEWHERE, precision_features=("amx_bf16", "", ""))
    avx = replace(HERE, precision_features=("avx512_bf16", "", ""))
    known = [replace(measured(FAST, 0.7, machine=amx), side=half)]

    (there, _), (here, _) = (gain(known, half, machine=machine) for machine in (amx, avx))

    assert there > 0.4
    assert here == pytest.approx(0.0, abs=1e-9)


def test_what_programs_share_is_computed_once_for_all_stacks_and_anew_for_other_programs_and_machines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    contrasts = [measured(FAST, 0.2, flops=1e8), measured(OLD, -0.1, flops=1e12, machine=ELSEWHERE)]
    model, calls = GainModel(contrasts, program_of, VARIANCES), list[object]()
    shared = Space.shared

    def counted(*arguments: Any) -> Array:
        calls.append(arguments)
        return shared(*arguments)

    answers, counts = [], []
    requests = [(FAST, 1e8, HERE), (OLD, 1e8, HERE), (FAST, 1e12, HERE), (FAST, 1e12, ELSEWHERE), (FAST, 1e8, HERE)]
    with monkeypatch.context() as patch:
        patch.setattr(Space, "shared", counted)
        for arm, flops, machine in requests:
            calls.clear()
            (predicted,) = model.predict([(arm, PLAIN)], [blend(flops)], machine)
            answers.append((float(predicted.means[0]), math.sqrt(predicted.variances[0])))
            counts.append(len(calls))

    assert [count > 0 for count in counts] == [True, False, True, True, True]
    for answer, (arm, flops, machine) in zip(answers, requests, strict=True):
        assert answer == pytest.approx(gain(contrasts, arm, flops=flops, machine=machine))


def test_held_out_ratios_are_predicted_as_by_a_model_without_them() -> None:
    every = [measured(FAST, 0.1 * n, 0.02, flops=flops, block=f"b{n}") for n, flops in enumerate(SIZES)]
    every.append(measured(THREAD, -0.4, 0.02, block="t"))

    ((group, means, covariance),) = GainModel(every, program_of, VARIANCES).held_out([[1]])
    mean, deviation = gain([c for i, c in enumerate(every) if i != 1], FAST, flops=SIZES[1])

    assert list(group) == [1]
    assert means[0] == pytest.approx(mean)
    noise = every[1].error ** 2 + 0.005**2 + VARIANCES.label + VARIANCES.arm
    assert covariance[0, 0] == pytest.approx(deviation**2 + noise)


def test_variances_have_a_floor_and_those_without_data_stay_usual() -> None:
    equal = [measured(FAST, 0.0, 0.001, flops=flops, block=f"b{n}") for n in range(4) for flops in SIZES]

    fitted = fit_variances(equal, program_of)

    assert all(variance >= LEAST * (1 - 1e-9) for variance in fitted.terms.values())
    assert {fitted.terms[term] for term in TERMS if term.change == "pair"} == {0.05**2}
    assert fitted.noise >= 1.0


def test_the_similarity_of_versions_does_not_depend_on_other_versions() -> None:
    every = ("1.24.0", "1.26.4", "2.0.0", "2.0.0+cu126", "2021.4.0", "2022.1.0", "2024.0.0", "unknown")

    def similarity(texts: Sequence[str]) -> dict[tuple[str, str], float]:
        space = Space([side(text) for text in texts], [program_of(measured(FAST, 0.0))], [HERE], {})
        return {(a, b): float(space.changes["version"][i, j]) for i, a in enumerate(texts) for j, b in enumerate(texts)}

    few, many = similarity(every[:3]), similarity(every)

    assert few == pytest.approx({pair: many[pair] for pair in few})
    assert few["1.24.0", "1.24.0"] > few["1.24.0", "1.26.4"] > few["1.24.0", "2.0.0"] > many["1.24.0", "2022.1.0"]
    assert many["2.0.0", "2.0.0+cu126"] < many["2.0.0", "2.0.0"]
    assert many["2021.4.0", "2022.1.0"] > many["2021.4.0", "2024.0.0"]


def test_the_shipped_compositions_are_those_of_the_models() -> None:
    shipped = json.loads(files("knowledge.data").joinpath("programs.json").read_text(encoding="utf-8"))

    assert shipped == compositions()


def test_programs_have_the_operations_of_their_models() -> None:
    encoder = program_of_run(label_of(1e10), "model", flops=1e10, bytes=1e9)
    depthwise = program_of_run("conv2d@1[groups=8,kernel=3] float32 torch/cpu", "conv2d", flops=1e6, bytes=1e6)
    unknown = program_of_run("published@1[task=x] float32 torch/cpu", "published", flops=0.0, bytes=0.0)

    assert dict(zip(OPERATIONS, encoder.shares, strict=True))["matmul"] > 0.4
    assert encoder.training
    assert depthwise.shares == (0.0, 1.0, 0.0, 0.0, 0.0, 0.0)
    assert all(map(math.isfinite, unknown.place))


@pytest.mark.parametrize("flops", [0.0, -1.0, math.nan, math.inf, 1e300, 5e-324])
@pytest.mark.parametrize("moved", [0.0, -1.0, math.nan, math.inf, 1e300])
def test_absurd_sizes_are_unknown_or_the_largest(flops: float, moved: float) -> None:
    program = program_of_run(label_of(1e10), "model", flops=flops, bytes=moved)

    (predicted,) = GainModel([measured(FAST, 0.1)], program_of, VARIANCES).predict(
        [(FAST, PLAIN)], [((1.0, program),)], HERE
    )

    assert all(map(math.isfinite, program.place))
    assert math.isfinite(float(predicted.means[0]))
    assert float(predicted.variances[0]) > 0
