"""Permanent deletion of objects, including their older versions.

Erasures call `destroy`, which deletes every version of an object, and `left_of`, which checks that nothing remains. The
collector calls `discard`, which costs fewer requests and deletes older versions only where the store keeps them. All of
them make a small number of requests at the same time, and may be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from relayer.errors import VersionsHidden
from relayer.lib.work import in_windows
from relayer.ports import Found, ObjectStore

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
    await in_windows(partial(_destroy if keeps_versions else _delete, store), rest, _AT_ONCE)


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
