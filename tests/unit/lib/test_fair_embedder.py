"""The queue in front of the embedding model: who goes next, who waits, and who is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from relayer.errors import AccountBusy, QueueFull
from relayer.lib.work import EmbeddingLimits, FairEmbedder, Requester, current_requester
from relayer.ports import EmbeddingModel
from relayer.testing.hashing_embedder import HashingEmbedder


class _Gated:
    """An embedder of which each call ends when the test says so; ``begun`` are the first texts of the calls, in order."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.another = asyncio.Event()
        self._inner = HashingEmbedder()
        self._gates: list[asyncio.Event] = []

    @property
    def model(self) -> EmbeddingModel:
        return self._inner.model

    async def embed(self, texts: Sequence[str], *, query: bool = False, prompt: bool = False) -> np.ndarray:
        gate = asyncio.Event()
        self.begun.append(texts[0])
        self.another.set()
        self._gates.append(gate)
        await gate.wait()
        # One by one, because many at once go to a thread, which ends when it likes.
        return np.concatenate([await self._inner.embed([text], query=query) for text in texts])

    def forget(self) -> None: ...

    async def close(self) -> None: ...

    async def finish(self, number: int) -> None:
        """End the call that began as the ``number``-th, and let everything that follows from it happen."""
        self._gates[number].set()
        await _idle()


async def _idle() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


def _ask(
    shares: FairEmbedder, account: str, *texts: str, interactive: bool = True
) -> asyncio.Task[np.ndarray]:
    async def ask() -> np.ndarray:
        current_requester.set(Requester(account, interactive))
        return await shares.embed(texts)

    return asyncio.create_task(ask())


async def _rest(gated: _Gated, tasks: Sequence[asyncio.Task[np.ndarray]]) -> None:
    number = 0
    while not all(task.done() for task in tasks):
        # What embeds may do it on a thread.
        if number < len(gated.begun):
            await gated.finish(number)
            number += 1
        await asyncio.sleep(0)


async def test_a_flood_of_one_account_leaves_the_model_free_for_another() -> None:
    gated = _Gated()
    shares = FairEmbedder(gated)
    flood = [_ask(shares, "loud", f"loud {number}") for number in range(40)]
    await _idle()
    assert gated.begun == ["loud 0"]
    quiet = _ask(shares, "quiet", "quiet")
    await _idle()
    assert gated.begun == ["loud 0", "quiet"]
    await _rest(gated, [*flood, quiet])


async def test_who_had_least_of_the_model_goes_next() -> None:
    gated = _Gated()
    shares = FairEmbedder(gated, EmbeddingLimits(at_once=1))
    tasks = [_ask(shares, "long", "x" * 1000 + str(number)) for number in range(4)]
    await _idle()
    tasks += [_ask(shares, "short", f"y{number}") for number in range(4)]
    await _rest(gated, tasks)
    assert [text[0] for text in gated.begun] == list("xyyyyxxx")


async def test_queries_go_before_captures_and_captures_are_not_starved() -> None:
    gated = _Gated()
    shares = FairEmbedder(gated, EmbeddingLimits(at_once=1))
    tasks = [_ask(shares, "first", "first")]
    await _idle()
    tasks.append(_ask(shares, "capturing", "capture", interactive=False))
    tasks += [_ask(shares, f"account {number}", f"query {number}") for number in range(20)]
    await _rest(gated, tasks)
    assert 1 < gated.begun.index("capture") <= 9


async def test_after_a_query_one_place_is_kept_for_the_next(monkeypatch) -> None:
    gated = _Gated()
    shares = FairEmbedder(gated)
    asked = _ask(shares, "reader", "asked")
    await _idle()
    tasks = [_ask(shares, account, f"{account} {n}", interactive=False) for account in "ab" for n in range(2)]
    await gated.finish(0)
    assert gated.begun == ["asked", "a 0"]
    again = _ask(shares, "reader", "asked again")
    await _idle()
    assert gated.begun == ["asked", "a 0", "asked again"]
    monkeypatch.setattr("relayer.lib.work._ASKED_SECONDS", 0.0)
    await gated.finish(1)
    await gated.finish(2)
    assert sorted(gated.begun[3:]) == ["a 1", "b 0"], "nobody asks any more"
    await _rest(gated, [asked, again, *tasks])


async def test_an_account_with_too_much_waiting_is_told_to_come_back_and_others_are_not() -> None:
    gated = _Gated()
    shares = FairEmbedder(gated, EmbeddingLimits(at_once=1, waiting=3, waiting_of_account=2))
    tasks = [_ask(shares, "loud", f"{number}") for number in range(3)]
    await _idle()
    with pytest.raises(AccountBusy) as caught:
        await _ask(shares, "loud", "one more")
    assert caught.value.retry_after > 0
    tasks.append(_ask(shares, "quiet", "quiet"))
    await _idle()
    with pytest.raises(QueueFull) as full:
        await _ask(shares, "another", "another")
    assert not isinstance(full.value, AccountBusy)
    await _rest(gated, tasks)


async def test_a_query_waits_for_one_text_of_many_and_these_keep_their_order() -> None:
    gated = _Gated()
    shares = FairEmbedder(gated, EmbeddingLimits(at_once=1))
    texts = [f"{'word ' * (number % 7)}{number}" for number in range(30)]
    bulk = _ask(shares, "bulk", *texts, interactive=False)
    await _idle()
    query = _ask(shares, "query", "query")
    gated.another.clear()
    await gated.finish(0)
    await gated.another.wait()
    assert gated.begun == ["0", "query"]
    await _rest(gated, [bulk, query])
    assert np.array_equal(bulk.result(), await HashingEmbedder().embed(texts))


async def test_a_short_query_goes_beside_a_text_of_its_own_account_and_a_long_one_waits_for_it() -> None:
    gated = _Gated()
    shares = FairEmbedder(gated)
    bulk = _ask(shares, "one", *(f"turn {number}" for number in range(100)), interactive=False)
    await _idle()
    queries = [_ask(shares, "one", text) for text in ("short", "as short", "long " * 100)]
    await _idle()
    assert gated.begun == ["turn 0", "short"]
    await gated.finish(1)
    assert gated.begun == ["turn 0", "short", "as short"]
    await gated.finish(2)
    assert len(gated.begun) == 3, "the long one waits for the text under way"
    await gated.finish(0)
    assert gated.begun[3:] == ["long " * 100]
    await _rest(gated, [bulk, *queries])


async def test_a_call_that_has_begun_is_not_refused_when_others_fill_the_queue() -> None:
    gated = _Gated()
    shares = FairEmbedder(gated, EmbeddingLimits(at_once=1, waiting=2, waiting_of_account=2))
    bulk = _ask(shares, "one", "turn 0", "turn 1", "turn 2", interactive=False)
    await _idle()
    others = [_ask(shares, "one", f"query {number}") for number in range(2)]
    await _rest(gated, [bulk, *others])
    assert gated.begun == ["turn 0", "query 0", "query 1", "turn 1", "turn 2"]
    assert bulk.result().shape == (3, HashingEmbedder().model.dimension)


async def test_an_endpoint_is_given_the_texts_of_a_call_at_once() -> None:
    gated = _Gated()
    shares = FairEmbedder(gated, EmbeddingLimits(at_once=1, one_by_one=False))
    bulk = _ask(shares, "one", "turn 0", "turn 1", interactive=False)
    await _rest(gated, [bulk])
    assert gated.begun == ["turn 0"]


async def test_who_gives_up_waiting_leaves_nothing_behind() -> None:
    gated = _Gated()
    shares = FairEmbedder(gated, EmbeddingLimits(at_once=1))
    running, waiting, other = (_ask(shares, "a", "1"), _ask(shares, "a", "2"), _ask(shares, "b", "3"))
    await _idle()
    waiting.cancel()
    # Its place comes free in the same step in which it is given up.
    await gated.finish(0)
    assert gated.begun == ["1", "3"]
    other.cancel()
    await _idle()
    assert shares.waiting == 0
    last = _ask(shares, "c", "4")
    await _idle()
    assert gated.begun[-1] == "4"
    await _rest(gated, [running, last])
