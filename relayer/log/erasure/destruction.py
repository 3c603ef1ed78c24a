"""Destroying objects so that nothing of them stays, older versions included."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from relayer.errors import VersionsHidden
from relayer.lib.work import in_windows
from relayer.ports import Found, ObjectStore

# Few, because requests want the store as well.
_AT_ONCE = 4


async def destroy(store: ObjectStore, keys: Iterable[str]) -> int:
    """Destroy objects with every version of them; returns how many there were to destroy.

    Raises:
        VersionsHidden: the store keeps versions and does not show them: nothing can be destroyed there.
        StoreError: the store did not answer; doing it again is safe.
    """
    return sum(await in_windows(partial(_destroy, store), keys, _AT_ONCE))


async def discard(store: ObjectStore, keys: Iterable[str], swapped: str) -> None:
    """Delete objects that nobody will ask for again, and where a store keeps versions, those as well.

    A listing for each name would cost as much as the append that wrote it. So one name is asked about: a store that shows
    more than one version of it keeps versions. Where versions are kept and may not be listed they stay: that stops an
    erasure, which says so, but nothing else.

    Args:
        store: where.
        keys: of which objects.
        swapped: the key of an object that was swapped since the store was last asked to keep versions, or not to.

    Raises:
        StoreError: the store did not answer; doing it again is safe.
    """
    rest = list(keys)
    if not rest:
        return
    try:
        keeps_versions = await store.versions(swapped) > 1
    except VersionsHidden:
        keeps_versions = False
    # Never first the one and then the other: a name that is deleted and has versions left is not listed any more.
    await in_windows(partial(_destroy if keeps_versions else _delete, store), rest, _AT_ONCE)


async def left_of(store: ObjectStore, keys: Iterable[str]) -> int:
    """Count what the store still keeps under these names. Raises as `destroy`."""
    return sum(await in_windows(partial(_left, store), keys, _AT_ONCE))


async def _destroy(store: ObjectStore, key: str) -> int:
    try:
        return await store.purge(key)
    except VersionsHidden as error:
        if error.kept:
            raise
    await store.delete(key)
    return 1


async def _delete(store: ObjectStore, key: str) -> int:
    await store.delete(key)
    return 1


async def _left(store: ObjectStore, key: str) -> int:
    try:
        return await store.versions(key)
    except VersionsHidden as error:
        if error.kept:
            raise
    return int(isinstance(await store.get(key, byte_range=(0, 1)), Found))
