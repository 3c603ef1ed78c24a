"""What a request that is not let in leaves behind: nothing of its key, on the replica that knows of a revocation and on others."""

from __future__ import annotations

from dataclasses import replace

from border import Border, border
from doubles.set_clocks import AheadClock

from relayer.adapters.memory_store import MemoryStore
from relayer.wire import codec as base64url
from relayer.wire.signing import Revocations, Right

MEMORY = {"items": [{"text": "The spare key hangs behind the clock."}]}


async def _revoke(at: Border, agent_key: bytes) -> None:
    account = at.gateway.root.account_identity
    encoded = Revocations(bytes(account.verify_key), 1, (agent_key,)).issue(account)
    admin = replace(at.gateway, agent="admin", rights=(Right.ADMIN,))
    body = {"revocations": base64url.encode(encoded)}
    answer = await at.call("PUT", "/v1/account/revocations", body, key=False, gateway=admin)
    assert answer.status_code == 200


def _live_keys(at: Border) -> list[bytes]:
    """The agents whose opened keys the relayer holds."""
    return [sealed.agent_key for _, sealed in at.relayer.acceptance._sealed_keys.items()]


async def test_a_refused_request_of_a_revoked_agent_leaves_no_live_key() -> None:
    async with border() as at:
        agent_key = bytes(at.gateway.identity.verify_key)
        assert (await at.call("POST", "/v1/memories", MEMORY)).status_code == 200
        assert _live_keys(at) == [agent_key]
        await _revoke(at, agent_key)
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
        await _revoke(here, agent_key)
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
