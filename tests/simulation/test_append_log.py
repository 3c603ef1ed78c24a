"""Many schedules of relayers that crash, stall and race over a store that fails."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sim_lives import simulate_lives
from sim_plans import PLANS, Plan
from sim_process import Parts
from sim_store import Violation
from sim_world import simulate
from wrong_variants import SOONER, WRONG, parts_with

from relayer.errors import CorruptNamespace

BLOCKS = 16
SEEDS_TO_NOTICE = 2000
SCHEDULES_A_LIFE = 8  # lives take longer, a second each
BLOCKS_OF_LIVES = 4
HERE = Path(__file__).parent


@pytest.mark.timeout(600)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_acknowledged_is_in_the_log_once_and_recallable_and_relayers_agree(block: int, seeds: range) -> None:
    for seed in seeds[block::BLOCKS]:
        simulate(seed)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_what_makes_wrong_variants_show_sooner_does_not_trouble_the_right_one(
    plan: Plan, thorough: bool
) -> None:
    for seed in range(20 if thorough else 2):
        simulate(seed, plan)


def replay(*arguments: str, hash_seed: int) -> str:
    environment = os.environ | {"PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(HERE / "replay.py"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("plan", ["drawn", "late"])
def test_a_seed_repeats_its_schedule_in_any_process(plan: str) -> None:
    first, second = (replay("7", "--seeds", "4", "--plan", plan, hash_seed=seed) for seed in (1, 2))

    assert len(first.splitlines()) == len({line.split()[1] for line in first.splitlines()}) == 4
    assert first == second


def run_until_one_fails(plan: Plan, parts: Parts) -> None:
    for seed in range(SEEDS_TO_NOTICE):
        simulate(seed, plan, parts)


def test_a_schedule_that_fails_says_how_to_repeat_it() -> None:
    with pytest.raises((Violation, CorruptNamespace)) as caught:
        run_until_one_fails(PLANS["stalled"], parts_with(WRONG["i3_no_check_after_the_create"]))

    [note] = caught.value.__notes__
    assert re.search(r"seed (\d+); .* python tests/simulation/replay.py --plan stalled \1$", note)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("block", range(BLOCKS_OF_LIVES))
def test_a_name_that_is_erased_and_used_again_never_meets_its_past(block: int, seeds: range) -> None:
    own = seeds[block::BLOCKS_OF_LIVES]
    for seed in own[: max(1, len(own) // SCHEDULES_A_LIFE)]:
        simulate_lives(seed)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_name_lives_through_what_a_log_does(plan: Plan, thorough: bool) -> None:
    for seed in range(2 if thorough else 1):
        simulate_lives(seed, plan)


def test_the_unpatched_source_passes_through_the_loader_of_wrong_variants(thorough: bool) -> None:
    parts = parts_with([])
    for seed in range(10 if thorough else 2):
        simulate(seed, parts=parts)


@pytest.mark.tier("prove")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_variant_is_noticed(name: str) -> None:
    parts = parts_with(WRONG[name])
    for seed in range(SEEDS_TO_NOTICE):
        try:
            simulate(seed, SOONER.get(name), parts)
        except (Violation, CorruptNamespace):
            return
    pytest.fail(f"nothing was noticed in {SEEDS_TO_NOTICE} schedules")


def test_what_is_simulated_is_the_product() -> None:
    parts = Parts()
    for part in (
        parts.replica,
        parts.committer,
        parts.compactor,
        parts.collector,
        parts.erasure.MemoryEraser,
        parts.indexes,
    ):
        assert part.__module__.startswith("relayer.log.")
    relayer = Path(importlib.import_module("relayer").__file__).parent
    for source in relayer.rglob("*.py"):
        if "testing" not in source.relative_to(relayer).parts:
            assert not re.search(
                r"relayer\.testing|is_?simulat|under_?simulat|virtual_time", source.read_text()
            ), source
