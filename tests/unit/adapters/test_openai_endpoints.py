"""Both model adapters over real HTTP against a server that misbehaves in every documented way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator

import numpy as np
import pytest
from doubles.scripted_model_server import Fault, ScriptedModelServer

from relayer.adapters.openai_compatible import (
    Endpoint,
    EndpointLimits,
    OpenAIChat,
    OpenAIEmbedder,
    endpoint_model,
)
from relayer.adapters.openai_compatible.endpoint import RetryBudget, retry_after_seconds
from relayer.adapters.system import SystemClock, SystemRandomness
from relayer.errors import (
    ConfigurationError,
    EmbedderUnavailable,
    ModelAnswerUnusable,
    ModelUnavailable,
    QueueFull,
)
from relayer.ports import ChatMessage
from relayer.testing.hashing_embedder import HashingEmbedder

KEY = "sk-a-key-that-nobody-must-see"
QUICK = EndpointLimits(connect=1.0, total=1.0)
ASK = (ChatMessage("system", "Answer in JSON."), ChatMessage("user", "Hello."))
SCHEMA = {"type": "object"}
TEXTS = ["a red bicycle", "a green boat", "rain on the roof"]


class DriftingClock(SystemClock):
    """Sleeps for nothing, and says that the time has passed."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return time.monotonic() + sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


@pytest.fixture
def server() -> Iterator[ScriptedModelServer]:
    with ScriptedModelServer() as running:
        yield running


@pytest.fixture
def clock() -> DriftingClock:
    return DriftingClock()


Make = Callable[..., Endpoint]


@pytest.fixture
async def endpoint(server, clock) -> AsyncIterator[Make]:
    made: list[Endpoint] = []

    def make(limits: EndpointLimits = EndpointLimits(), url: str = "") -> Endpoint:  # noqa: B008 - frozen
        made.append(Endpoint(url or server.url, clock, SystemRandomness(), KEY, limits))
        return made[-1]

    yield make
    for one in made:
        await one.close()


async def complete(chat: OpenAIChat, seconds: float = 30.0) -> str:
    return (await chat.complete(ASK, schema=SCHEMA, max_tokens=100, seconds=seconds)).text


class TestEmbeddings:
    async def test_vectors_come_in_the_order_of_the_texts_and_have_length_one(self, endpoint, server):
        embedder = OpenAIEmbedder(endpoint(), "a-model")
        await embedder.start()
        assert embedder.model == endpoint_model("a-model", 64)
        server.will_embed(Fault.SHUFFLED)
        rows = await embedder.embed(TEXTS)
        expected = await HashingEmbedder(64).embed(TEXTS)
        assert rows.dtype == np.float32
        np.testing.assert_allclose(rows, expected, atol=1e-6)

    async def test_decimal_numbers_are_read_as_well_as_base64(self, endpoint, server):
        embedder = OpenAIEmbedder(endpoint(), "a-model", 64)
        server.will_embed(Fault.AS_DECIMALS)
        decimals = await embedder.embed(TEXTS)
        np.testing.assert_allclose(decimals, await embedder.embed(TEXTS), atol=1e-6)

    async def test_a_server_that_refuses_base64_is_asked_for_decimals_from_then_on(self, endpoint, server):
        embedder = OpenAIEmbedder(endpoint(), "a-model", 64)
        server.will_embed(Fault.REJECTED)
        await embedder.embed(TEXTS)
        await embedder.embed(TEXTS)
        forms = [request.body["encoding_format"] for request in server.requests]
        assert forms == ["base64", "float", "float"]

    async def test_many_texts_travel_in_batches_over_few_connections(self, endpoint, server):
        embedder = OpenAIEmbedder(endpoint(EndpointLimits(at_once=2)), "a-model", 64)
        texts = [f"text number {number}" for number in range(300)]
        rows = await embedder.embed(texts)
        assert rows.shape == (300, 64)
        assert [len(request.body["input"]) for request in server.requests] == [64, 64, 64, 64, 44]
        assert server.most_at_once <= 2
        np.testing.assert_allclose(rows[299], (await HashingEmbedder(64).embed(texts[299:]))[0], atol=1e-6)

    async def test_a_text_that_the_server_refuses_is_halved_and_spoils_no_other(self, endpoint, server):
        embedder = OpenAIEmbedder(endpoint(), "a-model", 64)
        await embedder.embed(["warm up"])
        server.will_embed(Fault.REJECTED, Fault.REJECTED)
        rows = await embedder.embed(["long " * 200, "short"])
        assert rows.shape == (2, 64)
        sizes = [[len(text) for text in request.body["input"]] for request in server.requests[1:]]
        assert sizes == [[1000, 5], [1000], [500], [5]]

    @pytest.mark.parametrize(
        ("fault", "said"),
        [
            (Fault.WRONG_DIMENSION, "65 numbers instead of 64"),
            (Fault.NOT_A_NUMBER, "no number"),
            (Fault.ZERO, "zero"),
            (Fault.WRONG_COUNT, "2 vectors for 3 texts"),
            (Fault.NOT_JSON, "not JSON"),
            (Fault.NO_CONTENT, "no vectors"),
            (Fault.SERVER_ERROR, "HTTP 500"),
            (Fault.RESET, "connection"),
            (Fault.CUT, "connection"),
            (Fault.UNAUTHORIZED, "key"),
            (Fault.REDIRECT, "redirects"),
        ],
    )
    async def test_no_vector_of_a_bad_answer_is_used(self, endpoint, server, fault, said):
        embedder = OpenAIEmbedder(endpoint(), "a-model", 64)
        server.will_embed(*[fault] * 3)
        with pytest.raises(EmbedderUnavailable, match=said) as caught:
            await embedder.embed(TEXTS)
        assert said in embedder.trouble
        assert KEY not in str(caught.value)
        assert "bicycle" not in str(caught.value)

    async def test_one_bad_answer_is_asked_for_again(self, endpoint, server):
        embedder = OpenAIEmbedder(endpoint(), "a-model", 64)
        server.will_embed(Fault.NOT_A_NUMBER, Fault.CUT)
        assert (await embedder.embed(TEXTS)).shape == (3, 64)
        assert embedder.trouble == ""

    async def test_the_key_travels_as_a_bearer_token_and_is_in_no_representation(self, endpoint, server):
        made = endpoint()
        await OpenAIEmbedder(made, "a-model", 64).embed(TEXTS)
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
        assert KEY not in repr(made)


class TestTheStart:
    async def test_another_dimension_than_the_settings_say_is_named(self, endpoint):
        with pytest.raises(ConfigurationError, match=r"--embeddings-dimension: is 32, .* 64 numbers"):
            await OpenAIEmbedder(endpoint(), "a-model", 32).start()

    async def test_a_missing_key_is_asked_for_by_name(self, endpoint, server):
        server.will_embed(Fault.UNAUTHORIZED)
        server.will_chat(Fault.UNAUTHORIZED)
        with pytest.raises(ConfigurationError, match="MEMRELAY_EMBEDDINGS_API_KEY"):
            await OpenAIEmbedder(endpoint(), "a-model").start()
        with pytest.raises(ConfigurationError, match="MEMRELAY_MODEL_API_KEY"):
            await OpenAIChat(endpoint(), "a-model").start()

    async def test_a_wrong_url_or_model_is_told_with_what_was_asked(self, endpoint, server):
        server.will_embed(Fault.NO_MODEL)
        with pytest.raises(ConfigurationError, match=r"/v1/embeddings with --embeddings-model a-model"):
            await OpenAIEmbedder(endpoint(), "a-model").start()
        server.will_chat(Fault.NO_MODEL)
        with pytest.raises(ConfigurationError, match=r"/v1/chat/completions with --model-name a-model"):
            await OpenAIChat(endpoint(), "a-model").start()

    async def test_an_endpoint_that_is_away_can_wait_when_the_dimension_is_known(self, endpoint):
        away = "http://127.0.0.1:9/v1"
        with pytest.raises(ConfigurationError, match="--embeddings-dimension"):
            await OpenAIEmbedder(endpoint(url=away), "a-model").start()
        with pytest.raises(EmbedderUnavailable):
            await OpenAIEmbedder(endpoint(url=away), "a-model", 64).start()
        with pytest.raises(ModelUnavailable):
            await OpenAIChat(endpoint(url=away), "a-model").start()


class TestChat:
    async def test_the_answer_comes_with_what_it_cost(self, endpoint, server):
        server.will_chat('{"ok": true}')
        answer = await OpenAIChat(endpoint(), "a-model").complete(
            ASK, schema=SCHEMA, max_tokens=77, seconds=30
        )
        assert answer.text == '{"ok": true}'
        assert answer.tokens > 0
        body = server.requests[0].body
        assert [message["role"] for message in body["messages"]] == ["system", "user"]
        assert (body["model"], body["max_tokens"], body["temperature"]) == ("a-model", 77, 0)
        assert body["response_format"]["json_schema"] == {"name": "answer", "strict": True, "schema": SCHEMA}

    async def test_a_server_without_schemas_is_asked_more_plainly_and_that_is_remembered(
        self, endpoint, server
    ):
        chat = OpenAIChat(endpoint(), "a-model")
        server.will_chat(Fault.REJECTED, Fault.REJECTED, Fault.REJECTED)
        await complete(chat)
        await complete(chat)
        asked = [request.body.get("response_format", {}).get("type") for request in server.requests]
        assert asked == ["json_schema", "json_schema", "json_object", None, None]

    @pytest.mark.row("AM-16")
    async def test_an_effort_goes_with_the_request_and_is_left_out_where_it_is_not_known(
        self, endpoint, server
    ):
        chat = OpenAIChat(endpoint(), "a-model")

        async def think(effort: str) -> object:
            await chat.complete(ASK, schema=SCHEMA, max_tokens=100, seconds=30.0, effort=effort)
            return server.requests[-1].body.get("reasoning_effort")

        assert await think("low") == "low"
        assert await think("") is None
        server.will_chat(*[Fault.REJECTED] * 5)
        assert await think("xhigh") is None
        assert await think("low") is None
        assert len(server.requests) == 2 + 6 + 1

    async def test_a_request_that_no_form_helps_is_not_the_forms_fault(self, endpoint, server):
        chat = OpenAIChat(endpoint(), "a-model")
        server.will_chat(*[Fault.REJECTED] * 5)
        with pytest.raises(ModelAnswerUnusable, match="request_rejected"):
            await complete(chat)
        await complete(chat)
        assert server.requests[-1].body["response_format"]["type"] == "json_schema"

    @pytest.mark.parametrize(
        ("fault", "reason"),
        [(Fault.REFUSAL, "refused"), (Fault.TRUNCATED, "truncated"), (Fault.EMPTY, "empty")],
    )
    async def test_an_answer_that_is_none_is_not_asked_for_again_at_once(
        self, endpoint, server, fault, reason
    ):
        server.will_chat(fault)
        with pytest.raises(ModelAnswerUnusable) as caught:
            await complete(OpenAIChat(endpoint(), "a-model"))
        assert caught.value.reason == reason
        assert caught.value.tokens > 0
        assert len(server.requests) == 1

    @pytest.mark.parametrize(
        "fault",
        [Fault.SERVER_ERROR, Fault.RESET, Fault.CUT, Fault.NOT_JSON, Fault.NO_CONTENT, Fault.UNAUTHORIZED],
    )
    async def test_what_is_no_answer_makes_the_model_unavailable(self, endpoint, server, fault):
        server.will_chat(*[fault] * 3)
        with pytest.raises(ModelUnavailable) as caught:
            await complete(OpenAIChat(endpoint(), "a-model"))
        assert KEY not in str(caught.value)
        assert "Hello" not in str(caught.value)


class TestTime:
    @pytest.mark.parametrize("fault", [Fault.HANG, Fault.SLOW])
    async def test_a_server_that_never_ends_is_left_at_the_callers_bound(self, endpoint, server, fault):
        server.will_chat(fault)
        begun = time.monotonic()
        with pytest.raises(ModelUnavailable, match="no answer within"):
            await complete(OpenAIChat(endpoint(), "a-model"), seconds=0.2)
        assert time.monotonic() - begun < 2.0

    async def test_a_cancelled_caller_hangs_up_on_the_server(self, endpoint, server):
        server.hold()
        asking = asyncio.create_task(complete(OpenAIChat(endpoint(), "a-model")))
        await asyncio.to_thread(server.wait_for, lambda: server.under_way == 1)
        asking.cancel()
        await asyncio.to_thread(server.wait_for, lambda: server.under_way == 0)
        assert server.left == 1

    async def test_retry_after_is_waited_for(self, endpoint, server, clock):
        server.will_chat(Fault.TOO_MANY)
        await complete(OpenAIChat(endpoint(), "a-model"))
        assert len(server.requests) == 2
        assert sum(clock.slept) >= 2.0

    async def test_no_wait_goes_beyond_the_callers_deadline(self, endpoint, server, clock):
        server.will_chat(Fault.BUSY)
        with pytest.raises(ModelUnavailable) as caught:
            await complete(OpenAIChat(endpoint(), "a-model"), seconds=1.5)
        assert caught.value.retry_after == 2.0
        assert len(server.requests) == 1
        assert clock.slept == []

    async def test_after_several_failures_nothing_is_asked_for_a_while(self, endpoint, server, clock):
        chat = OpenAIChat(endpoint(), "a-model")
        server.will_chat(*[Fault.SERVER_ERROR] * 3)
        with pytest.raises(ModelUnavailable):
            await complete(chat)
        with pytest.raises(ModelUnavailable, match="HTTP 500"):
            await complete(chat)
        assert len(server.requests) == 3
        clock.slept.append(60.0)
        await complete(chat)
        assert chat.trouble == ""

    async def test_requests_under_way_are_few_and_those_that_wait_are_bounded(self, endpoint, server):
        chat = OpenAIChat(endpoint(EndpointLimits(at_once=2, waiting=5)), "a-model")
        server.hold()
        asking = [asyncio.create_task(complete(chat)) for _ in range(5)]
        await asyncio.to_thread(server.wait_for, lambda: server.under_way == 2)
        with pytest.raises(QueueFull):
            await complete(chat)
        server.release()
        await asyncio.gather(*asking)
        assert server.most_at_once == 2


class TestPatience:
    def test_an_outage_pays_for_few_retries(self):
        budget = RetryBudget()
        assert sum(budget.take() for _ in range(100)) == 10
        for _ in range(10):
            budget.succeeded()
        assert [budget.take(), budget.take()] == [True, False]

    def test_retry_after_is_seconds_or_a_date(self):
        assert retry_after_seconds("7", 0) == 7.0
        assert retry_after_seconds("Thu, 01 Jan 1970 00:01:00 GMT", 10_000) == 50.0
        assert retry_after_seconds("Thu, 01 Jan 1970 00:01:00 GMT", 90_000) == 0.0
        for nonsense in (None, "soon", "nan", ""):
            assert retry_after_seconds(nonsense, 0) is None
