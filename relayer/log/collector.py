"""Deletion of objects: garbage collection of what the log no longer needs, and what erasures delete permanently.

Erasures call `destroy`, which deletes every version of an object, and `left_of`, which checks that nothing remains. The
collector calls `discard`, which costs fewer requests and deletes older versions only where the store keeps them. All of
them make a small number of requests at the same time, and may be repeated.

`Collector` deletes the objects that the log no longer needs. Apart from erasures, no other code deletes them. These are slots that segments cover, segments that were merged or lost a race, and indexes that were replaced. Any relayer
may collect, at any time, without a namespace's key. Each step is one swap of the manifest, so that a relayer that stops or
stalls anywhere leaves a state from which the next one continues:

    move      gc_watermark = snap_seq, gc_epoch + 1, gc_moved_at = 0: from here on, slots up to it count as deleted (I2)
    confirm   gc_moved_at = the store's time of a response that **showed** the moved watermark. The time of the move itself
              would be a guess made before it: a relayer may stall for hours between reading the time and swapping
    wait      until that is longer ago than any response is trusted (I11)
    sweep     delete slots up to the watermark, and the segments and indexes that no manifest names
    done      gc_swept = gc_epoch

A store that keeps versions is useful for keys that are written again, but a key of the log never is. An erasure must not
have to search for versions that a collection left behind, so objects are deleted together with their versions.

An object that no manifest names may be an upload that its compactor is about to name. The compactor read the manifest
before the upload, and the confirming swap replaced that manifest after ``gc_moved_at``: an upload from before that time is
named by now, or its swap will be refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import partial

import msgspec

from relayer.domain.namespace import Manifest
from relayer.errors import VersionsHidden
from relayer.lib.work import in_windows
from relayer.log.objects import Layout, LogPorts, ManifestView, SeenManifest
from relayer.ports import Found, ObjectInfo, ObjectStore, Swapped

# A small number, because requests use the store at the same time.
_AT_ONCE = 4


async def destroy(store: ObjectStore, keys: Iterable[str]) -> int:
    """Delete objects permanently, with every version of them.

    Returns:
        The number of versions deleted; an object counts as one if its versions may not be listed.

    Raises:
        VersionsHidden: the store keeps versions and does not list them, so nothing can be deleted permanently.
    """
    return sum(await in_windows(partial(_destroy, store), keys, _AT_ONCE))


async def discard(store: ObjectStore, keys: Iterable[str], swapped: str) -> None:
    """Delete objects that will not be read again, with their older versions if the store keeps versions.

    Listing the versions of each key would cost as much as the append that wrote it. So only the versions of ``swapped`` are
    counted: a store that shows more than one version of it keeps versions. If versions are kept but may not be listed, they
    are not deleted. Only an erasure needs them to be deleted, and it reports that it cannot go on.

    Args:
        store: the store.
        keys: the keys of the objects to delete.
        swapped: the key of an object that was swapped since versioning was last switched on or off in the store.
    """
    rest = list(keys)
    if not rest:
        return
    try:
        keeps_versions = await store.versions(swapped) > 1
    except VersionsHidden:
        keeps_versions = False
    # Never delete first and purge later: a key that was deleted but has versions left is not listed any more.
    if keeps_versions:
        await in_windows(partial(_destroy, store), rest, _AT_ONCE)
    else:
        await in_windows(store.delete, rest, _AT_ONCE)


async def left_of(store: ObjectStore, keys: Iterable[str]) -> int:
    """Return the number of versions that the store still keeps of these keys. Raises as `destroy`."""
    return sum(await in_windows(partial(_left, store), keys, _AT_ONCE))


async def _destroy(store: ObjectStore, key: str) -> int:
    try:
        return await store.purge(key)
    except VersionsHidden as error:
        if error.kept:
            raise
    await store.delete(key)
    return 1


async def _left(store: ObjectStore, key: str) -> int:
    try:
        return await store.versions(key)
    except VersionsHidden as error:
        if error.kept:
            raise
    return int(isinstance(await store.get(key, byte_range=(0, 1)), Found))


GRACE_MS = 60 * 60 * 1000
# The maximum difference between the times in a listing and those of responses, which other machines of the store may have given.
_SKEW_MS = 10 * 1000
_STEPS = 5  # one run goes through all stages if it need not wait


class CollectionStage(Enum):
    """The next step of a collection."""

    NOTHING = "nothing"
    MOVE = "move"
    CONFIRM = "confirm"
    WAIT = "wait"
    SWEEP = "sweep"


@dataclass(frozen=True, slots=True)
class Collection:
    """The result of a run: the next stage, and the numbers of slots and of other objects that were deleted."""

    stage: CollectionStage
    slots: int = 0
    objects: int = 0


def stage_of(manifest: Manifest, now_ms: int, grace_ms: int) -> CollectionStage:
    """Return the next stage of a collection.

    The ``manifest`` was just read, at the store's time ``now_ms``. Slots stay for ``grace_ms`` after the watermark was visible
    to all.
    """
    if manifest.gc_epoch and not manifest.gc_moved_at:
        return CollectionStage.CONFIRM
    if manifest.gc_swept < manifest.gc_epoch:
        if manifest.gc_moved_at - now_ms > max(grace_ms, GRACE_MS):
            # The store's clock was ahead then. Confirming again avoids waiting until the present clock has caught up.
            return CollectionStage.CONFIRM
        return CollectionStage.SWEEP if now_ms - manifest.gc_moved_at >= grace_ms else CollectionStage.WAIT
    return CollectionStage.MOVE if manifest.snap_seq > manifest.gc_watermark else CollectionStage.NOTHING


def begun(manifest: Manifest) -> Manifest:
    """Return the manifest for the first swap of the next collection; no other collection may be in progress."""
    return msgspec.structs.replace(
        manifest, gc_watermark=manifest.snap_seq, gc_epoch=manifest.gc_epoch + 1, gc_moved_at=0
    )


class Collector:
    """The garbage collector of one incarnation. Only one run at a time is allowed.

    Slots stay for ``grace_ms`` after the moved watermark was visible to all.
    """

    def __init__(self, ports: LogPorts, account: str, incarnation: bytes, grace_ms: int = GRACE_MS) -> None:
        self._store = ports.store
        self._incarnation = incarnation
        self._grace_ms = grace_ms
        # A view of its own: the collector must have read the manifest itself before it deletes, and no request waits for it.
        self._manifest = ManifestView(ports, account, incarnation)

    async def run(self) -> Collection:
        """Go as far as possible without waiting.

        Raises:
            CorruptNamespace, UpgradeRequired, NamespaceClosed: nothing more was deleted.
        """
        stage, slots, objects = CollectionStage.NOTHING, 0, 0
        for _ in range(_STEPS):
            seen = await self._manifest.see()
            stage = self._stage_of(seen)
            if stage in {CollectionStage.NOTHING, CollectionStage.WAIT}:
                break
            if stage is CollectionStage.SWEEP:
                collected = await self._sweep(seen.manifest)
                slots, objects = slots + collected.slots, objects + collected.objects
            if not await self._advance(seen, stage):
                break
        return Collection(stage, slots, objects)

    async def tidy(self) -> Collection:
        """Run, and also delete what was merged, or written too late, since the last collection.

        A log that is written to gets to its next collection by itself, but an idle one never would. This lists all objects
        of the log, so it is not for every run. Raises as `run`.
        """
        done = await self.run()
        if done.stage is not CollectionStage.NOTHING:
            return done
        seen = await self._manifest.see()
        if self._stage_of(seen) is not CollectionStage.NOTHING:
            return done
        dead = await self._dead(seen.manifest.gc_watermark)
        await self._discard(dead)
        if await self._loose(seen.store_time - self._grace_ms):
            await self._manifest.swap(seen, begun(seen.manifest))
            done = await self.run()
        return Collection(done.stage, done.slots + len(dead), done.objects)

    def _stage_of(self, seen: SeenManifest) -> CollectionStage:
        return stage_of(seen.manifest, seen.store_time, self._grace_ms)

    async def _advance(self, seen: SeenManifest, stage: CollectionStage) -> bool:
        """Record in the manifest that a stage is done; False if others changed the manifest, or the response was lost."""
        manifest = seen.manifest
        if stage is CollectionStage.MOVE:
            new = begun(manifest)
        elif stage is CollectionStage.CONFIRM:
            new = msgspec.structs.replace(manifest, gc_moved_at=seen.store_time)
        else:
            # The sweep took a while, so other relayers may have compacted in the meantime.
            epoch, seen = manifest.gc_epoch, await self._manifest.see()
            if seen.manifest.gc_epoch != epoch:
                return True
            new = msgspec.structs.replace(seen.manifest, gc_swept=epoch)
        return isinstance(await self._manifest.swap(seen, new), Swapped)

    async def _sweep(self, decided: Manifest) -> Collection:
        """Delete what ``decided`` allows, a manifest for which the wait is over."""
        dead = await self._dead(decided.gc_watermark)
        loose = await self._loose(decided.gc_moved_at)
        await self._discard(dead)
        await self._discard(loose)
        return Collection(CollectionStage.SWEEP, len(dead), len(loose))

    async def _discard(self, keys: list[str]) -> None:
        await discard(self._store, keys, Layout.manifest(self._incarnation))

    async def _dead(self, watermark: int) -> list[str]:
        """List the keys of slots up to the watermark: none of them is valid, no matter when it was written (I3)."""
        rows = await self._list(Layout.entries(self._incarnation))
        return [row.key for row in rows if seq_of(row.key) <= watermark]

    async def _loose(self, before_ms: int) -> list[str]:
        """List the keys of segments and indexes that no manifest names and that are older than a time of the store."""
        incarnation = self._incarnation
        rows = await self._list(Layout.segments(incarnation)) + await self._list(Layout.indexes(incarnation))
        # The manifest is read after the listings, so that an object they show and it names by then is not deleted.
        named = (await self._manifest.read()).named
        return [row.key for row in rows if row.key not in named and row.modified + _SKEW_MS < before_ms]

    async def _list(self, prefix: str) -> list[ObjectInfo]:
        return [row async for row in self._store.list(prefix)]


def seq_of(key: str) -> int:
    """Return the number at the end of a key: of a log entry, or of a run of a backup."""
    return int(key.rpartition("/")[2])
