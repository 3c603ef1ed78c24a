"""The rotation of a namespace's keys, stopped before every single write, and carried out by two relayers at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from log_world import ACCOUNT, SECRET, World

from relayer.crypto import NamespaceKeys
from relayer.domain.namespace import LogPosition
from relayer.domain.operations import (
    EMBED,
    Erase,
    Forget,
    JobAccepted,
    JobFinished,
    Origin,
    Put,
    Stored,
    VectorSet,
    decode_operation,
)
from relayer.errors import NamespaceClosed, StoreUnavailable
from relayer.log import creation
from relayer.log.erasure import ErasureReports, NamespaceEraser
from relayer.log.namespace_log import NamespaceLog
from relayer.log.objects import Layout, LogPorts
from relayer.log.rotation import rotate
from relayer.wire.sealed_keys import SealedKey

GENERATION = 5
NEW = SealedKey(ACCOUNT, b"a" * 32, "research", GENERATION, 0, b"\x99" * 32)
TEXTS = {bytes([number]) * 16: f"text {number}" for number in range(1, 6)}
FORGOTTEN, ERASED = bytes([2]) * 16, bytes([3]) * 16
JOB = b"j" * 16


class Killed(Exception):
    """Raised instead of a write: this process writes nothing more."""


class MortalStore:
    """A store that takes a number of writes, and no more after these."""

    def __init__(self, inner: Any, writes: int) -> None:
        self._inner = inner
        self.left = writes

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._inner, name)
        return self._counted(real) if name in {"create", "swap", "delete", "purge"} else real

    def _counted(self, real: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def write(*given: Any) -> Any:
            if not self.left:
                raise Killed
            self.left -= 1
            return await real(*given)

        return write


def _put(keys: NamespaceKeys, record: bytes, text: str) -> Put:
    salt = record * 2
    origin = Origin(
        b"author" * 5, record, 0, 0, keys.idempotency_mac("key", text), keys.idempotency_mac("body", text)
    )
    sealed = keys.seal_record(record, text.encode(), salt=salt)
    vector = keys.seal_vector(record, "own", b"v" + text.encode(), salt=salt)
    return Put(
        origin,
        Stored(record, keys.content_mac(text), sealed, vector, likeness=keys.content_mac(f"like {text}")),
    )


@pytest.fixture
async def world() -> World:
    """A namespace with memories, a forgotten and an erased one, and a finished job with vectors."""
    world = World()
    opened = await creation.open_or_create(
        world.ports(), creation.NewNamespace(ACCOUNT, "research", creation.Custody.AGENT), SECRET
    )
    world.pointer, keys = opened.pointer, opened.keys
    log = NamespaceLog(world.ports(), ACCOUNT, opened.pointer)
    await log.start()
    for record, text in TEXTS.items():
        await log.append([_put(keys, record, text)])
    first = next(iter(TEXTS))
    context = keys.seal_vector(first, "context", b"w", salt=b"w" * 32)
    own = keys.seal_vector(first, "own", b"u", salt=b"u" * 32)
    given = keys.seal_record(JOB, b"input", salt=b"i" * 32)
    await log.append([Forget(Origin(b"author" * 5, b"f" * 16), FORGOTTEN)])
    await log.append([Erase(Origin(b"author" * 5, b"e" * 16), (ERASED,))])
    await log.append([JobAccepted(Origin(b"author" * 5, b"k" * 16), JOB, EMBED, (first,), given)])
    await log.append([JobFinished(JOB, vectors=(VectorSet(first, own, context),))])
    waits = keys.seal_record(b"m" * 16, b"waits", salt=b"n" * 32)
    await log.append([JobAccepted(Origin(b"author" * 5, b"l" * 16), b"m" * 16, EMBED, (first,), waits)])
    await log.close()
    return world


async def _run(ports: LogPorts) -> None:
    """Do what a relayer does for the request, and for the erasures in progress that it finds."""
    pointer = await creation.find(ports, ACCOUNT, "research")
    assert pointer is not None
    if pointer.generation != GENERATION:
        opened = await creation.open_existing(ports, pointer, ACCOUNT, SECRET)
        assert opened is not None
        await rotate(ports, ACCOUNT, pointer, opened.keys, NEW)
    reports = ErasureReports(ports)
    for key in await reports.pending():
        seen = await reports.read(key)
        assert seen is not None
        await NamespaceEraser(ports, 0).run(seen)


async def _check(world: World, before: tuple[LogPosition, list[Any]]) -> None:
    ports = world.ports()
    pointer = await creation.find(ports, ACCOUNT, "research")
    assert pointer is not None
    assert (pointer.generation, pointer.next) == (GENERATION, b"")
    assert not await ports.keys_below(Layout.incarnation(world.incarnation))
    opened = await creation.open_existing(ports, pointer, ACCOUNT, NEW.secret)
    assert opened is not None
    log = NamespaceLog(ports, ACCOUNT, pointer)
    await log.start()
    keys, found, given = opened.keys, {}, {}
    manifest = await log.replica.manifest.read()
    for row in manifest.segments:
        segment = await log.replica.segments.read(row)
        assert segment is not None
        for linked in segment.entries():
            for operation in map(decode_operation, linked.entry.operations):
                if isinstance(operation, Put):
                    stored = operation.stored
                    text = TEXTS[stored.record]
                    assert stored.content == keys.content_mac(text)
                    assert stored.likeness == keys.content_mac(f"like {text}")
                    assert operation.origin.idempotency == keys.idempotency_mac("key", text)
                    assert operation.origin.body == keys.idempotency_mac("body", text)
                    if stored.sealed:
                        found[stored.record] = keys.unseal_record(stored.record, stored.sealed).decode()
                        assert keys.unseal_vector(stored.record, "own", stored.vector) == b"v" + text.encode()
                elif isinstance(operation, JobFinished):
                    (one,) = operation.vectors
                    assert keys.unseal_vector(one.record, "own", one.vector) == b"u"
                    assert keys.unseal_vector(one.record, "context", one.context_vector) == b"w"
                elif isinstance(operation, JobAccepted) and operation.sealed:
                    given[operation.job] = keys.unseal_record(operation.job, operation.sealed)
    assert found == {record: text for record, text in TEXTS.items() if record != ERASED}
    assert given == {b"m" * 16: b"waits"}
    old, states = before
    assert log.replica.digest_at(old.seq) == old.digest
    assert [(one.record, one.status, one.seq, one.size) for one in log.state.records.values()] == states
    await log.append([_put(keys, b"z" * 16, "later")])
    await log.close()


async def _before(world: World) -> tuple[LogPosition, list[Any]]:
    replica = await world.reloaded()
    states = [(one.record, one.status, one.seq, one.size) for one in replica.state.records.values()]
    return replica.state.position, states


@pytest.mark.parametrize("writes", range(30))
async def test_a_relayer_that_is_stopped_before_any_write_loses_nothing_and_the_next_one_ends_it(
    world: World, writes: int
) -> None:
    before = await _before(world)
    mortal = MortalStore(world.memory, writes)
    try:
        await _run(world.ports(mortal))
    except (Killed, StoreUnavailable):
        assert not mortal.left
    await _run(world.ports())
    await _check(world, before)


async def test_two_relayers_that_rotate_at_the_same_time_end_with_one_incarnation(world: World) -> None:
    before = await _before(world)
    done = await asyncio.gather(*(_run(world.ports()) for _ in range(2)), return_exceptions=True)
    assert all(one is None or isinstance(one, StoreUnavailable | NamespaceClosed) for one in done), done
    await _run(world.ports())
    await _check(world, before)
