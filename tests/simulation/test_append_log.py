"""Many schedules of relayers that crash, stall and race over a store that fails."""

import importlib
import re
from pathlib import Path

import pytest
from sim_store import Violation
from sim_world import CROWDED, LATE, STALLED, TRUSTING, WORKERS, Parts, Plan, simulate
from wrong_variants import SOONER, WRONG, parts_with

from relayer.errors import CorruptNamespace

BLOCKS = 16
SEEDS_TO_NOTICE = 2000
PLANS = {"crowded": CROWDED, "workers": WORKERS, "stalled": STALLED, "trusting": TRUSTING, "late": LATE}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_acknowledged_is_in_the_log_once_and_recallable_and_relayers_agree(block: int, seeds: range) -> None:
    for seed in seeds[block::BLOCKS]:
        simulate(seed)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_what_makes_wrong_variants_show_sooner_does_not_trouble_the_right_one(plan: Plan) -> None:
    for seed in range(20):
        simulate(seed, plan)


def test_a_seed_repeats_its_schedule() -> None:
    first, second = simulate(7), simulate(7)

    assert first.answers == second.answers
    assert first.memory._objects.keys() == second.memory._objects.keys()


def test_the_unpatched_source_passes_through_the_loader_of_wrong_variants() -> None:
    parts = parts_with([])
    for seed in range(10):
        simulate(seed, parts=parts)


@pytest.mark.slow
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
    for part in (parts.replica, parts.committer, parts.compactor, parts.collector, parts.eraser):
        assert part.__module__.startswith("relayer.log.")
    relayer = Path(importlib.import_module("relayer").__file__).parent
    for source in relayer.rglob("*.py"):
        if "testing" not in source.relative_to(relayer).parts:
            assert not re.search(
                r"relayer\.testing|is_?simulat|under_?simulat|virtual_time", source.read_text()
            ), source
