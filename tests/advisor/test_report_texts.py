"""What text reports print at two widths, from values that nobody has to measure; files in `tests/fixtures/reports`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from packaging.utils import canonicalize_name
from packaging.version import Version

import advisor
from advisor.api.queries import HardwareComparison
from advisor.api.session import AdviceResult
from advisor.domain.words import indicator_text, range_text, ratio_text, workload_text
from advisor.gate.check import GateResult, TargetResult
from advisor.gate.comparison import LockComparison, PackageChange, SettingChange
from advisor.gate.findings import Finding, Place
from advisor.gate.policy import GatePolicy, Ignore
from advisor.gate.recommendation import RecommendedStack
from advisor.gate.scope import GateCase, ProjectState
from advisor.locks.lock import Lock, LockedVersion
from advisor.project.workload.proposal import Proposal
from advisor.report.accelerators import hardware_comparison_text
from advisor.report.advice.formats import ADVICE_FORMATS
from advisor.report.advice.formats.text import evidence_lines
from advisor.report.advice.reasons import explanation_text, prices_text
from advisor.report.advice.settings import setting_rows
from advisor.report.advice.summary import workload_line
from advisor.report.check.formats import CHECK_FORMATS
from advisor.report.formats import Presentation
from advisor.report.layout import WIDTH_OF_FILES, Layout, TextRow, rendered
from advisor.resolve.explanation.alternatives import Alternative, Explanation
from advisor.resolve.explanation.findings import AdviceFinding
from advisor.resolve.explanation.prices import Price
from advisor.resolve.explanation.recommended_settings import CombinedGain, RecommendedSetting
from advisor.resolve.explanation.sizes import AdviceSizes, PackageSize, StackSizes
from advisor.resolve.recommendation.problem_variants import Selection
from advisor.resolve.recommendation.recommend import recommend
from advisor.resolve.score.setting_choice import TargetSettings
from knowledge.estimate.accelerator_ratio import AcceleratorRatio
from knowledge.estimate.interface import Effect, Evidence, KindPrediction, PredictedChange, Prediction
from knowledge.estimate.setting_effect import MeasurementSource, SettingEffect
from knowledge.evidence.accelerator_pairs import AcceleratorPair
from tests.advisor.factories import build_problem, build_request, ratio_of
from tests.package_index import PackageIndex

REPORTS = Path(__file__).parents[1] / "fixtures" / "reports"
ANSI = re.compile("\x1b\\[[0-9;]*m")
EVIDENCE = (
    Evidence(
        block="b",
        indicator="model@1[batch=1,length=16,mode=training,model=bert_base] float32 torch/cpu",
        version="2.13.0",
        reference="2.15.0",
        ratio=ratio_of(1.021, 0.972, 1.073),
        rounds=8,
        hardware="icelake",
    ),
    Evidence(
        block="p",
        indicator="published@1[batch=8,gpus=1,mode=training,task=bert,unit=samples] as-published torch/cuda",
        version="2.13.0",
        reference="2.15.0",
        ratio=ratio_of(1.05, 1.0, 1.1),
        rounds=1,
        hardware="NVIDIA A100",
        source="example/benchmarks",
        year=2025,
    ),
)
PREDICTION = Prediction(
    ratio=ratio_of(1.021, 0.972, 1.073),
    score=0.0,
    confidence=0.95,
    workload="transformer-training",
    changes=(PredictedChange(package="torch", ratio=ratio_of(1.021, 0.972, 1.073), measured=True, evidence=EVIDENCE),),
    unmeasured=(),
)


@pytest.fixture
def advice(index: PackageIndex, tmp_path: Path) -> AdviceResult:
    """An advice: an older build without CUDA, a setting to take, one to allow, one to avoid, and open ones."""
    libraries = ["nvidia-cublas", "nvidia-cudnn-cu13", "cuda-toolkit", "triton"]
    for name in (*libraries, "numpy"):
        index.add(name, "3.0", uploaded="2026-01-01T00:00:00Z")
    index.add("torch", "2.15.0", ["numpy", *libraries], uploaded="2026-01-01T00:00:00Z")
    index.add("torch", "2.13.0", ["numpy"], uploaded="2025-06-01T00:00:00Z")
    newest = build_request(index, tmp_path, build_problem("torch"))
    request = build_request(index, tmp_path, build_problem("torch<2.14"))
    best = recommend(Selection(request=request))
    return AdviceResult(
        advice=replace(
            best,
            baseline=newest.baseline,
            prediction=PREDICTION,
            findings=(
                AdviceFinding(
                    code="ADV112",
                    severity="note",
                    package="numpy",
                    message="`numpy-headless` provides the same modules as `numpy` if it opens no window",
                ),
                *(
                    AdviceFinding(
                        code="ADV103",
                        severity="warning",
                        package=name,
                        message=f"`{name} 1.0` has no wheel for the target: installing it builds it",
                        source="https://example.org/documentation/of/wheels/that/has/a/very/long/address/" + 60 * "x",
                    )
                    for name in ("a", "b", "c", "d", "e")
                ),
            ),
            reasons={**best.reasons, "torch": "build for CPU, because the target has no accelerator"},
            libyears=(0.6, 0.0),
        ),
        target=request.problem.target,
        request=request,
        sizes=AdviceSizes(
            stack=sizes_of(("torch", 200), ("numpy", 26)),
            baseline=sizes_of(("torch", 900), ("numpy", 26), *((name, 500) for name in libraries)),
            current=None,
            findings=(),
            final=True,
        ),
        settings=(
            setting("allocator", "tcmalloc", "recommended", numerics="exact", debian_package="libtcmalloc-minimal4"),
            setting("amp", "bfloat16", "offered", numerics="reduced", code=("with torch.autocast('cpu'): ...",)),
            setting("threads", "1", "advised-against", numerics="reordered"),
        ),
        settings_gain=CombinedGain(ratio=ratio_of(1.18, 1.08, 1.28)),
        setting_effects=(
            effect("allocator=tcmalloc", 1.18, 1.08, 1.28),
            effect("amp=bfloat16", 1.62, 1.30, 2.02, pairs_here=0),
            effect("threads=1", 0.65, 0.46, 0.91),
            effect("compile=on", 1.03, 0.91, 1.17),
            effect("onednn=off", 0.98, 0.88, 1.09),
        ),
        proposal=Proposal(workload="transformer-training", signs=("torch.nn.Transformer (train.py:2)",), skipped=()),
        outputs=("pylock.toml",),
    )


def sizes_of(*sizes: tuple[str, int]) -> StackSizes:
    """Return the sizes of packages, in megabytes."""
    packages = [PackageSize(name=n, version="1", download=s * 10**6, installed=2 * s * 10**6) for n, s in sizes]
    return StackSizes(packages=tuple(packages))


def setting(name: str, value: str, status: Any, **values: Any) -> RecommendedSetting:
    """Return a setting of the advice."""
    missing = ("libtcmalloc_minimal.so.4",) if name == "allocator" else ()
    return RecommendedSetting(
        package="torch", name=name, value=value, status=status, effects=(), not_installed=missing, **values
    )


def effect(text: str, speedup: float, low: float, high: float, *, pairs_here: int = 2) -> SettingEffect:
    """Return the effect of a setting on training transformers."""
    return SettingEffect(
        package="torch",
        setting=text,
        measured_as=text,
        over=f"{text.partition('=')[0]}=default",
        workload="transformer-training",
        ratio=ratio_of(speedup, low, high),
        sources=(MeasurementSource(name="measured with this program", pairs=4, first_year=0, last_year=0),),
        same_tasks=True,
        accelerator_pairs=pairs_here,
    )


@pytest.fixture
def gate() -> GateResult:
    """A failed gate with a base: many findings of one kind, changed packages and settings."""
    problem = build_problem("torch")
    names = ["torch", "numpy", *(f"nvidia-{number}" for number in range(14))]
    lock = Lock(
        path=Path("pylock.toml"),
        packages={canonicalize_name(name): LockedVersion(version=Version("2.0")) for name in names},
    )
    changes = tuple(PackageChange(package=name, before=Version("1.0"), after=Version("2.0")) for name in names)
    slower = Effect(
        subject="model@1[batch=1,length=16,mode=training,model=bert_base] float32 torch/cpu",
        package="torch",
        ratio=ratio_of(0.683, 0.514, 0.908),
    )
    case = GateCase(
        name="", head=ProjectState(lock=lock, problem=problem, allowed_indexes=()), client=NONE, predictor=NONE
    )
    finding = Finding(
        code="ADV004",
        level="error",
        message="`torch 2.0` is built for 7.5, 8.0 and 9.0; Tesla V100-SXM2-16GB has compute capability 7.0",
        place=Place(path="pylock.toml", line=388),
        package="torch",
        targets=("",),
        source="https://pypi.org/project/torch/2.0/#files",
    )
    hashes = [
        replace(finding, code="ADV013", level="warning", message=f"the lock has no hash of `{name}`", package=name)
        for name in names
    ]
    result = TargetResult(
        case=case,
        findings=(),
        recommended=RecommendedStack(versions={"torch": Version("1.0")}, proven=True),
        recommended_prediction=PREDICTION,
        not_predicted="",
        comparison=LockComparison(
            base="`HEAD~1`",
            changes=changes,
            listed=frozenset({"torch", "numpy"}),
            prediction=replace(PREDICTION, ratio=ratio_of(0.683, 0.514, 0.908)),
            effects=(slower,),
            settings=(
                SettingChange(
                    name="threads",
                    before=(),
                    after=("1",),
                    backends=("torch",),
                    place=Place(path="train.py", line=3),
                    effects=(replace(slower, subject="threads=1"),),
                ),
            ),
        ),
        failure=None,
        installable=cast(Any, {}),
    )
    ignored = (replace(finding, code="ADV010", message="`numpy 2.0` was yanked"), Ignore(code="ADV010", reason="known"))
    return GateResult(
        targets=(result,), policy=GatePolicy(fail=frozenset()), findings=(finding, *hashes), ignored=(ignored,)
    )


NONE = cast(Any, None)
PRICES = (
    Price(
        constraint="numpy<2",
        origin="requirements.txt:1",
        binds=True,
        prediction=replace(PREDICTION, ratio=ratio_of(1.06, 1.04, 1.08)),
        libyears=3.4,
        changes=(("numpy", "1.26.4", "2.5.5"), ("pytz", "2026.1", "-"), ("scipy", "1.17.1", "1.18.1")),
    ),
    Price(constraint="scikit-learn<1.6", origin="requirements.txt:3"),
    Price(constraint="Python 3.13", origin="another interpreter", obstacle="no version of `a` supports it"),
    Price(constraint="Python 3.14", origin="another interpreter", libyears=-1.0, changes=(("pytz", "-", "2026.6"),)),
)
EXPLANATION = Explanation(
    name=canonicalize_name("torch"),
    version=Version("2.13.0"),
    newest=Version("2.15.0"),
    why="2.15.0 does not run on the target: CUDA 13.2 needs compute capability 7.5 or newer",
    required_by=(("the project", "torch"), ("accelerate 1.0", "torch>=2")),
    paths=(("torch",), ("accelerate", "torch")),
    more_paths=True,
    verdicts=("`torch 2.13.0` needs a driver (https://example.org)",),
    prediction=PREDICTION,
    against_newest=Alternative(version=Version("2.15.0"), conflict=("you require `torch<2.14` (line 1)",)),
    runner_up=Alternative(
        version=Version("2.12.0"),
        worse=(("freshness-direct", 2855), ("freshness", -5630)),
        changes=(("triton", "3.6.0", "3.5.1"),),
    ),
)
COMPARISON = HardwareComparison(
    accelerator="NVIDIA H100",
    reference="NVIDIA A100",
    workload="bert-training",
    tasks=(("bert_large", "training"), ("bert", "training")),
    ratios=tuple(
        AcceleratorRatio(
            regime=regime,
            ratio=ratio_of(speedup, 1.3, 3.13),
            pairs=tuple(
                AcceleratorPair(
                    source="lambdal/deeplearning-benchmark",
                    configuration=f"config config_v1{precision}, torch 1.13.0, unit samples, variant squad",
                    task="bert_large",
                    mode="training",
                    regime=regime,
                    accelerator="h100-pcie-80gb",
                    reference="a100-pcie-40gb",
                    mean=0.5 + number / 50,
                    count=1,
                    year=2025,
                    batch="8",
                    reference_batch="8" if number < 6 else "16",
                )
                for number in range(8)
            ),
            related=1925,
        )
        for regime, precision, speedup in (("default", "", 2.4), ("short", ", precision fp16", 2.02))
    ),
)


@pytest.fixture
def texts(advice: AdviceResult, gate: GateResult) -> dict[str, Callable[[Layout], str]]:
    """Each report, as a function of its layout."""
    detailed = partial(Presentation, details=True)
    return {
        "advise": lambda layout: ADVICE_FORMATS.render("text", advice, Presentation(layout=layout)),
        "advise-details": lambda layout: ADVICE_FORMATS.render("text", advice, detailed(layout=layout)),
        "check": lambda layout: CHECK_FORMATS.render("text", gate, Presentation(layout=layout)),
        "check-details": lambda layout: CHECK_FORMATS.render("text", gate, detailed(layout=layout)),
        "prices": lambda layout: prices_text(PRICES, layout),
        "explain": lambda layout: explanation_text(EXPLANATION, layout),
        "hardware-compare": lambda layout: hardware_comparison_text(COMPARISON, layout),
    }


NAMES = ("advise", "advise-details", "check", "check-details", "prices", "explain", "hardware-compare")


@pytest.mark.parametrize("name", NAMES)
def test_one_function_rounds_the_ratios_of_all_reports(
    texts: dict[str, Callable[[Layout], str]], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rounded(ratio: float, form: str = "short") -> str:
        return "RATIO"

    before = texts[name](Layout(width=1000))
    # Modules import the function by its name.
    monkeypatch.setattr(ratio_text, "__code__", rounded.__code__)
    after = texts[name](Layout(width=1000))

    ratio = r"(?<![\w.])\d+\.\d{2,3}(?= times as fast|x | \[)|(?<=\[)-?\d+\.\d+|(?<=, )-?\d+\.\d+(?=\])"
    assert re.search(ratio, before)
    assert not re.search(ratio, after)
    assert "RATIO" in after


def test_no_other_function_rounds_a_ratio() -> None:
    root = Path(advisor.__file__).parent
    sources = {path.relative_to(root): path.read_text() for path in root.rglob("*.py")}
    ratio = re.compile(r"(speedup|\blow|\bhigh|math\.exp\([^()]*\)):[^}\"']*[fg]\}")

    found_in = {str(path) for path, text in sources.items() if ratio.search(text)}

    assert found_in == set()


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", NAMES)
def test_a_report_prints_what_its_file_shows(
    texts: dict[str, Callable[[Layout], str]], name: str, width: int, pytestconfig: pytest.Config
) -> None:
    """If a change is intended, `pytest tests/advisor/test_report_texts.py --snapshot-update` writes the files."""
    path = REPORTS / f"{name}-{width}.txt"

    printed = texts[name](Layout(width=width)) + "\n"

    if pytestconfig.getoption("--snapshot-update"):
        path.write_text(printed)
    assert path.is_file(), "new report: `--snapshot-update` writes it"
    assert printed == path.read_text(), "`--snapshot-update` writes the file again"


@pytest.mark.parametrize("name", NAMES)
def test_no_line_is_longer_than_the_width_or_ends_with_a_space(
    texts: dict[str, Callable[[Layout], str]], name: str
) -> None:
    for width in (60, 80, WIDTH_OF_FILES):
        lines = texts[name](Layout(width=width)).splitlines()

        assert max(map(len, lines)) <= WIDTH_OF_FILES
        assert [line for line in lines if len(line) > width and " " in line.strip()] == []
        assert [line for line in lines if line != line.rstrip()] == []


@pytest.mark.parametrize("name", NAMES)
def test_colour_changes_no_character(texts: dict[str, Callable[[Layout], str]], name: str) -> None:
    plain, coloured = texts[name](Layout(width=80)), texts[name](Layout(width=80, colour=True))

    assert ANSI.sub("", coloured) == plain
    assert coloured != plain


def test_a_setting_that_the_program_makes_is_not_offered(advice: AdviceResult) -> None:
    present = {("torch", "amp=bfloat16"): "amp=float16 (train.py:12)"}
    others = tuple(s for s in advice.settings if s.status != "offered")

    text = ADVICE_FORMATS.render("text", replace(advice, settings=others, present_settings=present))

    assert re.search(r"have +amp=float16 +the program sets it \(train.py:12\)$", text, re.MULTILINE)
    assert "reduced-precision" not in text


@pytest.mark.parametrize(("allows", "words"), [(False, "only with"), (True, "allowed by")])
def test_a_setting_outside_the_advice_says_that_it_reduces_precision(
    advice: AdviceResult, allows: bool, words: str
) -> None:
    settings = TargetSettings(hardware=advice.target.hardware, allows_reduced=allows)
    effects = (effect("matmul_precision=medium", 1.27, 1.1, 1.5), effect("allocator=tcmalloc", 1.2, 1.1, 1.3))
    request = replace(advice.request, score=replace(advice.request.score, settings=settings))
    report = replace(advice, settings=(), setting_effects=effects, request=request)

    rows, _ = setting_rows(report)

    assert {row.setting: row.notes for row in rows} == {
        "allocator=tcmalloc": (),
        "matmul_precision=medium": (f"reduced precision: {words} `--allow reduced-precision`",),
    }


@pytest.mark.parametrize("name", ["advise", "check", "explain", "prices"])
def test_no_report_shows_the_syntax_of_indicators(texts: dict[str, Callable[[Layout], str]], name: str) -> None:
    assert not re.search(r"\w@\d+\[", texts[name](Layout()))


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("model@1[batch=1,length=16,mode=training,model=bert_base] float32 torch/cpu", "BERT base training, batch 1"),
        ("matmul@1[batch=32,k=128,m=27,n=27] bfloat16 torch/cpu", "matmul, batch 32, k 128, m 27, n 27, bfloat16"),
        ("published@1[batch=8,gpus=4,mode=training,task=ncf] as-published torch/cuda", "ncf training, batch 8, gpus 4"),
        ("mlperf_inference@1[benchmark=bert-99,scenario=Offline] as-submitted x/cuda", "bert-99 Offline"),
        ("benchmark@1[identity=a] any program/cpu", "the project's own benchmark"),
        ("an own text", "an own text"),
    ],
)
def test_an_indicator_is_named_in_words(label: str, words: str) -> None:
    assert indicator_text(label).startswith(words)
    assert "[" not in indicator_text(label)


def test_a_speed_that_rounds_to_no_difference_has_no_sign() -> None:
    assert [ratio_text(ratio, "percent") for ratio in (0.9999, 1.0001, 0.999)] == ["0.0", "0.0", "-0.1"]


def test_without_a_selected_workload_the_report_does_not_name_one_as_if_it_were_selected(advice: AdviceResult) -> None:
    kinds = (KindPrediction(workload="numeric", ratio=ratio_of(1.1, 1.0, 1.2)),)
    prediction = replace(PREDICTION, workload="numeric", kinds=kinds)

    line = workload_line(replace(advice, proposal=None, advice=replace(advice.advice, prediction=prediction)))

    assert line == "none selected: numeric is the only measured kind (`--workload NAME`)"
    assert workload_text(prediction) == "workload `numeric`, the only measured kind"
    assert range_text(prediction) == ""


def test_control_characters_of_a_server_do_not_reach_the_terminal() -> None:
    row = TextRow(label="note", cells=("a\x1b[31m", "b\x07"), notes=("c\x9b",))

    assert rendered([[row]], Layout()).isprintable() is False
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", rendered([[row]], Layout()))


def test_own_comparisons_that_do_not_count_are_counted() -> None:
    change = PredictedChange(package="torch", ratio=ratio_of(1.0, 0.9, 1.1), measured=True, evidence=(), left_out=2)

    assert list(evidence_lines(change))[-1].startswith("2 comparisons of yours not used: ")
