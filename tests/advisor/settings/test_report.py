"""What reports say about settings with a lower precision."""

from __future__ import annotations

import json
from dataclasses import asdict

from advisor.report.advice.settings import setting_lines
from advisor.resolve.explanation.recommended_settings import RecommendedSetting
from knowledge.estimate.numerical_effect import effects_of
from knowledge.estimate.setting_effect import MeasurementSource, SettingEffect
from tests.advisor.factories import ratio_of

EFFECT = SettingEffect(
    package="torch",
    setting="amp=bfloat16",
    measured_as="amp=bfloat16",
    over="amp=default",
    workload="cnn-training",
    ratio=ratio_of(1.5, 1.2, 1.9),
    sources=(MeasurementSource(name="measured with this program", pairs=2, first_year=0, last_year=0),),
    same_tasks=True,
    accelerator_pairs=2,
)
OFFERED = RecommendedSetting(
    package="torch",
    name="amp",
    value="bfloat16",
    status="offered",
    numerics="reduced",
    effects=(EFFECT,),
    code=("with torch.autocast(next(model.parameters()).device.type, dtype=torch.bfloat16): ...",),
    numerical_effects=effects_of("torch", {"amp": "bfloat16"}),
)


def test_an_offered_precision_comes_with_what_it_did_to_results() -> None:
    effects = OFFERED.numerical_effects
    errors = sorted(e.forward_error for e in effects)
    losses = sorted(e.loss.mean for e in effects)

    (line,) = setting_lines([EFFECT], [OFFERED])

    assert len(effects) == 3
    assert line.startswith("only with `--allow reduced-precision`: `amp=bfloat16` over `default` in torch")
    assert f"the output of small models differed by {errors[0]:.2g} to {errors[-1]:.2g} of its norm" in line
    assert f"their loss after training by {losses[0]:+.2g} to {losses[-1]:+.2g} (5 seeds" in line
    assert line.endswith("`with torch.autocast(next(model.parameters()).device.type, dtype=torch.bfloat16): ...`")


def test_numerical_effects_are_a_part_of_the_document() -> None:
    document = json.loads(json.dumps(asdict(OFFERED)))

    assert [effect["model"] for effect in document["numerical_effects"]] == ["mlp", "cnn", "transformer"]
    assert all(effect["settings"] == {"amp": "bfloat16"} for effect in document["numerical_effects"])
