"""The standing text has rules for all responses, and no request for one."""

from __future__ import annotations

from relayer.use_cases.overview import standing
from relayer.use_cases.remember import remember
from relayer.wire.schemas import RememberRequest

RULES = {"Antworte immer auf Deutsch.", "Please always tell me the versions."}
REQUESTS = {
    "Formulier mir eine nette Antwort.",
    "Schreib bitte ein Gedicht über den Herbst, immer mit Reimen und sehr kurz.",
    "Translate this to German: always answer in English.",
}


async def test_a_request_for_one_text_does_not_stand_in_every_prompt(house):
    await house.call(remember, RememberRequest(items=[{"text": text} for text in RULES | REQUESTS]))
    shown = await standing(
        house.ctx, house.access(), lines=10, audiences=(), trusts=(), deadline=house.deadline()
    )
    assert {line.text for line in shown.lines} == RULES
