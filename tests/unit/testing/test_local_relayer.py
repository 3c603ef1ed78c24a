from __future__ import annotations

import re

import httpx
import pytest

from gateway_plugin import MemoryPlugin
from relayer.adapters.memory_store import MemoryStore
from relayer.errors import StoreUnavailable
from relayer.lib import n_grams
from relayer.search import essentials
from relayer.testing import local_relayer as module
from relayer.testing.fake_clock import FakeClock
from relayer.testing.local_relayer import SigningGateway, local_relayer, threaded_relayer

FERRY = "The ferry leaves at nine."
BODY = {"items": [{"text": FERRY}]}


async def test_the_example_of_its_documentation_finds_what_it_stored():
    example = re.search(r"\n\n(    async with.*?)\n\n", module.__doc__, re.DOTALL).group(1)
    names = {"local_relayer": local_relayer}
    exec(f"async def main():\n{example}\n        return found.json()", names)
    assert [memory["text"] for memory in (await names["main"]())["memories"]] == [FERRY]


async def test_a_request_that_breaks_a_rule_is_refused_as_in_service():
    async with local_relayer() as relayer:
        answer = await relayer.call("POST", "/v1/memories", BODY, identity=SigningGateway().identity)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")


async def test_relayer_and_gateway_live_in_a_time_that_a_test_moves():
    clock = FakeClock()
    async with local_relayer(MemoryStore(clock), clock) as relayer:
        relayer.gateway = SigningGateway(clock=clock)
        assert (await relayer.call("POST", "/v1/memories", BODY)).status_code == 200
        key = relayer.memory_key(not_after=relayer.gateway.now + 60)
        await clock.advance(61)
        late = await relayer.call("POST", "/v1/recall", {"query": "ferry"}, key=key)
        assert late.status_code == 401
        assert (await relayer.call("POST", "/v1/recall", {"query": "ferry"})).status_code == 200


def test_a_plugin_that_blocks_calls_one_on_another_thread_until_it_ends(tmp_path):
    with threaded_relayer() as relayer:
        with MemoryPlugin(
            relayer.url, secret="5a" * 32, environ={"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
        ) as plugin:
            plugin.after_turn([{"role": "user", "content": "I only drink oat milk coffee."}])
            assert plugin.flush(20)
        assert relayer.store.count("create") > 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{relayer.url}/health", trust_env=False)


class _Down(MemoryStore):
    async def get(self, key, **_):
        raise StoreUnavailable(key)


def test_one_that_cannot_start_on_its_thread_says_why_to_its_caller():
    with pytest.raises(StoreUnavailable), threaded_relayer(lambda: local_relayer(_Down(FakeClock()))):
        pytest.fail("it started")


async def test_what_reads_texts_is_loaded_before_the_first_request():
    n_grams.heads_of.cache_clear()
    essentials._weights.cache_clear()
    async with local_relayer():
        assert n_grams.heads_of.cache_info().currsize == len(("prompts", "messages"))
        assert essentials._weights.cache_info().currsize == 1
