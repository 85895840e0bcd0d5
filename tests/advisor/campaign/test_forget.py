"""`advisor pi forget` deletes the directory of a campaign; its observations stay stored."""

from __future__ import annotations

import shutil

from tests.advisor.campaign.conftest import REFUSES, Bench, all_cells


def test_a_campaign_is_forgotten_and_its_observations_stay(bench: Bench) -> None:
    bench.matrix(REFUSES)
    assert bench.campaign().returncode == 0
    home = bench.directory

    result = bench.run("pi", "forget", "small")

    assert (result.returncode, result.stdout) == (0, f"forgot campaign `{home.name}`: deleted `{home}`\n")
    assert not home.exists()
    assert bench.cells == all_cells(2, 2)
    again = bench.run("pi", "forget", "small")
    assert again.returncode == 2
    assert "there is no campaign `small`" in again.stderr


def test_results_that_are_not_stored_are_deleted_only_with_force(bench: Bench) -> None:
    bench.matrix(REFUSES)
    assert bench.campaign().returncode == 0
    stored = next(bench.directory.glob("kept/*.jsonl"))
    shutil.move(stored, bench.directory / "spool" / stored.name)

    refused = bench.run("pi", "forget", "small")
    forced = bench.run("pi", "forget", "small", "--force")

    assert refused.returncode == 2
    assert "has results that are not stored" in refused.stderr
    assert "advisor pi collect" in refused.stderr
    assert forced.returncode == 0
    assert list((bench.folder / "campaigns").iterdir()) == []


def test_a_running_campaign_is_not_forgotten(bench: Bench) -> None:
    bench.matrix(bench.waiting_code)
    process = bench.start()
    bench.wait(lambda: bench.has_started)

    refused = bench.run("pi", "forget", "small", "--force")

    assert refused.returncode == 2
    assert "another process coordinates campaign" in refused.stderr
    bench.release()
    assert process.wait(120) == 0
