"""`advisor hardware choose`: machines ranked by time and cost, each with its best stack."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from advisor.api import advice_inputs, search
from advisor.api.options import IndexOptions, ProjectOptions
from advisor.api.session import AdviceSession
from advisor.api.targets import advise_targets
from advisor.resolve.candidates.problem import AllowedReplacements
from advisor.resolve.optimum.request import ResolutionRequest
from advisor.resolve.recommendation.package_choices import with_best_packages
from advisor.resolve.recommendation.problem_variants import Selection
from tests.conftest import Advisor
from tests.package_index import PackageIndex

pytestmark = pytest.mark.shipped

MACHINES = ("p3.2xlarge", "p3.16xlarge", "p4d.24xlarge", "g5.xlarge", "g4dn.xlarge", "c6i.xlarge")
PRICES = """\
currency: USD
date: 2026-01-19
region: us-east-1
prices:
  p3.2xlarge: {on-demand: 3.06, spot: 1.0}
  p4d.24xlarge: {on-demand: 21.957642}
  g5.xlarge: {on-demand: 1.006}
"""


@pytest.fixture
def project(index: PackageIndex, tmp_path: Path) -> Path:
    """A project with PyTorch, whose newest release has no code for a V100."""
    index.add("torch", "2.10.0")
    index.add("torch", "2.15.0", requires=["a"])
    index.add("a", "1.0")
    folder = tmp_path / "project"
    folder.mkdir()
    write(folder, index)
    (folder / "prices.yaml").write_text(PRICES)
    return folder


def write(folder: Path, index: PackageIndex, tables: str = "") -> None:
    """Write the project."""
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "m"\ndependencies = ["torch"]\n[tool.uv]\nindex-url = "{index.url}"\n{tables}'
    )


def targets(names: tuple[str, ...] = MACHINES) -> str:
    """Return the tables of targets."""
    return "".join(
        f'[tool.advisor.targets.t{number}]\nhardware = "{name}"\npython = "3.12"\n' for number, name in enumerate(names)
    )


def choose(advisor: Advisor, folder: Path, *options: str, workload: str = "resnet50-training") -> dict[str, Any]:
    """Return the JSON report."""
    result = advisor("hardware", "choose", "--workload", workload, "--format", "json", *options, cwd=folder)
    assert result.returncode == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def named(machines: tuple[str, ...] = MACHINES) -> list[str]:
    """Return the options that name machines."""
    return [word for machine in machines for word in ("--hardware", machine)]


def test_machines_are_ranked_by_time_with_the_best_stack_on_each(advisor: Advisor, project: Path) -> None:
    document = choose(advisor, project, *named())

    ranked = {machine["name"]: machine for machine in document["ranked"]}
    times = [machine["seconds"]["mean"] for machine in document["ranked"]]
    assert times == sorted(times)
    assert document["ranked"][0]["name"] == "p4d.24xlarge"
    assert ranked["p3.2xlarge"]["seconds"]["low"] < ranked["p3.2xlarge"]["seconds"]["mean"]
    versions = {name: machine["stack"][0]["version"] for name, machine in ranked.items()}
    assert (versions["p3.2xlarge"], versions["p3.16xlarge"]) == ("2.10.0", "2.10.0")
    assert (versions["p4d.24xlarge"], versions["g5.xlarge"]) == ("2.15.0", "2.15.0")
    assert [machine["name"] for machine in document["not_known"]] == ["c6i.xlarge"]
    assert "processors" in document["not_known"][0]["reason"]


def test_a_repeated_question_has_the_same_answer(advisor: Advisor, project: Path) -> None:
    assert choose(advisor, project, *named()) == choose(advisor, project, *named())


def test_cost_is_time_multiplied_by_the_price(advisor: Advisor, project: Path) -> None:
    document = choose(advisor, project, "--prices", "prices.yaml", "--items", "2M")

    assert document["objective"] == "cost"
    for machine in document["ranked"]:
        hours = machine["seconds"]["mean"] / 3600
        assert machine["cost"]["mean"] == pytest.approx(hours * machine["price"]["hourly"], rel=1e-4)
    assert {machine["name"] for machine in document["ranked"]} == {"p3.2xlarge", "p4d.24xlarge", "g5.xlarge"}


def test_energy_is_time_multiplied_by_the_power_at_the_wall(advisor: Advisor, project: Path) -> None:
    options = ("--objective", "energy", "--carbon-intensity", "400")
    document = choose(advisor, project, *named(), *options)

    energies = [machine["joules"]["mean"] for machine in document["ranked"]]
    assert energies == sorted(energies)
    for machine in document["ranked"]:
        joules = machine["seconds"]["mean"] * machine["watts"]["mean"]
        assert machine["joules"]["mean"] == pytest.approx(joules, rel=1e-4)
        assert machine["watts"]["mean"] > machine["rated_watts"], "the host takes power, too"
        assert machine["grams_co2"]["mean"] == pytest.approx(joules / 3.6e6 * 400, rel=1e-4)
    assert document["metered_machines"] > 10


def test_a_machine_without_published_power_has_an_upper_bound_only(advisor: Advisor, project: Path) -> None:
    options = ("--hardware", "jetson-agx-orin-64gb", "--hardware", "h100", "--workload", "resnet50-training")
    report = advisor("hardware", "choose", *options, cwd=project)
    document = choose(advisor, project, *options[:4], "--objective", "energy")

    assert "power not known; its accelerators alone need at most" in " ".join(report.stdout.split())
    assert [machine["name"] for machine in document["ranked"]] == ["h100"]
    [orin] = document["not_known"]
    assert (orin["joules"], orin["rated_watts"]) == (None, 60)
    assert orin["seconds"] is not None
    assert orin["most_joules_of_accelerators"] == pytest.approx(orin["seconds"]["high"] * 60, rel=1e-4)
    assert "power not known; its accelerators alone need at most" in orin["reason"]


def test_the_page_shows_each_machine_in_a_plot(advisor: Advisor, project: Path) -> None:
    options = ("--workload", "resnet50-training", "--prices", "prices.yaml", *named(), "--format", "html")
    result = advisor("hardware", "choose", *options, cwd=project)
    document = choose(advisor, project, *named(), "--prices", "prices.yaml")

    assert result.returncode == 0, result.stderr
    grey = [machine["name"] for machine in document["ranked"] if machine["is_dominated"]]
    wide, narrow = re.findall(r'<svg class="pareto \w+".*?</svg>', result.stdout, re.DOTALL)
    for plot in (wide, narrow):
        assert plot.count("<circle") == len(document["ranked"]) == 3
        assert plot.count('<g class="dominated">') == len(grey)
    assert result.stdout.count("another machine is certainly better") == len(grey)
    assert "Cost in USD against time in hours" in result.stdout
    assert "c6i.xlarge" in result.stdout
    assert "http" not in result.stdout.split("</svg>")[0].split("<svg")[1]


def test_a_machine_is_dominated_by_one_that_is_certainly_better(advisor: Advisor, project: Path) -> None:
    """A machine of equal speed that costs more, and one that is slower and costs more, are dominated."""
    (project / "more.yaml").write_text(
        PRICES.replace(
            "g5.xlarge: {on-demand: 1.006}", "g5.xlarge: {on-demand: 1.006}\n  g5.4xlarge: {on-demand: 1.624}"
        )
    )
    document = choose(advisor, project, "--prices", "more.yaml")

    dominated = {machine["name"]: machine["is_dominated"] for machine in document["ranked"]}
    assert dominated == {"g5.xlarge": False, "g5.4xlarge": True, "p4d.24xlarge": False, "p3.2xlarge": True}


def test_a_machine_beyond_the_budget_is_excluded(advisor: Advisor, project: Path) -> None:
    every = choose(advisor, project, "--prices", "prices.yaml")
    dearest = max(every["ranked"], key=lambda machine: float(machine["cost"]["low"]))

    document = choose(advisor, project, "--prices", "prices.yaml", "--budget", str(dearest["cost"]["low"] * 0.99))

    assert [machine["name"] for machine in document["excluded"]] == [dearest["name"]]
    assert "more than the budget" in document["excluded"][0]["reason"]


def test_without_a_spot_price_there_is_no_cost(advisor: Advisor, project: Path) -> None:
    document = choose(advisor, project, "--prices", "prices.yaml", "--spot")

    assert [machine["name"] for machine in document["ranked"]] == ["p3.2xlarge"]
    assert document["spot"]


def test_memory_excludes_machines(advisor: Advisor, project: Path) -> None:
    document = choose(advisor, project, *named(), "--min-memory", "20GiB")

    assert {machine["name"] for machine in document["ranked"]} == {"p4d.24xlarge", "g5.xlarge"}
    reasons = {machine["name"]: machine["reason"] for machine in document["excluded"]}
    assert reasons["p3.2xlarge"] == "needs 20 GiB of memory; it has 16 GiB"


def test_a_model_that_does_not_fit_excludes_a_machine(advisor: Advisor, project: Path) -> None:
    options = ["--batch", "32", "--length", "384", "--allow", "reduced-precision"]

    document = choose(advisor, project, *named(), *options, workload="bert-training")

    assert document["memory"]["model"] == "bert-large"
    assert (document["memory"]["precision"], document["memory"]["length"]) == ("mixed precision", 384)
    excluded = {machine["name"]: machine for machine in document["excluded"]}
    assert set(excluded) == {"p3.2xlarge", "p3.16xlarge", "g4dn.xlarge"}
    machine = excluded["p3.2xlarge"]
    assert machine["reason"].startswith("needs ")
    assert "GiB" in machine["reason"]
    assert "of memory in mixed precision with batch 32; it has 16 GiB" in machine["reason"]
    assert (
        f"it has 16 GiB; the largest batch that certainly fits is {machine['memory_need']['largest_batch']}"
        in (machine["reason"])
    )
    assert machine["memory_need"]["bytes"]["low"] > machine["memory_bytes"]
    assert sum(machine["memory_need"]["parts"].values()) == pytest.approx(
        machine["memory_need"]["bytes"]["mean"], rel=1e-4
    )
    # Several accelerators keep the gradients.
    assert "gradients" in excluded["p3.16xlarge"]["memory_need"]["parts"]
    assert "gradients" not in machine["memory_need"]["parts"]
    fits = {m["name"]: m["memory_need"]["fits"] for m in (*document["ranked"], *document["not_known"])}
    assert fits == {"p4d.24xlarge": True, "g5.xlarge": None, "c6i.xlarge": None}


def test_a_divided_model_fits_into_machines_that_are_too_small_for_it(advisor: Advisor, project: Path) -> None:
    options = ["--model", "llama3-8b", "--length", "4096", "--checkpointing", "--allow", "reduced-precision"]

    whole = choose(advisor, project, *named(), *options, workload="bert-training")
    divided = choose(advisor, project, *named(), *options, "--sharded", workload="bert-training")
    four = choose(advisor, project, *named(), *options, "--sharded", "--nodes", "4", workload="bert-training")

    reasons = {machine["name"]: machine["reason"] for machine in whole["excluded"]}
    assert reasons["p4d.24xlarge"].endswith("; `--sharded` divides it among 8 accelerators")
    # One accelerator is too small, and eight of 16 GiB are too small as well.
    assert not any("--sharded" in reasons[name] for name in ("p3.2xlarge", "p3.16xlarge", "g5.xlarge"))
    assert divided["memory"]["sharded"]
    for document, number, fits in ((divided, 8, None), (four, 32, True)):
        needs = {machine["name"]: machine["memory_need"] for machine in document["ranked"]}
        assert (needs["p4d.24xlarge"]["divided_among"], needs["p4d.24xlarge"]["fits"]) == (number, fits)
    excluded = {machine["name"]: machine["reason"] for machine in divided["excluded"]}
    assert "on each accelerator, divided among 8; it has 16 GiB" in excluded["p3.16xlarge"]
    assert "divided among" not in excluded["p3.2xlarge"]
    assert "p3.16xlarge" not in {machine["name"] for machine in four["excluded"]}


def test_inference_is_divided_inside_of_a_machine(advisor: Advisor, project: Path) -> None:
    options = ["--hardware", "p4d.24xlarge", "--model", "llama3-8b", "--length", "1024", "--nodes", "2", "--sharded"]

    document = choose(advisor, project, *options, workload="bert-inference")

    machines = [*document["ranked"], *document["not_known"]]
    assert [machine["memory_need"]["divided_among"] for machine in machines] == [8]


def test_the_text_says_whether_a_model_fits(advisor: Advisor, project: Path) -> None:
    command = ["hardware", "choose", "--workload", "resnet50-training", "--hardware", "g5.xlarge"]

    plain = advisor(*command, cwd=project).stdout
    text = " ".join(advisor(*command, "--batch", "64", "--optimizer", "momentum", cwd=project).stdout.split())

    assert "memory " not in plain
    assert "timm/resnet50 with 25.56 million parameters, batch 64, images of 224 x 224 pixels, float32" in text
    assert "the model fits; the largest batch that certainly fits is " in text


def test_a_model_is_a_file_or_not_known(advisor: Advisor, project: Path) -> None:
    config = {"model_type": "gpt2", "n_layer": 48, "n_embd": 1600, "n_head": 25, "n_positions": 1024, "vocab_size": 9}
    (project / "config.json").write_text(json.dumps(config))
    options = ["--hardware", "g5.xlarge", "--batch", "2"]

    of_file = choose(advisor, project, *options, "--model", "config.json", "--length", "1024", workload="dlrm-training")
    unknown = choose(advisor, project, *options, workload="dlrm-training")

    assert of_file["memory"]["parameters"] == 48 * (12 * 1600**2 + 13 * 1600) + (9 + 1024 + 2) * 1600
    assert "does not know one model of workload `dlrm-training`" in unknown["memory"]["not_known"]
    assert "memory_need" not in unknown["ranked"][0]


def test_without_a_batch_nothing_says_a_word_about_memory(advisor: Advisor, project: Path) -> None:
    document = choose(advisor, project, "--hardware", "g5.xlarge")

    assert "memory" not in document
    assert "memory_need" not in document["ranked"][0]


def test_several_machines_are_faster_than_one(advisor: Advisor, project: Path) -> None:
    one = choose(advisor, project, "--hardware", "p4d.24xlarge")["ranked"][0]
    four = choose(advisor, project, "--hardware", "p4d.24xlarge", "--nodes", "4")["ranked"][0]

    assert 2 < one["seconds"]["mean"] / four["seconds"]["mean"] < 4


def test_the_targets_of_the_project_are_the_default(advisor: Advisor, project: Path, index: PackageIndex) -> None:
    write(project, index, targets(("p3.2xlarge", "p4d.24xlarge")))

    document = choose(advisor, project)

    assert [machine["name"] for machine in document["ranked"]] == ["t1", "t0"]


def test_without_names_every_compared_accelerator_has_a_stack(advisor: Advisor, project: Path) -> None:
    document = choose(advisor, project)

    assert len(document["ranked"]) > 10
    assert all(machine["stack"][0]["framework"] == "torch" for machine in document["ranked"])


def test_the_settings_of_the_project_decide_about_the_precision(
    advisor: Advisor, project: Path, index: PackageIndex
) -> None:
    assert choose(advisor, project, "--hardware", "g5.xlarge")["regime"] == "default"

    write(project, index, '[tool.advisor]\nallow = ["reduced-precision"]\n')

    assert choose(advisor, project, "--hardware", "g5.xlarge")["regime"] == "short"


def test_one_machine_may_be_named_in_three_ways(advisor: Advisor, project: Path) -> None:
    spellings = named(("RTX 4090", "rtx-4090", "NVIDIA GeForce RTX 4090", "h100", "h100-sxm5-80gb"))

    document = choose(advisor, project, *spellings)

    assert [machine["name"] for machine in document["ranked"]] == ["h100", "RTX 4090"]


def test_the_text_names_machine_stack_time_and_cost(advisor: Advisor, project: Path) -> None:
    result = advisor("hardware", "choose", "--workload", "resnet50-training", "--prices", "prices.yaml", cwd=project)

    assert result.returncode == 0, result.stderr
    assert "by cost   1  " in result.stdout
    assert "1 million images of resnet50, training" in result.stdout
    assert "USD by the hour, on demand, of 2026-01-19, us-east-1" in result.stdout
    assert "8 x NVIDIA A100-SXM4-40GB, 40 GiB" in result.stdout
    assert "torch 2.10.0 for CUDA" in result.stdout


def test_without_a_project_machines_are_compared_without_stacks(advisor: Advisor, tmp_path: Path) -> None:
    document = choose(advisor, tmp_path, workload="bert-training")

    assert len(document["ranked"]) > 10
    assert all(machine["stack"] == [] for machine in document["ranked"])


def test_times_are_relative_where_sources_disagree(advisor: Advisor, tmp_path: Path) -> None:
    result = advisor(
        "hardware", "choose", "--workload", "dlrm-training", *named(("p4d.24xlarge", "p3.2xlarge")), cwd=tmp_path
    )

    assert result.returncode == 0, result.stderr
    assert "relative to the first machine: nobody published how long an item takes" in result.stdout
    assert "stack     not compared: the directory has no file with requirements" in result.stdout
    assert "1 [1, 1] x time" in result.stdout


def test_a_training_to_a_quality_has_the_time_of_all_machines_together(advisor: Advisor, tmp_path: Path) -> None:
    options = [*named(("p5.48xlarge", "p4d.24xlarge")), "--to-quality"]

    document = choose(advisor, tmp_path, *options, "--nodes", "8", workload="bert-training")
    one = choose(advisor, tmp_path, *options, workload="bert-training")

    assert (document["items"], document["level"]["unit"], document["regime"]) == (1, "trainings", "mlperf")
    (fast, slow), (alone, _) = document["ranked"], one["ranked"]
    assert (fast["name"], slow["name"]) == ("p5.48xlarge", "p4d.24xlarge")
    # The published scores of 8 and of 64 accelerators, in minutes.
    for machine, scores in ((alone, (5.33, 5.72)), (fast, (0.89, 0.89))):
        low, high = (machine["seconds"][end] / 60 for end in ("low", "high"))
        assert low < min(scores)
        assert max(scores) < high
    # https://github.com/mlcommons/training_results_v2.1, NVIDIA, dgxa100_ngc22.09_pytorch: 8 A100 with newer software.
    slowest = one["ranked"][1]["seconds"]
    assert slowest["low"] / 60 < 20 < slowest["mean"] / 60 < 40


def test_a_training_is_not_for_machines_that_cannot_hold_the_weights(advisor: Advisor, tmp_path: Path) -> None:
    options = [*named(("p5.48xlarge", "g5.xlarge")), "--to-quality"]

    one = choose(advisor, tmp_path, *options, workload="gpt3-training")
    many = choose(advisor, tmp_path, *options, "--nodes", "64", workload="gpt3-training")

    assert [machine["name"] for machine in one["ranked"]] == ["p5.48xlarge"]
    assert "need 326 GiB in 16 bits; all its accelerators together have 24 GiB" in one["excluded"][0]["reason"]
    assert "beyond the published trainings" in one["ranked"][0]["beyond_published"]
    assert [machine["beyond_published"] for machine in many["ranked"] if machine["name"] == "p5.48xlarge"] == [None]


def test_memory_of_a_training_to_a_quality_is_that_of_a_short_precision(advisor: Advisor, tmp_path: Path) -> None:
    options = [*named(("p4de.24xlarge",)), "--to-quality", "--batch", "56"]

    document = choose(advisor, tmp_path, *options, workload="bert-training")

    # The batch of each accelerator in the same submission.
    assert document["memory"]["precision"] == "mixed precision"
    assert document["ranked"][0]["memory_need"]["fits"] is not False


def test_a_workload_without_a_training_to_a_quality_is_one_error(advisor: Advisor, tmp_path: Path) -> None:
    result = advisor("hardware", "choose", "--workload", "ncf-training", "--to-quality", cwd=tmp_path)

    assert result.returncode == 2
    assert "no training of workload `ncf-training` to a quality is published" in result.stderr
    assert "`bert-training`" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--budget", "3"], "`--budget` needs prices"),
        (["--objective", "speed"], "there is no objective `speed`"),
        (["--carbon-intensity", "380g"], "`--carbon-intensity 380g` is not a number of grams"),
        (["--items", "-1"], "`-1` is not a positive number"),
        (["--items", "1e300"], "`1e300` is not a number of items"),
        (["--nodes", "1" + "0" * 400], "`--nodes 1"),
        (["--price-date", "today"], "`today` is not a date"),
        (["--min-memory", "much"], "`much` is not an amount of memory"),
        (["--hardware", "p9.large"], "there is no hardware profile `p9.large`"),
        (["--prices", "missing.yaml"], "the price file `missing.yaml` cannot be read"),
        (["--batch", "0"], "`0` is not a whole number from 1"),
        (["--batch", "nan"], "`nan` is not a whole number from 1"),
        (["--optimizer", "adam"], "`--optimizer` needs a batch"),
        (["--sharded"], "`--sharded` needs a batch"),
        (["--batch", "4", "--optimizer", "lamb"], "the memory of the optimizer `lamb` is not known"),
        (["--batch", "4", "--length", "9"], "`--length` is for models of text, and `timm/resnet50` is a model of"),
        (["--batch", "4", "--checkpointing"], "`--checkpointing` is for transformers"),
        (["--model", "gpt2"], "the model `gpt2` needs the tokens of an item"),
        (["--model", "gpt2", "--length", "2000"], "`--length 2000` is more than the 1024 positions of `gpt2`"),
        (["--model", "gpt9"], "there is no model `gpt9`"),
        (["--model", "missing.json"], "the model file `missing.json` cannot be read"),
    ],
)
def test_wrong_options_are_one_error(advisor: Advisor, tmp_path: Path, options: list[str], message: str) -> None:
    result = advisor("hardware", "choose", "--workload", "resnet50-training", *options, cwd=tmp_path)

    assert result.returncode == 2
    assert f"error: {message}" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_help_lists_the_options(advisor: Advisor) -> None:
    result = advisor("hardware", "choose", "--help")

    assert result.returncode == 0, result.stderr
    assert "--price-date" in result.stdout


def test_a_model_that_is_published_on_several_accelerators_has_a_time(advisor: Advisor, tmp_path: Path) -> None:
    machines = named(("p5.48xlarge", "p5.4xlarge"))

    document = choose(advisor, tmp_path, *machines, "--allow", "reduced-precision", workload="llm-training")

    assert (document["level"]["unit"], document["level"]["accelerators"]) == ("tokens", 8)
    assert document["ranked"][0]["seconds"]["low"] > 0
    assert document["ranked"][0]["times_of_first"] == {"mean": 1.0, "low": 1.0, "high": 1.0}
    assert 4 < document["ranked"][1]["times_of_first"]["mean"] < 8


def test_a_budget_needs_the_time_of_an_item(advisor: Advisor, project: Path) -> None:
    options = ["--prices", "prices.yaml", "--budget", "1"]
    result = advisor("hardware", "choose", "--workload", "dlrm-training", *options, cwd=project)

    assert result.returncode == 2
    assert "`--budget` needs the time of an item" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--region", "nowhere"], "no price of region `nowhere`"),
        (["--spot", "--region", "nowhere"], "no price of region `nowhere`"),
    ],
)
def test_prices_that_match_nothing_are_one_error(
    advisor: Advisor, project: Path, options: list[str], message: str
) -> None:
    words = ["--workload", "resnet50-training", "--prices", "prices.yaml", *options]
    result = advisor("hardware", "choose", *words, cwd=project)

    assert result.returncode == 2
    assert message in result.stderr


def test_targets_with_their_own_options_have_their_own_stacks(
    advisor: Advisor, project: Path, index: PackageIndex
) -> None:
    small = '[tool.advisor.targets.small]\nhardware = "h100"\nmax-size = "1kB"\n'
    write(project, index, f'[tool.advisor.targets.large]\nhardware = "h100"\n{small}')

    document = choose(advisor, project)

    assert [machine["name"] for machine in document["ranked"]] == ["large"]
    assert [machine["name"] for machine in document["excluded"]] == ["small"]


def test_targets_with_several_workloads_are_not_compared(advisor: Advisor, project: Path, index: PackageIndex) -> None:
    tables = "".join(
        f'[tool.advisor.targets.{name[0]}]\nhardware = "h100"\nworkload = "{name}"\n'
        for name in ("resnet50-training", "bert-training")
    )
    write(project, index, tables)

    result = advisor("hardware", "choose", cwd=project)

    assert result.returncode == 2
    assert "the targets have several workloads: `bert-training`, `resnet50-training`" in result.stderr


def test_a_stack_without_a_build_for_the_accelerator_is_excluded(advisor: Advisor, project: Path) -> None:
    document = choose(advisor, project, *named(("mi300x", "h100")))

    assert [machine["name"] for machine in document["ranked"]] == ["h100"]
    assert "no build for its accelerator" in document["excluded"][0]["reason"]


def test_a_workload_must_be_selected_without_sources(advisor: Advisor, project: Path) -> None:
    result = advisor("hardware", "choose", cwd=project)

    assert result.returncode == 2
    assert "no workload is selected" in result.stderr


def test_targets_that_differ_in_the_machine_share_a_search_and_have_their_own_stacks(
    project: Path, index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project, index, targets())
    options = ProjectOptions.of(project, indexes=IndexOptions(cache_directory=tmp_path / "cache"))
    searches: list[ResolutionRequest] = []

    def counted(request: ResolutionRequest, allowed: AllowedReplacements) -> Selection:
        searches.append(request)
        return with_best_packages(request, allowed)

    monkeypatch.setattr(search, "with_best_packages", counted)

    with advice_inputs.open_inputs(options) as inputs:
        shared = advise_targets(list(map(AdviceSession, inputs)), dry_run=True).advice
        number = len(searches)
        alone = {own.context.name: AdviceSession(own).result() for own in inputs}

    # Only the V100 differs from the others in what decides.
    assert number == 2
    assert len(searches) == number + len(MACHINES)
    for name, result in alone.items():
        assert shared[name].advice.optimum.stack == result.advice.optimum.stack
        assert shared[name].advice.optimum.bounds == result.advice.optimum.bounds
        assert shared[name].advice.findings == result.advice.findings
