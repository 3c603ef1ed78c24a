"""A wish not to be reminded of a person, a thing or an event: it is kept, and what it is about comes only when it is named.

All of it is said to a plugin at default settings over the real model, and looked for in prompts, searches and on the command line.
"""

from __future__ import annotations

import pytest
from plugin_site import PluginSite, own_relayer, recall, say

from gateway_plugin.turn.gates import HostTurn
from relayer.adapters.memory_store import MemoryStore
from relayer.adapters.system import SystemClock

LATER = "agent:main:later"


WISHES = [
    (["Leyla's birthday is on May 4, and she loves sailing.", "Leyla and me broke up. please dont mention her"], "Leyla", "Let's plan a sailing trip for May", "When is Leyla's birthday?", "May 4"),
    (["Mein Vater heißt Bruno und geht jeden Sonntag angeln.", "bitte sprich nie wieder von meinem Vater"], "Vater", "Plan mir einen Sonntag am See mit Angeln", "Wie heißt mein Vater?", "Bruno"),
    (["El accidente fue en la carretera de Toledo.", "no me recuerdes el accidente"], "accidente", "Planea un viaje por la carretera de Toledo", "¿Dónde fue el accidente?", "Toledo"),
    (["Лейла живёт в Казани и любит театр.", "Мы \u0441 Лейлой расстались. пожалуйста, не упоминай её"], "Лейл", "Спланируй поездку в Казань \u0441 театром", "Где живёт Лейла?", "Казани"),
    (["丽拉住在青岛\uff0c喜欢帆船。", "我和丽拉分手了。请别再提她"], "丽拉", "帮我计划去青岛玩帆船", "丽拉住在哪里\uff1f", "青岛"),
    (["fede y yo teniamos una casa en la playa de rosario", "nunca mas me menciones a mi ex fede, me hace mal"], "fede", "planea un fin de semana en la playa de rosario", "donde teniamos la casa con fede?", "rosario"),
    (["me duele la rodilla cuando corro en el parque", "olvidate de lo q te dije de la rodilla, ya esta curada"], "rodilla", "planea una tarde en el parque", "donde corro cuando me duele la rodilla?", "parque"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "name", "plan", "question", "value"), WISHES)
def test_what_a_wish_is_about_comes_only_with_a_prompt_that_names_it(site, said, name, plan, question, value):
    plugin = site.plugin()
    say(plugin, said[0], key="agent:main:chat", answer="")
    for prompt in ("hi", plan):
        begun = HostTurn(first_turn=True)
        assert value in recall(plugin, prompt, session_key=f"agent:main:{prompt}", host=begun).prompt
    say(plugin, said[1], key="agent:main:wish", answer="")
    for prompt in ("hi", plan):
        # A session that begins gets the newest memories.
        shown = recall(plugin, prompt, session_key=f"{LATER}-{prompt}", host=HostTurn(first_turn=True))
        assert name.casefold() not in shown.prompt.casefold()
        assert said[1].split()[-1] not in shown.prompt
        # Where all is kept out, a session does not begin with how much there is.
        assert "memory_search" not in shown.prompt
    assert value in recall(plugin, question, session_key=LATER).text
    # Nothing is lost: a person sees both memories, and a search finds them.
    assert any(said[0].rstrip("。.") in text for text in site.texts())
    assert any(name in memory["text"] or memory["unmentioned"] for memory in site.memories())
    found = plugin.tool("memory_search", {"query": name}, session_key=LATER)
    assert value in str(found)


def test_a_wish_without_a_name_is_about_what_the_person_said_before(site):
    plugin = site.plugin()
    say(plugin, "Leyla keeps the keys of the boat house in Kiel.", key="agent:main:first", answer="")
    say(plugin, "Leyla and me broke up.", key="agent:main:second", answer="")
    say(plugin, "please dont mention her", key="agent:main:second", answer="")
    wishes = [memory for memory in site.memories() if memory["unmentioned"]]
    assert [memory["unmentioned"] for memory in wishes] == [["leyla"]]
    assert "Leyla" not in recall(plugin, "Plan a weekend at the boat house in Kiel", session_key=LATER).prompt


def test_a_turn_says_by_which_wish_a_memory_was_left_out(site):
    plugin = site.plugin()
    say(plugin, "Leyla keeps the keys of the boat house in Kiel.", key="agent:main:first", answer="")
    say(plugin, "Leyla and me broke up. please dont mention her", key="agent:main:second", answer="")
    recall(plugin, "Who has the keys of the boat house in Kiel?", session_key=LATER)
    wish = next(memory["id"] for memory in site.memories() if memory["unmentioned"])
    kept_out = [hit for hit in plugin.why(LATER).hits if hit.outcome == "unmentioned"]
    assert kept_out
    assert {hit.wish for hit in kept_out} == {wish}
    for command in (["show", wish], ["list"]):
        assert "(not to mention: leyla)" in site.command(*command).stdout


HIDDEN = [
    ("Bruno, meu pai, fazia pão de queijo no domingo.", "n fala mais do meu pai comigo por favor, ele sumiu e isso me machuca", "sumiu", "o que posso cozinhar no domingo?"),
    ("matteo e io andavamo sempre a rimini d'estate", "non tirarmi più fuori la storia di matteo ok? ci siamo lasciati e sto male", "matteo", "dove vado quest'estate?"),
    ("작년에 유산했을 때 제주도에 있었어", "유산한 얘기는 꺼내지 말아줘 와이프도 나도 힘들어", "유산", "제주도 여행 계획 짜줘"),
    ("my mum always took us camping by the lake in wales", "dont recommend me anything w my mum in it please. she died in march, dont want it brought up", "mum", "plan a camping weekend by a lake in wales"),
    ("Nadia showed me the best cafe in Lyon.", "me parle plus jamais de mon ex, Nadia, sauf si jen parle moi", "Nadia", "quel café à Lyon ?"),
    ("", "he died, don't bring it up", "died", "plan a weekend at the lake"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "wish", "painful", "prompt"), HIDDEN)
def test_neither_a_wish_nor_what_it_is_about_is_told(site, said, wish, painful, prompt):
    plugin = site.plugin()
    if said:
        say(plugin, said, key="agent:main:chat", answer="")
    say(plugin, wish, key="agent:main:wish", answer="")
    shown = recall(plugin, prompt, session_key=LATER, host=HostTurn(first_turn=True))
    assert painful not in shown.prompt


def test_a_wish_about_somebodys_former_wife_is_not_about_him(site):
    plugin = site.plugin()
    say(plugin, "阿杰住在青岛\uff0c喜欢帆船。", key="agent:main:chat", answer="")
    say(plugin, "别再提阿杰他前妻的事 烦", key="agent:main:wish", answer="")
    shown = recall(plugin, "帮我计划去青岛玩帆船", session_key=LATER)
    assert "阿杰住在青岛" in shown.prompt


@pytest.mark.parametrize("ended", ["forget", "erase"])
def test_a_wish_ends_when_it_is_forgotten_or_erased(site, ended):
    plugin = site.plugin()
    say(plugin, "Grandma's recipe for plum cake needs rye flour.", key="agent:main:first", answer="")
    say(plugin, "please never bring up grandma", key="agent:main:second", answer="")
    prompt = "How do I bake a plum cake?"
    assert "rye" not in recall(plugin, prompt, session_key=LATER).prompt
    wish = next(memory["id"] for memory in site.memories() if memory["unmentioned"])
    site.command(ended, wish, *(["--yes"] if ended == "erase" else []))
    # A running plugin asks again only after a while.
    assert "rye" in recall(site.plugin(), prompt, session_key=LATER).prompt


def test_the_standing_block_of_a_running_session_loses_what_a_wish_is_about(site):
    plugin = site.plugin()
    say(plugin, "My name is Arda and my wife is called Leyla.", key="agent:main:first", answer="")
    question = "What shall I cook tonight for the two of us?"
    assert "Leyla" in recall(plugin, question, session_key=LATER).prompt
    say(plugin, "Leyla and me broke up. please dont mention her", key=LATER, answer="")
    recall(plugin, question, session_key=LATER)
    assert "Leyla" not in recall(plugin, question, session_key=LATER).prompt


def test_ordinary_sentences_keep_nothing_out(site):
    plugin = site.plugin()
    say(plugin, "Bob's garden has eleven apple trees.", key="agent:main:first", answer="")
    for number, text in enumerate(
        [
            "remind me to call Bob",
            "don't mention it",
            "please don't mention prices in the mail to Bob",
            "he never mentions Bob",
        ]
    ):
        say(plugin, text, key=f"agent:main:{number}", answer="")
    assert not [memory for memory in site.memories() if memory["unmentioned"]]
    assert "eleven" in recall(plugin, "How many apple trees are in that garden?", session_key=LATER).prompt


def test_a_wish_is_honoured_after_a_restart(secret, tmp_path):
    store = MemoryStore(SystemClock())
    prompt = "Who has the keys of the boat house in Kiel?"
    for first in (True, False):
        with (
            own_relayer(store, real_model=True) as relayer,
            PluginSite(tmp_path, relayer.url, secret) as site,
        ):
            plugin = site.plugin()
            if first:
                say(
                    plugin,
                    "Leyla keeps the keys of the boat house in Kiel.",
                    key="agent:main:first",
                    answer="",
                )
                say(
                    plugin,
                    "Leyla and me broke up. please dont mention her",
                    key="agent:main:second",
                    answer="",
                )
            assert "Leyla" not in recall(plugin, prompt, session_key=LATER).prompt


def test_a_wish_about_an_accident_leaves_an_allergy_in_the_prompt(site):
    plugin = site.plugin()
    say(plugin, "Emil is severely allergic to peanuts.", key="agent:main:first", answer="")
    say(plugin, "Please never mention Emil's accident again.", key="agent:main:second", answer="")
    prompt = "What can I cook for the kids without risk of allergy?"
    shown = recall(plugin, prompt, session_key=LATER).prompt
    assert "peanuts" in shown
    assert "accident" not in shown
