"""Campaigns of the Python API do what the commands do, without printing or exiting."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from advisor.api import (
    CampaignOptions,
    ExecutorOptions,
    IndexOptions,
    find_campaign,
    list_campaigns,
    open_campaign,
    plan_campaign,
)
from advisor.campaign.status import CampaignStatus
from knowledge.domain.errors import InputError
from knowledge.store.base import KnowledgeBaseError
from tests.advisor.campaign.conftest import REFUSES, Bench, all_cells


@pytest.fixture
def options(bench: Bench) -> dict[str, Any]:
    """Package index, cache and knowledge base of a bench."""
    return {
        "indexes": IndexOptions(index_url=bench.index.url, cache_directory=bench.folder / "cache"),
        "knowledge": bench.address,
    }


@pytest.fixture
def matrix(bench: Bench) -> Path:
    """A matrix of two stacks whose import fails, which is an observation, in two rounds."""
    bench.matrix(REFUSES, REFUSES)
    return bench.folder / "matrix.toml"


def test_a_campaign_is_planned_with_its_cost(bench: Bench, matrix: Path, options: dict[str, Any]) -> None:
    steps: list[str] = []

    planned = plan_campaign(matrix, progress=steps.append, **options)
    printed = bench.run("pi", "plan", "matrix.toml", "--index-url", bench.index.url)

    (block,), (cost,) = planned.campaign.blocks, planned.costs
    assert {arm.label for arm in block.arms} == {"numpy==2.1.0", "numpy==2.0.0"}
    assert (cost.processes, cost.runs) == (6, 6)
    assert planned.seconds == cost.seconds
    assert [step.split()[0] for step in steps] == ["locking", "locking"]
    assert f"block `{block.name}`: 3 arms x 2 rounds = 6 processes, 6 runs" in printed.stdout
    assert not (bench.folder / "campaigns").exists()


def test_a_campaign_runs_and_its_observations_are_returned(
    bench: Bench, matrix: Path, options: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    lines: list[str] = []
    reports: list[CampaignStatus] = []

    campaign = open_campaign(str(matrix), **options)
    before = campaign.status()
    status = campaign.run(progress=lines.append, report=reports.append)
    again = open_campaign(matrix, **options).run()

    assert (before.state, before.measured) == ("incomplete", 0)
    assert (status.state, status.measured, again.state) == ("complete", 6, "complete")
    assert reports[-1] == status
    assert lines == [f"block `{campaign.plan.blocks[0].name}`: 3 arms, 2 rounds"]
    assert sorted((o.round, o.arm) for o in campaign.observations()) == bench.cells == all_cells(2, 3)
    assert [o.block for o in campaign.observations()] == [*campaign.block_names()] * 6
    assert not any(path.is_dir() for path in (bench.folder / "cache" / "environments").iterdir())
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("keep", "is_relative"), [(False, False), (True, True)])
def test_environments_in_a_chosen_directory_stay_only_on_request(
    bench: Bench,
    matrix: Path,
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    keep: bool,
    is_relative: bool,
) -> None:
    monkeypatch.chdir(bench.folder)
    environments = bench.folder / "environments"
    executor = ExecutorOptions(options={"environments": environments.name if is_relative else str(environments)})

    status = open_campaign(matrix, executor=executor, **options).run(keep_environments=keep)

    assert status.state == "complete"
    assert any(path.is_dir() for path in environments.iterdir()) == keep
    assert not (bench.folder / "cache" / "environments").exists()


def test_existing_campaigns_are_listed_found_by_a_prefix_and_forgotten(
    matrix: Path, options: dict[str, Any], bench: Bench
) -> None:
    for repetition in (1, 2):
        open_campaign(matrix, options=CampaignOptions(repetition=repetition), **options).run()
    first, second = list_campaigns(knowledge=bench.address)

    with pytest.raises(InputError, match="`small` matches small-") as ambiguous:
        find_campaign("small", knowledge=bench.address)
    find_campaign(first.name, knowledge=bench.address).forget()
    remaining = find_campaign("small", knowledge=bench.address)

    assert ambiguous.value.exit_code == 2
    assert (first.state, second.state) == ("complete", "complete")
    assert remaining.status() == second
    assert not first.folder.exists()
    assert bench.observations
    with pytest.raises(InputError, match="there is no campaign `large`"):
        find_campaign("large", knowledge=bench.address)


def test_a_detached_campaign_is_cancelled_and_retried(bench: Bench, options: dict[str, Any]) -> None:
    bench.matrix(bench.waiting_code)
    campaign = open_campaign(bench.folder / "matrix.toml", **options)
    submitted = campaign.run(detach=True)
    bench.wait(lambda: bench.has_started)
    same = find_campaign(knowledge=bench.address)
    with pytest.raises(InputError, match="has tasks that run or wait"):
        same.forget()

    stored = same.cancel()
    cancelled = same.status()
    bench.release()
    retried = same.retry()

    assert (submitted.state, stored, cancelled.state, retried.state) == ("running", 0, "cancelled", "complete")
    assert bench.cells == all_cells(2, 2)


def test_results_are_collected_for_another_knowledge_base(
    bench: Bench, matrix: Path, options: dict[str, Any], empty_knowledge: Path
) -> None:
    campaign = open_campaign(matrix, **options)
    campaign.run()
    other = f"sqlite:///{shutil.copy(empty_knowledge, bench.folder / 'other.sqlite')}"

    result = find_campaign(home=campaign.directory.path, knowledge=other).collect()

    assert (result.status.state, result.stored, result.waiting) == ("complete", 6, 0)
    with pytest.raises(InputError, match=r"`missing\.log` cannot be read"):
        campaign.collect([Path("missing.log")])


def test_manifests_are_written_only_for_kubernetes(bench: Bench, matrix: Path, options: dict[str, Any]) -> None:
    kubernetes = ExecutorOptions(name="kubernetes", options={"image": "here"})

    instance = open_campaign(matrix, executor=kubernetes, **options).render(bench.folder / "manifests")

    files = {path.name: path.read_text() for path in (bench.folder / "manifests").iterdir()}
    assert set(files) == {"configmap.yaml", "job.yaml", "kustomization.yaml"}
    assert f"app.kubernetes.io/instance: {instance}" in files["job.yaml"]
    with pytest.raises(InputError, match="only Kubernetes has manifests"):
        open_campaign(matrix, **options).render(bench.folder / "others")


def test_wrong_options_are_documented_errors(bench: Bench, matrix: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="there is no executor `lsf`"):
        open_campaign(matrix, executor=ExecutorOptions(name="lsf"), **options)
    with pytest.raises(InputError, match=r"the budget is 0\.0 GB"):
        open_campaign(matrix, executor=ExecutorOptions(disk_budget_bytes=1.0), **options)
    with pytest.raises(InputError, match="is not the directory of a campaign"):
        find_campaign(home=bench.folder)

    with pytest.raises(InputError, match="`repetition` must be at least 1, not 0"):
        CampaignOptions(repetition=0)
    with pytest.raises(InputError, match="`max_runs` must be at least 1, not 0"):
        CampaignOptions(max_runs=0)

    campaign = open_campaign(matrix, **options)

    with pytest.raises(InputError, match="`attempts` must be at least 1, not 0"):
        campaign.run(attempts=0)
    for use in (campaign.cancel, campaign.forget, campaign.collect):
        with pytest.raises(InputError, match="was never run"):
            use()
    with pytest.raises(InputError, match="was submitted"):
        campaign.retry()
    with pytest.raises(KnowledgeBaseError):
        open_campaign(matrix, **{**options, "knowledge": f"sqlite:///{bench.folder}"}).run()
    assert not (bench.folder / "campaigns").exists()
