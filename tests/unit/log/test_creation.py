import asyncio

import pytest
from doubles.faulty_store import Faults, FaultyStore
from doubles.stepping_store import Fate, SteppingStore
from log_world import ACCOUNT, KEYS, OTHER_ACCOUNT, SECRET, World, new, settle

from relayer.adapters.memory_store import MemoryStore
from relayer.domain.namespace import Custody, Manifest, Pointer, PointerState
from relayer.errors import (
    CorruptNamespace,
    NamespaceClosed,
    StoreUnavailable,
    WrongCustody,
    WrongNamespaceKey,
)
from relayer.log import creation
from relayer.log.objects import Layout, ObjectSealer
from relayer.ports import Found
from relayer.testing.local_relayer import RecordingStore

WRITES = ("create", "swap", "delete")


def pointer_key(name: str = "research", account: str = ACCOUNT) -> str:
    return Layout.pointer(KEYS.tag("account", account), KEYS.tag("namespace", account, name))


async def set_state(world: World, state: PointerState) -> Pointer:
    """Do to a pointer what an erasure does."""
    found = await world.memory.get(pointer_key())
    assert isinstance(found, Found)
    sealer = ObjectSealer(world.ports())
    old = sealer.unseal_pointer(ACCOUNT, pointer_key(), found.data)
    changed = Pointer(old.incarnation, old.custody, state, old.name, old.generation, old.created_at)
    await world.memory.swap(pointer_key(), sealer.seal_pointer(ACCOUNT, pointer_key(), changed), found.etag)
    return changed


async def test_a_namespace_is_pointer_then_keyring_then_manifest(empty_world: World) -> None:
    store = RecordingStore(empty_world.memory)
    opened = await creation.open_or_create(empty_world.ports(store), new(), SECRET)

    incarnation = opened.pointer.incarnation
    assert [call.key for call in store.calls if call.operation == "create"] == [
        pointer_key(),
        Layout.keyring(incarnation),
        Layout.manifest(incarnation),
    ]


async def test_opening_again_gives_the_same_namespace_and_keys_and_writes_nothing(world: World) -> None:
    first = await creation.open_or_create(world.ports(), new(), SECRET)
    store = RecordingStore(world.memory)

    assert await creation.open_or_create(world.ports(store), new(), SECRET) == first
    assert not any(store.count(write) for write in WRITES)


async def test_finding_an_unknown_name_writes_nothing(empty_world: World) -> None:
    store = RecordingStore(empty_world.memory)

    assert await creation.find(empty_world.ports(store), ACCOUNT, "research") is None
    assert not any(store.count(write) for write in WRITES)


async def test_opening_what_was_found_writes_nothing(world: World) -> None:
    store = RecordingStore(world.memory)
    pointer = await creation.find(world.ports(store), ACCOUNT, "research")
    assert pointer is not None

    opened = await creation.open_existing(world.ports(store), pointer, ACCOUNT, SECRET)

    assert opened == await creation.open_or_create(world.ports(), new(), SECRET)
    assert not any(store.count(write) for write in WRITES)


@pytest.mark.parametrize("fate", list(Fate))
@pytest.mark.parametrize("crash_at", range(11))
async def test_a_crash_at_any_request_is_completed_by_the_next_start(
    empty_world: World, crash_at: int, fate: Fate
) -> None:
    store = SteppingStore(empty_world.memory)
    dying = asyncio.create_task(creation.open_or_create(empty_world.ports(store), new(), SECRET))
    for _ in range(crash_at):
        await store.wait_for()
        await store.step()
    await store.wait_for()
    store.release(fate=fate)
    dying.cancel()
    await asyncio.wait([dying])

    first = await creation.open_or_create(empty_world.ports(), new(), SECRET)
    while store.delayed:
        await store.apply_delayed()

    assert await creation.open_or_create(empty_world.ports(), new(), SECRET) == first


async def test_a_creation_takes_eleven_requests(empty_world: World) -> None:
    # The crash test above dies in each of them.
    store = RecordingStore(empty_world.memory)
    await creation.open_or_create(empty_world.ports(store), new(), SECRET)
    assert store.count() == 11


async def test_an_unfinished_namespace_is_found_and_not_opened(empty_world: World) -> None:
    store = SteppingStore(empty_world.memory)
    dying = asyncio.create_task(creation.open_or_create(empty_world.ports(store), new(), SECRET))
    for _ in range(3):
        await store.wait_for()
        await store.step()
    dying.cancel()
    await asyncio.wait([dying])

    pointer = await creation.find(empty_world.ports(), ACCOUNT, "research")
    assert pointer is not None
    assert await creation.open_existing(empty_world.ports(), pointer, ACCOUNT, SECRET) is None


async def test_racing_creators_end_with_one_namespace(empty_world: World) -> None:
    store = SteppingStore(empty_world.memory)
    tasks = [
        asyncio.create_task(creation.open_or_create(empty_world.ports(store), new(), SECRET))
        for _ in range(3)
    ]
    while not all(task.done() for task in tasks):
        await settle()
        for position in reversed(range(len(store.pending))):
            store.release(position)

    opened = [task.result() for task in tasks]
    assert opened[0] == opened[1] == opened[2]


@pytest.mark.parametrize("seed", range(20))
async def test_lost_and_late_answers_end_with_one_namespace(empty_world: World, seed: int) -> None:
    clock = empty_world.clock
    faults = Faults(throttled=0.1, unanswered=0.2, lost=0.2, delayed=0.2, delay=1.0)
    store = FaultyStore(empty_world.memory, clock=clock, seed=seed, faults=faults)

    async def attempt() -> creation.OpenedNamespace:
        while True:
            try:
                return await creation.open_or_create(empty_world.ports(store), new(), SECRET)
            except StoreUnavailable:
                continue

    first = await clock.run(attempt())
    await store.apply_delayed()
    assert await creation.open_or_create(empty_world.ports(), new(), SECRET) == first


async def test_another_secret_is_refused_before_anything_is_written(world: World) -> None:
    store = RecordingStore(world.memory)
    with pytest.raises(WrongNamespaceKey):
        await creation.open_or_create(world.ports(store), new(), bytes(32))
    assert not any(store.count(write) for write in WRITES)


async def test_the_other_custody_is_refused_before_anything_is_written(world: World) -> None:
    store = RecordingStore(world.memory)
    with pytest.raises(WrongCustody):
        await creation.open_or_create(world.ports(store), new(custody=Custody.RELAYER), SECRET)
    assert not any(store.count(write) for write in WRITES)


async def test_a_namespace_that_is_being_erased_is_closed(world: World) -> None:
    pointer = await set_state(world, PointerState.ERASING)
    with pytest.raises(NamespaceClosed):
        await creation.open_or_create(world.ports(), new(), SECRET)
    with pytest.raises(NamespaceClosed):
        await creation.open_existing(world.ports(), pointer, ACCOUNT, SECRET)


async def test_an_erased_name_is_unknown_and_can_be_used_again_without_its_past(world: World) -> None:
    old = await set_state(world, PointerState.ERASED)
    assert await creation.find(world.ports(), ACCOUNT, "research") is None

    opened = await creation.open_or_create(world.ports(), new(), bytes(32))

    assert opened.pointer.incarnation != old.incarnation
    assert await creation.find(world.ports(), ACCOUNT, "research") == opened.pointer


async def test_a_name_erased_while_it_was_being_made_gets_a_new_incarnation(empty_world: World) -> None:
    store = SteppingStore(empty_world.memory)
    making = asyncio.create_task(creation.open_or_create(empty_world.ports(store), new(), SECRET))
    for _ in range(3):  # the pointer is made and read back
        await store.wait_for()
        await store.step()
    old = await set_state(empty_world, PointerState.ERASED)
    store.open_gates()

    opened = await making
    assert opened.pointer.incarnation != old.incarnation
    assert await creation.find(empty_world.ports(), ACCOUNT, "research") == opened.pointer


async def test_a_manifest_without_its_keyring_is_corrupt_and_no_new_keyring_is_made(world: World) -> None:
    await world.memory.delete(Layout.keyring(world.incarnation))
    store = RecordingStore(world.memory)
    with pytest.raises(CorruptNamespace):
        await creation.open_or_create(world.ports(store), new(), SECRET)
    assert not any(store.count(write) for write in WRITES)


async def test_a_pointer_that_was_moved_to_another_name_does_not_open(world: World) -> None:
    found = await world.memory.get(pointer_key())
    assert isinstance(found, Found)
    await world.memory.create(pointer_key("finance"), found.data)
    with pytest.raises(CorruptNamespace):
        await creation.find(world.ports(), ACCOUNT, "finance")


async def test_listing_shows_the_names_of_one_account_alone(empty_world: World) -> None:
    ports = empty_world.ports()
    for name in ("research", "finance", "research/notes", *(f"scratch-{number:02}" for number in range(30))):
        await creation.open_or_create(ports, new(name), SECRET)
    await creation.open_or_create(ports, new("other", OTHER_ACCOUNT), SECRET)

    assert [pointer.name for pointer in await creation.list_pointers(ports, ACCOUNT)] == [
        "finance",
        "research",
        "research/notes",
        *(f"scratch-{number:02}" for number in range(30)),
    ]


async def test_no_name_and_no_account_stands_in_a_key_or_an_object(empty_world: World) -> None:
    await creation.open_or_create(empty_world.ports(), new("secretproject"), SECRET)
    stored = "".join(empty_world.memory._objects).encode() + b"".join(
        stored.data for stored in empty_world.memory._objects.values()
    )
    assert b"secretproject" not in stored
    assert ACCOUNT.encode() not in stored


async def test_a_namespace_copied_to_another_store_opens_there(world: World) -> None:
    first = await creation.open_or_create(world.ports(), new(), SECRET)
    copy = MemoryStore(world.clock)
    for key, stored in world.memory._objects.items():
        await copy.create(key, stored.data)
    moved = world.ports(copy)

    assert await creation.open_or_create(moved, new(), SECRET) == first
    assert await creation.list_pointers(moved, ACCOUNT) == [first.pointer]


async def test_the_manifest_begins_the_chain_of_its_incarnation(world: World) -> None:
    key = Layout.manifest(world.incarnation)
    found = await world.memory.get(key)
    assert isinstance(found, Found)
    manifest = ObjectSealer(world.ports()).unseal_manifest(ACCOUNT, world.incarnation, key, found.data)
    assert isinstance(manifest, Manifest)
    assert (manifest.snap_seq, manifest.segments, len(manifest.chain_digest)) == (0, (), 32)


@pytest.mark.parametrize("piece", [Layout.entry, lambda of, seq: Layout.segment(of, seq, bytes(16))])
async def test_a_log_that_lost_its_manifest_is_not_begun_anew(world: World, piece) -> None:
    opened = await creation.open_or_create(world.ports(), new(), SECRET)
    key = Layout.manifest(opened.pointer.incarnation)
    await world.memory.delete(key)
    await world.memory.create(piece(opened.pointer.incarnation, 1), b"what the manifest was there for")
    with pytest.raises(CorruptNamespace, match="no manifest"):
        await creation.open_existing(world.ports(), opened.pointer, ACCOUNT, SECRET)
    with pytest.raises(CorruptNamespace, match="no manifest"):
        await creation.open_or_create(world.ports(), new(), SECRET)
    assert not isinstance(await world.memory.get(key), Found)


async def test_whose_manifest_goes_because_the_name_was_erased_is_told_so(world: World) -> None:
    opened = await creation.open_or_create(world.ports(), new(), SECRET)
    await set_state(world, PointerState.ERASED)
    await world.memory.delete(Layout.manifest(opened.pointer.incarnation))
    await world.memory.create(Layout.entry(opened.pointer.incarnation, 1), b"what waits for collection")
    with pytest.raises(NamespaceClosed):
        await creation.open_existing(world.ports(), opened.pointer, ACCOUNT, SECRET)
