"""The metrics of campaigns: in the file of the command, and as the service reads them."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest

from advisor.api.measurements.campaigns import campaigns_directory, newest_campaign_tasks
from advisor.campaign.directory import CampaignDirectory
from knowledge.domain.metrics import WINDOW_DAYS
from tests.advisor.campaign.conftest import REFUSES, Bench
from tests.advisor.campaign.plans import build_plan


def test_tasks_that_were_given_up_are_in_the_file_and_in_the_service(bench: Bench) -> None:
    bench.matrix(REFUSES)
    # No environment can be built where a file is in the way, so that no attempt gives a result.
    (bench.folder / "file").touch()
    command = ("--attempts", "1", "--prometheus", "seshat.prom", "--engine", f"environments={bench.folder}/file")

    failed = bench.campaign(*command)

    (campaign,) = newest_campaign_tasks(knowledge=bench.address)
    assert failed.returncode == 4, failed.stderr
    # The directory does not say how many attempts that process allowed.
    assert campaign.tasks == {"abandoned": 2, "given-up": 0}
    assert campaign.time == pytest.approx(time.time(), abs=600)
    text = (bench.folder / "seshat.prom").read_text(encoding="utf-8")
    assert f'seshat_campaign_tasks{{campaign="{campaign.name}",state="given-up"}} 2.0' in text


def test_old_and_damaged_campaigns_are_left_out_with_a_warning(bench: Bench) -> None:
    folder = campaigns_directory(bench.address)
    for name in ("new", "old", "damaged"):
        folder.mkdir(exist_ok=True)
        CampaignDirectory(folder / name).create(replace(build_plan(), name=name))
    (folder / "damaged" / "campaign.json").write_text("{")
    long_ago = time.time() - (WINDOW_DAYS + 1) * 86400
    for path in (folder / "old", *(folder / "old").iterdir()):
        os.utime(path, (long_ago, long_ago))
    warnings: list[str] = []

    campaigns = newest_campaign_tasks(knowledge=bench.address, warn=lambda message, _: warnings.append(message))

    assert [(campaign.name, campaign.tasks) for campaign in campaigns] == [("new", {"abandoned": 1, "given-up": 0})]
    assert len(warnings) == 1
    assert "damaged" in warnings[0]
