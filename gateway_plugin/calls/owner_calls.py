"""What only the account's owner may ask of a relayer: to destroy memories, and to take keys back.

The identity is a person's, see `gateway_plugin.keys.holders.RootHolder.person`; only the state of an erasure may be asked by an
agent, too.
"""

from __future__ import annotations

from gateway_plugin.calls.calling import DEFAULT_DEADLINE, Call, Caller
from gateway_plugin.calls.request_parts import body_of, segment
from gateway_plugin.identity import Identity
from relayer.wire import erasure, schemas
from relayer.wire.revocations import RevocationsRequest, RevocationsResponse, RevocationsView

__all__ = ["OwnerCalls"]


class OwnerCalls(Caller):
    """The owner's part of `gateway_plugin.client.RelayerClient`; raises and counts deadlines as that."""

    async def erase(
        self, identity: Identity, memory_id: str, *, deadline: float = DEFAULT_DEADLINE
    ) -> schemas.ForgetResponse:
        """Destroy a memory and what was made of it; the identity must be a person's, see `RootHolder.person`."""
        target = f"/v1/memories/{segment(memory_id)}?mode=erase"
        call = Call("erase", "DELETE", target, identity)
        return await self._write(call, identity, schemas.ForgetResponse, deadline)

    async def erase_namespace(
        self, identity: Identity, *, confirm: str | None = None, deadline: float = DEFAULT_DEADLINE
    ) -> erasure.EraseNamespaceResponse:
        """Say what is in a namespace, or destroy it: ``confirm`` is the answer's to the call without it."""
        request = erasure.EraseNamespaceRequest(dry_run=confirm is None, confirm=confirm)
        call = Call("erase", "POST", "/v1/namespaces/erase", identity, body=body_of(request))
        return await self._write(call, identity, erasure.EraseNamespaceResponse, deadline)

    async def erasure(
        self, identity: Identity, erasure_id: str, *, deadline: float = DEFAULT_DEADLINE
    ) -> erasure.ErasureView:
        """Ask how far an erasure is."""
        call = Call("erasure", "GET", f"/v1/erasures/{segment(erasure_id)}", identity, keyed=False)
        return await self._run(call, erasure.ErasureView, deadline)

    async def revocations(self, identity: Identity, *, deadline: float = DEFAULT_DEADLINE) -> RevocationsView:
        """Fetch the account's list of revocations; the identity must be a person's, see `RootHolder.person`."""
        call = Call("revocations", "GET", "/v1/account/revocations", identity, keyed=False)
        return await self._run(call, RevocationsView, deadline)

    async def revoke(
        self, identity: Identity, request: RevocationsRequest, *, deadline: float = DEFAULT_DEADLINE
    ) -> RevocationsResponse:
        """Put a newer list of revocations in place; the identity must be a person's."""
        call = Call("revoke", "PUT", "/v1/account/revocations", identity, body=body_of(request), keyed=False)
        return await self._run(call, RevocationsResponse, deadline)
