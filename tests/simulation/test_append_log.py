"""Many schedules of relayers that crash, stall and race over a store that fails."""

import pytest
from sim_world import CROWDED, WORKERS, Plan, Violation, simulate
from wrong_variants import SOONER, WRONG, parts_with

from relayer.errors import CorruptNamespace

BLOCKS = 4
SEEDS_TO_NOTICE = 400


@pytest.mark.slow
@pytest.mark.parametrize("block", range(BLOCKS))
def test_acknowledged_is_in_the_log_once_and_recallable_and_relayers_agree(block: int, seeds: range) -> None:
    for seed in seeds[block::BLOCKS]:
        simulate(seed)


@pytest.mark.parametrize("plan", [CROWDED, WORKERS], ids=["crowded", "workers"])
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
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_variant_is_noticed(name: str) -> None:
    parts = parts_with(WRONG[name])
    for seed in range(SEEDS_TO_NOTICE):
        try:
            simulate(seed, SOONER.get(name), parts)
        except (Violation, CorruptNamespace):
            return
    pytest.fail(f"nothing was noticed in {SEEDS_TO_NOTICE} schedules")
