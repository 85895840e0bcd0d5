"""Proposed campaigns: what is measured in a time, and the matrix file of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from packaging.version import Version

from advisor.campaign.proposal import CampaignProposal, matrix_text, propose
from advisor.report.proposal import proposal_record, proposal_text
from knowledge.domain.errors import InputError
from knowledge.estimate.estimator import WorkloadEstimator
from knowledge.estimate.model_cache import ModelCache
from knowledge.hardware.profiles import find_profile
from knowledge.store.engine import open_knowledge_base
from pi_runners.plan.matrix_file import read_matrix
from tests.advisor.campaign.conftest import Bench

SHIPPED = "sqlite://"
"""A knowledge base that holds what ships only."""
OFFERED = tuple(Version(text) for text in ("1.32.0", "1.31.1", "1.30.1", "1.30.0", "1.22.1", "1.20.1", "1.16.0"))


Propose = Callable[..., CampaignProposal]


@pytest.fixture(scope="module")
def propose_for() -> Iterator[Propose]:
    """Proposes a campaign for one framework, with what ships."""
    with open_knowledge_base(SHIPPED) as store:
        models = ModelCache(store)

        def propose_for(
            hardware: str, minutes: float, framework: str = "onnxruntime", offered: Sequence[Version] = OFFERED
        ) -> CampaignProposal:
            profile = find_profile(hardware)
            return propose(
                WorkloadEstimator(models, hardware=profile, workload=None, frameworks={framework}),
                profile,
                versions_of=lambda requirement: offered if requirement.name == framework else (),
                history={},
                budget_seconds=60 * minutes,
            )

        yield propose_for


@pytest.fixture(scope="module")
def hour(propose_for: Propose) -> CampaignProposal:
    return propose_for("cpu-zen2", 60)


def test_a_proposal_fits_into_the_time_and_uses_most_of_it(hour: CampaignProposal) -> None:
    assert 2400 < hour.seconds <= 3600
    assert hour.gain == pytest.approx(sum(block.gain for block in hour.blocks))
    assert all(block.gain > 0 and block.programs and block.choices for block in hour.blocks)


def test_newer_releases_are_compared_with_the_newest_down_to_the_oldest_measured_one(hour: CampaignProposal) -> None:
    versions = {v for b in hour.blocks for c in b.choices if c.is_of_versions for v in c.values}

    assert {block.reference for block in hour.blocks} == {"1.32.0"}
    assert versions
    assert versions <= {"1.31.1", "1.30.1", "1.22.1", "1.20.1"}


def test_each_choice_names_the_open_decisions_with_their_prediction(hour: CampaignProposal) -> None:
    choices = [choice for block in hour.blocks for choice in block.choices]

    for choice in choices:
        assert choice.decisions
        assert [d.gain for d in choice.decisions] == sorted((d.gain for d in choice.decisions), reverse=True)
        assert {d.workload for d in choice.decisions} <= set(hour.workloads)
    assert any(choice.subject == "graph_optimisation" for choice in choices)


def test_a_value_that_the_machine_lacks_is_not_planned_with_the_reason(propose_for: Propose) -> None:
    proposal = propose_for("cpu-zen2", 20, framework="tensorflow-cpu", offered=[Version("2.21.0")])

    assert ("isa=avx512 of tensorflow-cpu", "it needs avx512bw") in proposal.left_out
    assert "avx512" not in {v for b in proposal.blocks for c in b.choices for v in c.values}


def test_the_matrix_file_of_a_proposal_expands_to_the_same_arms(hour: CampaignProposal, tmp_path: Path) -> None:
    path = tmp_path / "matrix.toml"
    path.write_text(matrix_text(hour))

    matrix = read_matrix(path)
    combinations = matrix.combinations(
        lambda requirement, _: [v for v in OFFERED if v in requirement.specifier], ["3.12"], max_runs=20000
    )

    expected = {
        (b.reference, c.subject, v) for b in hour.blocks for c in b.choices if not c.is_of_versions for v in c.values
    }
    expected |= {(v, "version", v) for b in hour.blocks for c in b.choices if c.is_of_versions for v in c.values}
    arms = {
        (str(c.version), *(next(iter(c.settings.items())) if c.settings else ("version", str(c.version))))
        for c in combinations
    }
    assert {(version, name, str(value)) for version, name, value in arms} == expected | {
        ("1.32.0", "version", "1.32.0")
    }
    assert {json.dumps(dict(case.parameters), sort_keys=True) for c in combinations for case in c.cases} == {
        json.dumps(dict(run.parameters), sort_keys=True) for block in hour.blocks for run in block.programs
    }
    assert matrix.content.device == "cpu"


def test_the_report_and_the_record_say_the_same(hour: CampaignProposal) -> None:
    text, record = proposal_text(hour), proposal_record(hour)

    assert text.startswith("campaign for `cpu-zen2`: about ")
    assert "| measure" in text
    assert "not planned: numpy: " in text
    assert record["seconds"] == round(sum(block["seconds"] for block in record["blocks"]))
    assert json.loads(json.dumps(record)) == record
    assert {block["framework"] for block in record["blocks"]} == {"onnxruntime"}


def test_a_time_that_is_too_short_for_one_block_is_an_error_that_says_what_would_fit(propose_for: Propose) -> None:
    with pytest.raises(InputError) as error:
        propose_for("cpu-zen2", 1)

    assert error.value.message.startswith("`--budget` is too short for one block: the shortest one takes about ")
    assert error.value.hint.startswith("take at least `--budget ")
    minutes = int(error.value.hint.removeprefix("take at least `--budget ").removesuffix("m`"))
    assert propose_for("cpu-zen2", minutes).seconds <= 60 * minutes


def test_a_machine_on_which_nothing_was_compared_is_an_error_with_the_reasons(propose_for: Propose) -> None:
    with pytest.raises(
        InputError, match="no measurement can be planned for `mi300x`: .*onnxruntime: nothing was compared"
    ):
        propose_for("mi300x", 60)


def test_a_framework_without_a_version_in_the_index_is_not_planned(propose_for: Propose) -> None:
    with pytest.raises(InputError, match="onnxruntime: the indexes offer no version of it"):
        propose_for("cpu-zen2", 60, offered=())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "neither a matrix nor `--budget` is named"),
        (("matrix.toml", "--budget", "8h"), "a matrix is named, and `--budget` proposes one"),
        (("matrix.toml", "-o", "other.toml"), "`--output` and `--format` are for a proposed campaign"),
        (("--budget", "8x"), "`8x` is not a duration"),
        (("--budget", "8h", "--for", "h300"), "there is no hardware profile `h300`"),
    ],
)
def test_wrong_options_of_a_plan_are_one_sentence(bench: Bench, arguments: Sequence[str], message: str) -> None:
    completed = bench.run("pi", "plan", *arguments)

    assert completed.returncode == 2
    assert message in completed.stderr
    assert "Traceback" not in completed.stderr


@pytest.mark.slow
def test_a_proposal_is_printed_and_its_matrix_is_planned(bench: Bench) -> None:
    for version in ("1.32.0", "1.31.1"):
        bench.index.add("onnxruntime", version, ["numpy"])
    bench.index.add("numpy", "2.1.0")
    places = ("--index-url", bench.index.url, "--for", "cpu-zen2")

    printed = bench.run(
        "pi", "plan", "--budget", "10m", "-o", "proposed.toml", "--format", "json", *places, "--knowledge", SHIPPED
    )
    planned = bench.run("pi", "plan", "proposed.toml", *places)

    assert printed.returncode == planned.returncode == 0, printed.stderr + planned.stderr
    record = json.loads(printed.stdout)
    assert record["seconds"] <= 600
    assert "written: `proposed.toml`" in printed.stderr
    assert "block `plan-cpu-zen2-" in planned.stdout
    assert "0 combinations dropped" in planned.stdout
