"""Swapping the manifest: whatever the store answers, the manifest says what happened (I9)."""

import asyncio

import pytest
from doubles.stepping_store import Fate, SteppingStore
from log_world import ACCOUNT, World, manifest_in, settle

from relayer.log.objects import ManifestView


def view(world: World, store: SteppingStore) -> ManifestView:
    return ManifestView(world.ports(store), ACCOUNT, world.incarnation)


async def name(world: World, fate: Fate, *, model: str = "m", seq: int = 5) -> tuple[bool, SteppingStore]:
    """Name an index, with a fate for the swap."""
    store = SteppingStore(world.memory)
    at = view(world, store)
    seeing = asyncio.create_task(at.see())
    await store.wait_for()
    await store.step()
    naming = asyncio.create_task(at.name_index(await seeing, f"index/{seq}", seq, model))
    await settle()
    if store.pending:
        await store.step(fate=fate)
        await settle()
    store.release_all()
    return await naming, store


@pytest.mark.parametrize(
    ("fate", "named"),
    [(Fate.PROCEED, True), (Fate.APPLIED_UNANSWERED, True), (Fate.LOST, False), (Fate.DELAYED, False)],
    ids=lambda value: getattr(value, "name", ""),
)
async def test_i9_a_swap_has_happened_when_the_manifest_says_so(
    world: World, fate: Fate, *, named: bool
) -> None:
    won, _ = await name(world, fate)
    manifest = await manifest_in(world)
    assert won is named
    assert (manifest.index_key, manifest.index_seq, manifest.index_model) == (
        ("index/5", 5, "m") if named else ("", 0, "")
    )


async def test_i9_of_two_swaps_from_one_manifest_one_happens(world: World) -> None:
    store = SteppingStore(world.memory)
    at = view(world, store)
    store.open_gates()
    seen = await at.see()
    won = await asyncio.gather(*(at.name_index(seen, f"index/{seq}", seq, "m") for seq in (5, 6)))
    assert sorted(won) == [False, True]


async def test_an_index_that_knows_less_does_not_replace_one_of_the_same_model(world: World) -> None:
    assert (await name(world, Fate.PROCEED))[0]
    assert not (await name(world, Fate.PROCEED, seq=4))[0]
    assert (await name(world, Fate.PROCEED, seq=4, model="another"))[0]
    assert (await manifest_in(world)).index_key == "index/4"
