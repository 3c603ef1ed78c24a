"""What a request that is not let in leaves behind: nothing of its key, on the replica that knows of a revocation and on others."""

from __future__ import annotations

from border import Border, border, revoke
from doubles.set_clocks import AheadClock

from relayer.adapters.memory_store import MemoryStore

MEMORY = {"items": [{"text": "The spare key hangs behind the clock."}]}


def _live_keys(at: Border) -> list[bytes]:
    """The agents whose opened keys the relayer holds."""
    return [sealed.agent_key for _, sealed in at.relayer.acceptance._sealed_keys.items()]


async def test_a_refused_request_of_a_revoked_agent_leaves_no_live_key() -> None:
    async with border() as at:
        agent_key = bytes(at.gateway.identity.verify_key)
        assert (await at.call("POST", "/v1/memories", MEMORY)).status_code == 200
        assert _live_keys(at) == [agent_key]
        await revoke(at, at.gateway)
        for method, target, body in (
            ("POST", "/v1/recall", {"query": "key"}),
            ("POST", "/v1/memories", MEMORY),
        ):
            assert (await at.call(method, target, body)).json()["code"] == "unauthorized"
            assert _live_keys(at) == []
        assert len(at.relayer.context.namespaces) == 0


async def test_a_replica_that_learns_of_a_revocation_lets_go_of_the_keys_it_held() -> None:
    clock = AheadClock()
    store = MemoryStore(clock)
    async with border(store) as here, border(store, clock) as elsewhere:
        elsewhere.gateway = here.gateway
        agent_key = bytes(here.gateway.identity.verify_key)
        assert (await elsewhere.call("POST", "/v1/memories", MEMORY)).status_code == 200
        assert _live_keys(elsewhere) == [agent_key]
        await revoke(here, here.gateway)
        clock.ahead = 16.0
        refused = await elsewhere.call("POST", "/v1/recall", {"query": "key"})
        assert refused.json()["code"] == "unauthorized"
        assert _live_keys(elsewhere) == []
        assert len(elsewhere.relayer.context.namespaces) == 0


async def test_a_refused_namespace_leaves_no_live_key() -> None:
    async with border() as at:
        body = {**MEMORY, "namespace": "researcher/other"}
        assert (await at.call("POST", "/v1/memories", body)).json()["code"] == "unauthorized"
        assert _live_keys(at) == []
