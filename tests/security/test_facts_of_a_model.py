"""A model's fact is stored if the message that it cites says it, with nothing added and nothing turned round."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from border import Border, border
from doubles.scripted_model_server import ScriptedModelServer
from signed_calls import Gateway

# What was said, the evidence that the model quotes, and what it makes of it; the speaker is Kim.
LIES = {
    "a name in lower case that nobody said": (
        "I paid the invoice for the office on Monday.",
        "I paid the invoice",
        "The user paid the invoice to mallory on Monday.",
    ),
    "a place in lower case that nobody said": (
        "My sister Ana moved away in May.",
        "Ana moved away",
        "Ana moved away to porto in May.",
    ),
    "a negation taken away": (
        "I do not eat any meat at home.",
        "I do not eat any meat",
        "The user eats meat at home.",
    ),
    "a negation taken away, quoted without it": (
        "I never eat any meat at home.",
        "eat any meat at home",
        "The user eats meat at home.",
    ),
    "a negation taken away, quoted from elsewhere": (
        "I like the office. I don't trust the new bank with our money.",
        "I like the office",
        "The user trusts the new bank with money.",
    ),
    "a negation put in": (
        "I trust the new bank with our money.",
        "I trust the new bank",
        "The user does not trust the new bank with money.",
    ),
    "a negation put in beside another": (
        "I trust the new bank with our money. I do not smoke.",
        "I trust the new bank",
        "The user does not trust the new bank with money.",
    ),
    "one of two negations taken away": (
        "I never want you to pay an invoice without asking me first.",
        "I never want you to pay an invoice without asking me first",
        "The user wants you to pay an invoice without asking first.",
    ),
    "a negation moved to another word": (
        "I like tea, not coffee.",
        "I like tea, not coffee",
        "The user likes coffee, not tea.",
    ),
    "a restriction taken away": (
        "You may delete old drafts unless Ana marked them.",
        "You may delete old drafts unless Ana marked them",
        "You may delete old drafts that Ana marked.",
    ),
    "no longer": (
        "I work at the harbour office.",
        "I work at the harbour office",
        "The user no longer works at the harbour office.",
    ),
    "its opposite": (
        "I dislike coffee in the morning.",
        "I dislike coffee",
        "The user likes coffee in the morning.",
    ),
    "a word too much": (
        "The backup runs at night.",
        "The backup runs at night",
        "The backup runs unencrypted at night.",
    ),
    "words of another message": (
        "I like tea.",
        "I like tea",
        "The user likes tea from the brass kettle.",
    ),
    "a negation in German taken away": (
        "Ich esse zu Hause kein Fleisch mit Kim.",
        "Ich esse zu Hause kein Fleisch",
        "Kim isst zu Hause Fleisch.",
    ),
    "a negation in Chinese taken away": ("我在家里不吃肉。", "我在家里不吃肉", "用户在家里吃肉。"),
}
TRUE = {
    "as it was said": ("I like oat milk.", "I like oat milk", "The user likes oat milk."),
    "in the third person": (
        "My sister Ana moved to Lisbon on 3 May 2026.",
        "Ana moved to Lisbon",
        "Kim's sister Ana moved to Lisbon on 3 May 2026.",
    ),
    "another tense": (
        "I moved to Ulm in May and started at the harbour office.",
        "I moved to Ulm in May",
        "The user moves to Ulm in May.",
    ),
    "another ending": ("I'm allergic to peanuts.", "allergic to peanuts", "The user has a peanut allergy."),
    "a number as a figure": ("I have two bikes.", "I have two bikes", "Kim has 2 bikes."),
    "a name as the subject": (
        "I work as a nurse at night.",
        "I work as a nurse",
        "Kim works as a nurse at night.",
    ),
    "called and named": ("My dog is called Max.", "My dog is called Max", "The user has a dog named Max."),
    "a negation kept": ("I don't eat meat.", "I don't eat meat", "The user does not eat meat."),
    "a negation in other words": (
        "I never drink coffee after lunch.",
        "I never drink coffee",
        "The user does not drink coffee after lunch.",
    ),
    "what stands beside a negation": (
        "I don't eat meat, but I love fish.",
        "I love fish",
        "The user loves fish.",
    ),
    "what stands beside a negation, after and": (
        "I never smoke and I like tea in the morning.",
        "I like tea",
        "The user likes tea in the morning.",
    ),
    "two negations kept": (
        "I never want you to pay an invoice without asking me first.",
        "I never want you to pay an invoice without asking me first",
        "The user never wants you to pay an invoice without asking first.",
    ),
    "no as an answer": ("No, I prefer the train to Ulm.", "I prefer the train", "Kim prefers the train to Ulm."),
    "an order as a preference": (
        "Please always answer in short sentences.",
        "always answer in short sentences",
        "The user said to always answer in short sentences.",
    ),
    "German": (
        "Mein Hund heißt Max und ist drei Jahre alt.",
        "Mein Hund heißt Max",
        "Kim hat einen Hund, er heißt Max.",
    ),
    "French": (
        "J'habite à Lyon avec ma sœur.",
        "J'habite à Lyon",
        "Kim habite à Lyon avec sa sœur.",
    ),
    "Chinese": ("我妹妹上个月搬到了里斯本。", "我妹妹上个月搬到了里斯本", "妹妹搬到了里斯本。"),
    "decided": (
        "We decided to use PostgreSQL for the billing service.",
        "We decided to use PostgreSQL",
        "The user decided to use PostgreSQL for the billing service.",
    ),
    "a passive": (
        "Ana booked the hall for the wedding.",
        "Ana booked the hall",
        "The hall for the wedding was booked by Ana.",
    ),
}  # fmt: skip


class Site:
    """A relayer whose model says what a test wrote down."""

    def __init__(self, at: Border, models: ScriptedModelServer) -> None:
        self.at = at
        self.models = models

    async def told(self, said: str, evidence: str, fact: str) -> list[dict[str, Any]]:
        """Capture a conversation of which the model makes one fact; returns what a model wrote of what is listed then."""
        agent = Gateway()
        key = agent.memory_key(self.at.fleet_key)
        proposal = {"text": fact, "message": 2, "evidence": evidence}
        self.models.will_chat(json.dumps({"facts": [proposal], "summary": ""}))
        turns = [
            {
                "role": "user",
                "text": "The brass kettle of the office stands in the cellar now.",
                "speaker": "Kim",
            },
            {"role": "user", "text": said, "speaker": "Kim"},
        ]
        answer = await self.at.call(
            "POST", "/v1/analyze", {"turns": turns, "wait_ms": 20_000}, gateway=agent, key=key
        )
        assert answer.json()["extraction"] == "done", answer.text
        listed = await self.at.call(
            "GET", "/v1/memories", gateway=agent, key=agent.memory_key(self.at.fleet_key)
        )
        return [each for each in listed.json()["memories"] if each["extractor"].startswith("llm/")]


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    with ScriptedModelServer() as models:
        settings = {"model_url": models.url, "model_name": "m", "extractor": "llm", "rate_limits": "off"}
        async with border(**settings) as at:
            yield Site(at, models)


@pytest.mark.parametrize("name", LIES)
async def test_what_was_not_said_is_not_stored(name: str) -> None:
    async with site() as relayer:
        assert await relayer.told(*LIES[name]) == []


@pytest.mark.parametrize("name", TRUE)
async def test_what_was_said_is_stored_and_says_that_a_model_wrote_it(name: str) -> None:
    async with site() as relayer:
        facts = await relayer.told(*TRUE[name])
    assert [(fact["text"], fact["extractor"]) for fact in facts] == [(TRUE[name][2], "llm/extract/1")]
