"""The standing text has lines of all classes in turns, and neither requests for one text nor who others are."""

from __future__ import annotations

from dataclasses import replace

from relayer.use_cases.lifecycle import supersede
from relayer.use_cases.overview import standing
from relayer.wire.schemas import SupersedeRequest
from tests.doubles.stated_readings import StatedReadings

RULES = {"Antworte immer auf Deutsch.", "Please always tell me the versions."}
REQUESTS = {
    "Formulier mir eine nette Antwort.",
    "Schreib bitte ein Gedicht über den Herbst, immer mit Reimen und sehr kurz.",
    "Translate this to German: always answer in English.",
    "Please keep your answers short today, I am on my phone.",
    "Bitte heute nur kurze Antworten.",
    "今天感冒了,回答简单点就行",
}


async def standing_texts(house, *told):
    await house.put(*told)
    shown = await house.call(standing, lines=10, audiences=(), trusts=())
    return [line.text for line in shown.lines]


async def test_no_class_of_lines_fills_the_prompt_alone_and_the_own_dangers_come_first(house):
    others = [f"My {one} is allergic to nuts." for one in ("daughter", "mum", "brother")]
    told = [
        "Please always answer in short sentences.",
        "My name is Rosa.",
        *others,
        "I'm allergic to latex.",
        "I'm allergic to penicillin.",
        "I'm allergic to hazelnuts.",
    ]
    texts = await standing_texts(house, *told)
    assert set(texts[:2]) < set(told[-3:])
    assert texts[2:4] == told[:2]
    assert texts[4] in others
    assert texts[5] in told[-3:]
    assert set(texts) == set(told)


async def test_who_others_are_does_not_stand_in_every_prompt_except_the_family(house):
    others = {
        "Ben lives in Glasgow and is an anaesthetist.",
        "My aunt Ingrid lives in Bergen with her partner Ole.",
        "Meine Tante Ingrid wohnt in Bergen mit ihrem Freund Ole.",
        "My manager is Helen Brandt, she wants a status mail every Thursday before noon, max five lines, no jargon.",
    }
    own = {"My wife's name is Joan.", "I live in Leeds."}
    assert set(await standing_texts(house, *others, *own)) == own


async def test_a_request_for_one_text_does_not_stand_in_every_prompt(house):
    assert set(await standing_texts(house, *RULES, *REQUESTS)) == RULES


async def test_what_a_model_reads_is_in_every_prompt_without_the_usual_words(house):
    read = {"nuts close my throat": "harm", "Rosa here": "identity", "My name is Rosa.": "none"}
    house.ctx = replace(house.ctx, messages=StatedReadings(read))
    assert await standing_texts(house, *read) == ["nuts close my throat", "Rosa here"]


async def test_newer_lines_that_only_a_model_takes_for_dangers_keep_out_no_allergy(house):
    doubtful = [f"bought tin number {number} for the shelf" for number in range(8)]
    told = ["I'm allergic to latex.", *doubtful]
    house.ctx = replace(house.ctx, messages=StatedReadings(dict.fromkeys(told, "harm")))
    texts = await standing_texts(house, *told)
    assert texts[0] == told[0]
    assert len(texts) == len(told)


async def test_a_memory_that_is_changed_is_read_again(house):
    house.ctx = replace(
        house.ctx, messages=StatedReadings({"nuts close my throat": "harm", "nuts are dear": "none"})
    )
    (stored,) = await house.put("nuts close my throat")
    await house.call(supersede, stored, SupersedeRequest(text="nuts are dear"))
    assert await standing_texts(house, "I park on level 7.") == []


async def test_a_change_of_anything_but_the_text_keeps_what_was_read(house):
    reader = StatedReadings({"nuts close my throat": "harm"})
    house.ctx = replace(house.ctx, messages=reader)
    (stored,) = await house.put("nuts close my throat")
    reader.available = False
    await house.call(supersede, stored, SupersedeRequest(pinned=True))
    assert await standing_texts(house, "I park on level 7.") == ["nuts close my throat"]


class ReadsOnce(StatedReadings):
    """Answers the first call only."""

    async def messages(self, texts):
        self.available = not self.asked
        return await super().messages(texts)


async def test_what_was_read_of_many_counts_although_the_rest_could_not_be_read(house):
    told = [f"the lad comes up in hives near nut number {number}" for number in range(20)]
    reader = ReadsOnce(dict.fromkeys(told, "harm"))
    house = replace(house, ctx=replace(house.ctx, messages=reader))
    assert await standing_texts(house, *told)
    assert [len(texts) for texts in reader.asked] == [16, 4]
