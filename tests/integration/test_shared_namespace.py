"""Applications of one account read one another's namespaces where the account grants it, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from border import border

from relayer.wire.sealing import FIRST_GENERATION
from relayer.wire.signing import Right

TEXT = "I only drink oat milk coffee before noon"
ASKED = {"query": "Which coffee do I drink?", "floor": 0, "namespace": "researcher"}


@pytest.mark.row("MW-51")
async def test_what_one_application_stored_is_read_by_another_one_that_was_granted_it():
    async with border() as at:
        await at.call("POST", "/v1/memories", {"items": [{"text": TEXT}]})
        secret = at.gateway.root.agent("researcher").namespace_secret("researcher", FIRST_GENERATION)
        key = at.memory_key()
        chatbot = replace(
            at.gateway, agent="chatbot", namespaces=("chatbot", "researcher"), rights=(Right.READ,)
        )
        shared = chatbot.memory_key(at.fleet_key, namespace="researcher", secret=secret)
        found = await at.call("POST", "/v1/recall", ASKED, key=shared, gateway=chatbot)
        assert found.status_code == 200, found.text
        assert [hit["text"] for hit in found.json()["memories"]] == [TEXT]
        written = {"items": [{"text": "I drink tea"}], "namespace": "researcher"}
        refused = await at.call("POST", "/v1/memories", written, key=shared, gateway=chatbot)
        assert refused.status_code in {401, 403, 404}
        stranger = replace(at.gateway, agent="stranger", namespaces=("stranger",))
        for sealed in (stranger.memory_key(at.fleet_key, namespace="researcher", secret=secret), key):
            refused = await at.call("POST", "/v1/recall", ASKED, key=sealed, gateway=stranger)
            assert refused.status_code in {401, 404}
            assert TEXT not in refused.text
