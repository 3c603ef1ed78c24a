"""The rotate use case: seal a namespace again under a secret of another generation, and erase what it was before.

Requests that arrive meanwhile wait for the end, and are then refused with the new generation, which a gateway takes and
sends them again with. What was acknowledged before is there afterwards, and so is what a repeated request needs.
"""

from __future__ import annotations

from functools import partial

from relayer.access.accounts import Access
from relayer.domain.namespace import Custody, Pointer, PointerState
from relayer.errors import Refused, WrongCustody, WrongGeneration
from relayer.lib.work import Deadline
from relayer.log import creation
from relayer.log.rotation import rotate
from relayer.namespaces.context import Context
from relayer.use_cases.erase import show
from relayer.wire.memories import RotateKeysResponse
from relayer.wire.sealed_keys import SealedKey


async def rotate_keys(ctx: Context, access: Access, new: SealedKey, deadline: Deadline) -> RotateKeysResponse:
    """Rotate the keys of a namespace. If the same request was carried out before, nothing is changed.

    Args:
        ctx: the services.
        access: the access with the present secret.
        new: the secret of the new generation, of the same namespace and agent.
        deadline: when the response is due; the work goes on after it.

    Raises:
        Refused: ``not_found``; ``old_generation``: the new one is not above the present one; or ``rotation_begun``: an
            interrupted rotation has another one.
        WrongCustody: the relayer keeps the secret.
        WrongGeneration, WrongNamespaceKey: the access has another secret than the namespace.
        RelayerError: as `relayer.log.rotation.rotate`.
    """
    if access.custody is not Custody.AGENT:
        raise WrongCustody("the relayer keeps the secret of this namespace, and rotates its own key")
    async with deadline.step("open"):
        pointer = await creation.find(ctx.ports, access.account, access.namespace)
    if pointer is None or pointer.state is not PointerState.LIVE:
        raise Refused("not_found", "no such namespace in this account")
    if pointer.custody is not access.custody:
        raise WrongCustody(f"this namespace is kept under custody {pointer.custody.value}")
    if pointer.generation == new.generation:
        return RotateKeysResponse(namespace=access.namespace, generation=new.generation)
    if pointer.generation != access.generation:
        raise WrongGeneration(pointer.generation)
    if new.generation < pointer.generation:
        raise Refused(
            "old_generation", "a new generation is above the present one: see the list of namespaces"
        )
    if pointer.next and pointer.next_generation != new.generation:
        raise Refused("rotation_begun", "continue with next_generation of the list of namespaces")
    async with deadline.step("rotate"):
        return await ctx.namespaces.rotate(access, partial(_rotated, ctx, access, pointer, new))


async def _rotated(ctx: Context, access: Access, pointer: Pointer, new: SealedKey) -> RotateKeysResponse:
    opened = await creation.open_existing(ctx.ports, pointer, access.account, access.secret)
    if opened is None:
        raise Refused("not_found", "no such namespace in this account")
    done = await rotate(ctx.ports, access.account, pointer, opened.keys, new)
    seen = await ctx.erasures.erase_at_once(done.report)
    return RotateKeysResponse(
        namespace=access.namespace,
        generation=done.pointer.generation,
        entries=done.entries,
        records=done.records,
        erasure=show(seen.report),
    )
