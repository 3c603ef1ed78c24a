"""Deletes what the log no longer needs; nothing else deletes.

Slots that segments cover, segments that were merged or lost a race, indexes that were replaced. Any relayer may collect,
at any time, without a namespace's key; each step is one swap of the manifest, so that a relayer that stops or stalls
anywhere leaves a state that the next one goes on from:

    move      gc_watermark = snap_seq, gc_epoch + 1, gc_moved_at = 0: from here on slots up to it count as gone (I2)
    confirm   gc_moved_at = the store's time of an answer that **showed** the moved watermark. The time of the move itself
              would be a guess made before it: a relayer may stall for hours between reading the time and swapping
    wait      until that is longer ago than any answer is trusted (I11)
    sweep     delete slots up to the watermark, and what no manifest names
    done      gc_swept = gc_epoch

A store that keeps versions keeps them for names that may be written again; a name of the log never is, and an erasure
must not have to look for what a collection left behind: what goes, goes with its versions.

What no manifest names may be an upload that its compactor is about to name. It read the manifest before the upload, and
the confirming swap replaced that manifest after ``gc_moved_at``: an upload from before that time is named by now, or its
swap will be refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import msgspec

from relayer.domain.namespace import Manifest
from relayer.log.erasure.destruction import discard
from relayer.log.objects import LogPorts, ManifestView, SeenManifest
from relayer.ports import ObjectInfo, Swapped

GRACE_MS = 60 * 60 * 1000
# How far a listing's times may be from those of answers, which other machines of the store may have given.
_SKEW_MS = 10 * 1000
_STEPS = 5  # one run goes through all stages when nothing has to be waited for


class Stage(Enum):
    """What a collection has to do next."""

    NOTHING = "nothing"
    MOVE = "move"
    CONFIRM = "confirm"
    WAIT = "wait"
    SWEEP = "sweep"


@dataclass(frozen=True, slots=True)
class Collection:
    """What a run left: where the collection stands, and what was deleted."""

    stage: Stage
    slots: int = 0
    objects: int = 0


def stage_of(manifest: Manifest, now_ms: int, grace_ms: int) -> Stage:
    """Return what is next.

    Args:
        manifest: as just read.
        now_ms: the store's time of that answer.
        grace_ms: how long after everybody could see the watermark its slots may be deleted.
    """
    if manifest.gc_epoch and not manifest.gc_moved_at:
        return Stage.CONFIRM
    if manifest.gc_swept < manifest.gc_epoch:
        if manifest.gc_moved_at - now_ms > max(grace_ms, GRACE_MS):
            # The store's clock was ahead then: nobody should wait until it has caught up.
            return Stage.CONFIRM
        return Stage.SWEEP if now_ms - manifest.gc_moved_at >= grace_ms else Stage.WAIT
    return Stage.MOVE if manifest.snap_seq > manifest.gc_watermark else Stage.NOTHING


def begun(manifest: Manifest) -> Manifest:
    """Return a manifest as the next collection's first swap makes it; none may be under way."""
    return msgspec.structs.replace(
        manifest, gc_watermark=manifest.snap_seq, gc_epoch=manifest.gc_epoch + 1, gc_moved_at=0
    )


class Collector:
    """Collects one incarnation; one run at a time."""

    def __init__(self, ports: LogPorts, account: str, incarnation: bytes, grace_ms: int = GRACE_MS) -> None:
        self._store = ports.store
        self._layout = ports.layout
        self._incarnation = incarnation
        self._grace_ms = grace_ms
        # Its own: what it deletes by must have been read by it, and nobody waits for it.
        self._manifest = ManifestView(ports, account, incarnation)

    async def run(self) -> Collection:
        """Go as far as possible without waiting.

        Raises:
            CorruptNamespace, UpgradeRequired, NamespaceClosed: nothing more was deleted.
            StoreError: the store did not answer; running again goes on.
        """
        stage, slots, objects = Stage.NOTHING, 0, 0
        for _ in range(_STEPS):
            seen = await self._manifest.see()
            stage = self._stage_of(seen)
            if stage in {Stage.NOTHING, Stage.WAIT}:
                break
            if stage is Stage.SWEEP:
                collected = await self._sweep(seen.manifest)
                slots, objects = slots + collected.slots, objects + collected.objects
            if not await self._advance(seen, stage):
                break
        return Collection(stage, slots, objects)

    async def tidy(self) -> Collection:
        """Run, and see to what no collection is due for: what was merged, or came too late, since the last one.

        A log that is written to comes to its next collection by itself; one that lies idle never would. Lists the log's
        objects, so it is for now and then. Raises as `run`.
        """
        done = await self.run()
        if done.stage is not Stage.NOTHING:
            return done
        seen = await self._manifest.see()
        if self._stage_of(seen) is not Stage.NOTHING:
            return done
        watermark = seen.manifest.gc_watermark
        # Up to the watermark nothing is alive, whenever it was made (I3).
        dead = [row.key for row in await self._slots() if _seq_of(row.key) <= watermark]
        await self._discard(dead)
        if await self._loose(seen.store_time - self._grace_ms):
            await self._manifest.swap(seen, begun(seen.manifest))
            done = await self.run()
        return Collection(done.stage, done.slots + len(dead), done.objects)

    def _stage_of(self, seen: SeenManifest) -> Stage:
        return stage_of(seen.manifest, seen.store_time, self._grace_ms)

    async def _advance(self, seen: SeenManifest, stage: Stage) -> bool:
        """Record that a stage was passed; False if somebody else changed the manifest, or the answer was lost."""
        manifest = seen.manifest
        if stage is Stage.MOVE:
            new = begun(manifest)
        elif stage is Stage.CONFIRM:
            new = msgspec.structs.replace(manifest, gc_moved_at=seen.store_time)
        else:
            # The sweep took its time: others may have compacted meanwhile.
            epoch, seen = manifest.gc_epoch, await self._manifest.see()
            if seen.manifest.gc_epoch != epoch:
                return True
            new = msgspec.structs.replace(seen.manifest, gc_swept=epoch)
        return isinstance(await self._manifest.swap(seen, new), Swapped)

    async def _sweep(self, decided: Manifest) -> Collection:
        """Delete what ``decided``, a manifest whose time has come, allows."""
        slots = await self._slots()
        loose = await self._loose(decided.gc_moved_at)
        dead = [row.key for row in slots if _seq_of(row.key) <= decided.gc_watermark]
        await self._discard(dead)
        await self._discard(loose)
        return Collection(Stage.SWEEP, len(dead), len(loose))

    async def _discard(self, keys: list[str]) -> None:
        await discard(self._store, keys, self._layout.at(self._layout.manifest(self._incarnation)))

    async def _slots(self) -> list[ObjectInfo]:
        return await self._list(self._layout.entries(self._incarnation))

    async def _loose(self, before_ms: int) -> list[str]:
        """List segments and indexes from before a store's time that no manifest names."""
        layout, incarnation = self._layout, self._incarnation
        rows = await self._list(layout.segments(incarnation)) + await self._list(layout.indexes(incarnation))
        # After the listings: whatever they show and it names stays.
        named = {layout.at(key) for key in (await self._manifest.read()).named}
        return [row.key for row in rows if row.key not in named and row.modified + _SKEW_MS < before_ms]

    async def _list(self, prefix: str) -> list[ObjectInfo]:
        return [row async for row in self._store.list(self._layout.at(prefix))]


def _seq_of(key: str) -> int:
    """Return the slot's number."""
    return int(key.rpartition("/")[2])
