"""The order of a recall's answer: sources, age, likeness, and what explains it."""

from __future__ import annotations

import math

import pytest

from relayer.search.ranking import SPEAKER_WEIGHT, TOLD_WEIGHT
from relayer.search.terms import TOLD_TERMS, told
from relayer.use_cases.recall import recall
from relayer.use_cases.remember import remember
from relayer.wire.schemas import RecallRequest, RememberRequest

QUERY = "which oat milk coffee do I drink before noon"
NEWER = "I only drink oat milk coffee before noon at home"
WEAKER = "My sister has coffee in the garden"
DRAFT = "I only drink oat milk coffee before noon"


async def ask(house, **fields):
    request = RecallRequest(**{"query": QUERY, **fields})
    return await house.call(recall, request)


async def tell(house, *items: dict[str, object]) -> None:
    request = RememberRequest.model_validate({"items": list(items)})
    await house.call(remember, request)


async def texts(house, **fields) -> list[str]:
    return [hit.text for hit in (await ask(house, **fields)).memories]


@pytest.mark.row("AR-19")
async def test_a_draft_ranks_lower_and_is_not_left_out(house):
    await tell(house, {"text": DRAFT, "source": {"reference": "memory/drafts/coffee.md#2"}}, {"text": NEWER})
    assert await texts(house, penalties=[]) == [DRAFT, NEWER]
    assert await texts(house) == [NEWER, DRAFT]


@pytest.mark.row("AR-20")
async def test_the_penalty_and_what_it_is_for_can_be_set(house):
    await tell(house, {"text": DRAFT, "source": {"reference": "sketches/coffee.md"}}, {"text": NEWER})
    assert await texts(house) == [DRAFT, NEWER]
    assert await texts(house, penalties=[{"match": "sketches/*"}]) == [NEWER, DRAFT]
    assert await texts(house, penalties=[{"match": "sketches/*", "penalty": 0.0}]) == [DRAFT, NEWER]


@pytest.mark.row("AR-21")
async def test_what_was_curated_outranks_a_transcript_that_says_the_same(house):
    curated = "I only drink oat milk coffee before noon, always"
    await tell(
        house,
        {"text": DRAFT, "source": {"transcript": "sessions/7.jsonl"}},
        {"text": curated, "kind": "imported", "trust": "imported", "source": {"reference": "MEMORY.md"}},
    )
    assert await texts(house, penalties=[]) == [DRAFT, curated]
    assert await texts(house) == [curated, DRAFT]


async def test_a_draft_beyond_the_limit_makes_room_for_the_next(house):
    await tell(house, {"text": DRAFT, "source": {"reference": "memory/draft-1.md"}}, {"text": NEWER})
    assert await texts(house, limit=1) == [NEWER]


@pytest.mark.row("CP-46")
async def test_age_fades_a_memory_unless_it_is_pinned(house):
    long_ago = {"text": DRAFT, "occurred_at": "2001-01-01T00:00:00Z"}
    await tell(house, long_ago, {"text": WEAKER})
    assert await texts(house, floor=0) == [DRAFT, WEAKER]
    assert await texts(house, floor=0, half_life_days=30) == [WEAKER, DRAFT]


@pytest.mark.row("CP-46")
async def test_a_pinned_memory_does_not_fade(house):
    await tell(
        house, {"text": DRAFT, "occurred_at": "2001-01-01T00:00:00Z", "pinned": True}, {"text": WEAKER}
    )
    assert await texts(house, floor=0, half_life_days=30) == [DRAFT, WEAKER]


async def test_an_answer_is_explained_when_that_is_asked_for(house):
    await tell(house, {"text": DRAFT, "source": {"reference": "memory/drafts/coffee.md", "speaker": "Mara"}})
    assert (await ask(house)).judgement is None
    answer = await ask(house, query="when does Mara drink oat milk coffee, asks Caroline", explain=True)
    hit = answer.memories[0].evidence
    assert hit.speaker
    assert hit.penalty == 0.15
    assert 0 < hit.covered <= 1
    # No more than cosine, words, speaker and what it tells, and the cosine that ranks is one without Mara's name.
    assert hit.covered + SPEAKER_WEIGHT < hit.score < 1.0 + hit.covered + SPEAKER_WEIGHT + TOLD_WEIGHT
    nobody = (await ask(house, query="when do I drink oat milk coffee", explain=True)).memories[0].evidence
    tells = TOLD_WEIGHT * math.log1p(told(DRAFT)) / math.log1p(TOLD_TERMS)
    assert nobody.score == pytest.approx((nobody.cosine or 0.0) + nobody.covered + tells, abs=1e-3)
    assert answer.judgement.doubt == 0.2
    assert answer.judgement.best > answer.judgement.needed > answer.judgement.usual


async def test_silence_is_explained_too(house):
    await tell(house, {"text": DRAFT})
    answer = await ask(house, query="what is the capital of Paraguay?", explain=True)
    assert answer.memories == ()
    assert answer.judgement.best < answer.judgement.needed
