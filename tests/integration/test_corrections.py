"""What is said later about something that was said before: only what it is over disappears, and a person can bring that back.

All of it is said to a plugin at default settings, and looked for in prompts, in listings and on the command line.
"""

from __future__ import annotations

from calendar import month_name
from datetime import UTC, datetime, timedelta

import pytest
from bridge_process import BridgeProcess
from plugin_site import PluginSite, recall, say


def told(site: PluginSite, *texts: str):
    """Say each text in a chat of its own; returns the plugin."""
    plugin = site.plugin()
    for number, text in enumerate(texts):
        assert say(plugin, text, key=f"agent:main:chat-{number}", answer="").queued == 1
    return plugin


BESIDE_EACH_OTHER = [
    ("The test cluster is called magpie", "The load balancer is now called kestrel", "What is the test cluster called?", "magpie"),
    ("My dentist is Dr. Okafor", "I switched to a new optician, Dr. Lund", "Who is my dentist?", "Okafor"),
    ("My sister lives in Ghent", "I moved to Leeds last month", "Where does my sister live?", "Ghent"),
    ("The gym is open until ten on Mondays", "The library now closes at eight", "Until when is the gym open on Mondays?", "ten"),
    ("Nora is allergic to peanuts", "Tim is allergic to shellfish", "What is Nora allergic to?", "peanuts"),
    ("The staging database runs Postgres 14", "We upgraded production to Postgres 17", "Which Postgres does the staging database run?", "14"),
    ("Meine Zahnärztin ist Frau Dr. Brehm", "Mein neuer Hausarzt ist Dr. Sander", "Wer ist meine Zahnärztin?", "Brehm"),
    ("la contraseña del servidor es tapir-azul-5521", "the server is called heron, right?", "¿Cuál es la contraseña del servidor?", "password removed"),
    ("Mon dentiste est le docteur Faure", "Mon nouveau kiné s'appelle Benali", "Qui est mon dentiste ?", "Faure"),
]  # fmt: skip


@pytest.mark.parametrize(("first", "then", "question", "value"), BESIDE_EACH_OTHER)
def test_a_true_statement_is_told_after_a_change_of_something_else(site, first, then, question, value):
    plugin = told(site, first, then)
    assert value in recall(plugin, question, session_key="agent:main:later").text
    assert [memory["contradicts"] for memory in site.memories()] == [[], []]


CORRECTIONS = [
    ("My dentist is Dr. Okafor", "I switched dentists, it's Dr. Lim now", "Who is my dentist?", "Lim", "Okafor"),
    ("Our builds run on Tuesdays", "We changed the day, our builds run on Fridays now", "On which day do our builds run?", "Fridays", "Tuesdays"),
    ("My phone number is 555-0171", "I changed my phone number, it is 555-0188 now", "What is my phone number?", "555-0188", "555-0171"),
    ("Mein Hausarzt ist Dr. Brehm", "Ich habe den Hausarzt gewechselt, jetzt Dr. Sander", "Wer ist mein Hausarzt?", "Sander", "Brehm"),
]  # fmt: skip


@pytest.mark.parametrize(("first", "then", "question", "new", "old"), CORRECTIONS)
def test_after_a_plain_correction_only_the_new_value_is_told(site, first, then, question, new, old):
    plugin = told(site, first, then)
    found = recall(plugin, question, session_key="agent:main:later").text
    assert new in found
    assert old not in found


UNCHANGED = [
    ("lina hat dienstags schwimmen um 16 uhr und donnerstags flöte bei frau brandt, theo turnt freitags", "schwimmen ist jetzt mittwochs statt dienstags, gleiche uhrzeit. flöte bleibt", "wann hat lina flöte?", "donnerstags flöte"),
    ("mi proveedor de papel es Torras, pido los jueves antes de las 12 y el pedido minimo son 150 euros", "he dejado Torras, ahora el papel me lo trae Cartolina Sur, mismo dia de pedido", "¿que dia pido el papel?", "jueves"),
    ("standup is 9:45, retro is fridays at 4pm", "standup moved to 11, retro stays", "when is retro?", "4pm"),
    ("my day rate is 240 quid, callout is 65", "putting my rate up to 280 a day from now on, callout stays as it is", "what do i charge for a callout?", "65"),
    ("o prato do dia custa 12 euros e a sobremesa 4", "o prato do dia passou a 14, a sobremesa fica na mesma", "quanto custa a sobremesa?", "4"),
    ("Ich nehme Ramipril 5 und Metformin 1000", "Metformin vertrage ich nicht mehr, ist abgesetzt", "welche Tabletten nehme ich?", "Ramipril 5"),
    ("kita macht um 16 uhr zu, freitags schon um 14. abholen darf auch oma renate", "oma renate darf nicht mehr abholen, nur noch serkan oder ich", "wann macht die kita freitags zu?", "14"),
]  # fmt: skip


@pytest.mark.parametrize(("first", "then", "question", "kept"), UNCHANGED)
def test_what_is_said_to_stay_as_it_is_stays(site, first, then, question, kept):
    plugin = site.plugin()
    for number, text in enumerate((first, then)):
        say(plugin, text, key=f"agent:main:chat-{number}", answer="")
    assert not any(kept in part["text"] for memory in site.memories() for part in memory["replaced"])
    assert kept in " ".join(memory["text"] for memory in site.memories())
    assert kept in recall(plugin, question, session_key="agent:main:later").prompt


MOVED = "The pottery workshop changed rooms, it's in room 118 now"
DENTIST, NEW_DENTIST = "My dentist is Dr. Okafor", "I switched dentists, it's Dr. Lim now"


def test_of_a_memory_with_several_statements_only_the_one_that_is_over_disappears(site):
    first = "The pottery workshop is in room 214, bring your own apron"
    plugin = told(site, first, MOVED)
    texts = site.texts()
    assert len(texts) == 2
    assert texts[1] == "bring your own apron"
    told_later = recall(plugin, "In which room is the pottery workshop?", session_key="agent:main:later").text
    assert "214" not in told_later.replace('(no longer so: "The pottery workshop is in room 214")', "")
    newer, older = (memory["id"] for memory in site.memories())
    gone = 'bring your own apron (no longer so: "The pottery workshop is in room 214")'
    assert f"{gone} (see {newer})" in site.command("show", older).stdout
    assert f"{gone} (see {newer})" in site.command("list", "--state", "live", "--state", "superseded").stdout
    listed = site.command("list").stdout
    assert (gone in listed, newer in listed.partition(gone)[2].split("\n")[0]) == (True, False)
    # The text is stored as it was, and comes back without driving out what replaced it.
    (replaced,) = site.json("consolidate")["replaced"]
    assert replaced["statement"] == "The pottery workshop is in room 214, "
    site.command("restore", replaced["memory"])
    assert site.texts()[:2] == [first, MOVED]
    assert site.json("consolidate")["replaced"] == []


def test_what_is_left_is_shown_with_what_it_may_lean_on_in_prompts_and_tools(site):
    first = "My aunt Carla is coming on Friday, she has a severe nut allergy and needs an aisle seat."
    plugin = told(site, first, "Carla isn't coming on Friday after all.")
    shown = 'she has a severe nut allergy and needs an aisle seat. (no longer so: "My aunt Carla is coming on Friday")'
    question = "What should I know about food for Carla?"
    assert shown in recall(plugin, question, session_key="agent:main:later").text
    assert shown in plugin.tool("memory_search", {"query": question}, session_key="agent:main:later").text
    assert shown in plugin.tool("memory_list", {}, session_key="agent:main:later").text
    assert shown in site.command("search", question).stdout


DOSE, NEW_DOSE = "tomo Eutirox 75 en ayunas por el tiroides", "el médico me ha subido el Eutirox a 100"


def test_what_a_replaced_memory_said_besides_is_shown_with_the_newer_one(site):
    plugin = told(site, DOSE, NEW_DOSE)
    assert site.texts() == [NEW_DOSE]
    shown = f'{NEW_DOSE} (before: "{DOSE}")'
    assert shown in recall(plugin, "¿a qué hora tomo las pastillas?", session_key="agent:main:later").prompt
    asked = {"query": "Eutirox"}
    assert shown in plugin.tool("memory_search", asked, session_key="agent:main:later").text
    assert shown in site.command("search", "Eutirox").stdout
    # Whoever changes it themselves has said all of it.
    (memory,) = site.memories()
    site.command("edit", memory["id"], "Eutirox 125")
    again = plugin.tool("memory_search", asked, session_key="agent:main:later").text
    assert "Eutirox 125" in again
    assert "ayunas" not in again


def test_what_a_replaced_clause_said_besides_is_shown_with_the_newer_statement(site):
    first = "i feed the alpacas, and on mondays at nine I take my gran to physio in Leeds"
    plugin = told(site, first, "gran's physio is on tuesdays now")
    assert site.texts() == ["gran's physio is on tuesdays now", "i feed the alpacas"]
    found = recall(plugin, "when is gran's physio?", session_key="agent:main:later").prompt
    assert '(before: "and on mondays at nine I take my gran to physio in Leeds")' in found


def test_what_a_replaced_memory_said_is_not_shown_against_a_wish_and_is_erased_with_it(site):
    plugin = told(
        site,
        "my car is a blue Fiat Panda from 2019 that Leyla gave me",
        "sold the Fiat, got a white Yaris now",
    )
    asked = {"query": "which car do I drive"}
    assert "Leyla" in plugin.tool("memory_search", asked, session_key="agent:main:later").text
    snow = "is my car any good in snow?"
    assert "Leyla" in recall(plugin, snow, session_key="agent:main:later").prompt
    say(plugin, "please never mention Leyla again", key="agent:main:wish", answer="")
    prompt = recall(site.plugin(), snow, session_key="agent:main:after").prompt
    assert "Yaris" in prompt
    assert "Leyla" not in prompt
    (replaced,) = site.json("consolidate")["replaced"]
    site.command("erase", replaced["memory"], "--yes")
    assert not any("Yaris" in text for text in site.texts())


@pytest.mark.parametrize(
    ("first", "then", "question", "kept"),
    [
        ("I work at Siemens as a welder.", "From {month} on I'll work at Bosch.", "Where do I work at the moment?", "Siemens"),
        (
            "sono allergica alle arachidi mio marito fa l idraulico il padrone di casa è il signor bruni",
            "nuovo padrone di casa ora è il signor verdi",
            "cosa posso cucinare stasera per me?",
            "arachidi",
        ),
        ("我对花生过敏 老公阿杰做装修的 房东姓曾", "换房东了 现在是老刘", "今晚做什么菜好呢", "花生"),
    ],
)  # fmt: skip
def test_what_is_true_until_then_and_dangers_stay_beside_a_correction(site, first, then, question, kept):
    month = month_name[(datetime.now(UTC) + timedelta(days=75)).month]
    plugin = told(site, first, then.format(month=month))
    given = recall(plugin, question, session_key="agent:main:later")
    assert kept in f"{given.standing}\n{given.text}"


def test_what_was_replaced_is_listed_with_what_replaced_it_and_comes_back_beside_it(site):
    told(site, DENTIST, NEW_DENTIST)
    assert site.texts() == [NEW_DENTIST]
    printed = site.command("consolidate").stdout
    assert DENTIST in printed.partition("recently replaced")[2]
    (replaced,) = site.json("consolidate")["replaced"]
    assert (replaced["statement"], replaced["text"]) == (DENTIST, NEW_DENTIST)
    site.command("restore", replaced["memory"])
    assert sorted(site.texts()) == sorted([DENTIST, NEW_DENTIST])
    assert site.json("consolidate")["replaced"] == []


def test_what_was_replaced_is_one_question_away(site):
    plugin = told(site, DENTIST, NEW_DENTIST)
    arguments = {"query": "Who was my dentist before?", "include": ["superseded"]}
    found = plugin.tool("memory_search", arguments, session_key="agent:main:later")
    assert "Okafor" in str(found)


FORMER = [
    ((DENTIST, NEW_DENTIST), "who was my dentist before?", "no longer so) My dentist is Dr. Okafor"),
    (("Ich wohne in Bamberg", "ich bin nach Fürth umgezogen"), "wo hab ich vorher gewohnt", "no longer so) Ich wohne in Bamberg"),
    (
        ("The pottery workshop is in room 214, bring your own apron", MOVED),
        "which room was the pottery workshop in at first?",
        '(no longer so: "The pottery workshop is in room 214")',
    ),
    # What may be over is live, and follows what may have replaced it.
    (("we pay 1850 rent for the shop, lease runs till june 2028, landlord is mr De Backer", "rent went up to 1990 from january"), "what was the old rent", "we pay 1850 rent"),
]  # fmt: skip


@pytest.mark.parametrize(("told_of", "question", "line"), FORMER)
def test_a_question_for_the_former_value_is_told_it_as_such(site, told_of, question, line):
    plugin = told(site, *told_of)
    found = recall(plugin, question, session_key="agent:main:later").prompt
    assert line in found
    assert told_of[1].split()[-1] in found


@pytest.mark.parametrize(("told_of", "question", "value"), [
    ((DENTIST, NEW_DENTIST), "who was my dentist before?", "Okafor"),
    (("we pay 1850 rent for the shop, lease runs till june 2028", "rent went up to 1990 from january"), "what was the old rent", "1850"),
])  # fmt: skip
def test_a_former_value_that_was_forgotten_is_not_told(site, told_of, question, value):
    plugin = told(site, *told_of)
    assert value in recall(plugin, question, session_key="agent:main:later").text
    # The newest version of a memory is the one that can be forgotten.
    old = next(
        one
        for one in site.json("list", "--state", "live", "--state", "superseded")["memories"]
        if value in one["text"]
    )
    site.command("forget", old["superseded_by"] or old["id"])
    assert value not in recall(site.plugin(), question, session_key="agent:main:last").text


@pytest.mark.tier("all")
def test_in_a_chat_the_owner_alone_is_told_what_was_replaced_lately(site, shared_relayer, secret, tmp_path):
    told(site, DENTIST, NEW_DENTIST)
    context = {"sessionKey": "agent:main:main", "agentId": "main"}
    with BridgeProcess(tmp_path, {"url": shared_relayer, "key": secret}) as bridge:
        bridge.initialize()
        owner, other = (
            bridge.call("command", args="replaced", context=context | {"senderIsOwner": is_owner})["text"]
            for is_owner in (True, False)
        )
    assert owner.splitlines()[:2] == [f"- {DENTIST}", f"+ {NEW_DENTIST}"]
    assert other.startswith("/memory replaced is for the owner of this gateway")


SHORT_NEWS = [
    ("started at tesco last week, mostly night shifts", "quit tesco, at aldi now", "where do i work", "aldi"),
    ("my bike is a red brompton", "sold the bike", "what happened to my bike", "sold"),
    ("i live with tom", "tom moved out", "who do i live with", "moved out"),
    ("wohne mit jana zusammen", "jana ist ausgezogen", "mit wem wohne ich", "ausgezogen"),
    ("je fais du yoga le mardi", "j'ai arrêté le yoga", "quand est mon yoga", "arrêté"),
    ("我们每周三晚上打羽毛球", "羽毛球改周四了", "羽毛球什么时候打", "周四"),
]


@pytest.mark.parametrize(("first", "news", "question", "told_then"), SHORT_NEWS)
def test_short_news_without_a_subject_are_kept_and_told(site, first, news, question, told_then):
    plugin = told(site, first, news)
    assert told_then in recall(plugin, question, session_key="agent:main:later").prompt


INTRODUCED = [
    ("bin Katrin und wohne in Kassel", "wohne jetzt in Göttingen", "Katrin"),
    ("soy Marisol y vivo en Valencia", "ahora vivo en Castellón", "Marisol"),
    ("im Kate and i live in Leeds", "i live in York now", "Kate"),
]


@pytest.mark.parametrize(("introduced", "moved", "name"), INTRODUCED)
def test_who_someone_is_stands_in_prompts_after_they_moved(site, introduced, moved, name):
    plugin = told(site, introduced, moved)
    assert name in recall(plugin, "how does a fridge work", session_key="agent:main:later").standing


DANGERS = [
    "no ibuprofen for me, kidney",
    "nehme marcumar seit der op",
    "mi marido es diabético",
    "après une piqûre de guêpe je finis à l'hôpital",
    "i carry an epipen for bee stings",
]


@pytest.mark.parametrize("said", DANGERS)
def test_a_danger_in_unusual_words_stands_in_prompts(site, said):
    plugin = told(site, said, "theo has football on saturdays")
    assert said in recall(plugin, "how does a fridge work", session_key="agent:main:later").standing


STILL_TAKEN = [
    ("on lithium 600 and lamotrigine 100", "lithium's 900 now", "lamotrigine"),
    ("nehm 5mg ramipril und 20 atorvastatin", "ramipril jetzt 10", "atorvastatin"),
    ("soy alérgica al marisco y al kiwi", "el kiwi ya puedo comerlo", "marisco"),
    ("i'm allergic to peanuts and sesame", "sesame is fine now, they tested it", "peanuts"),
]


@pytest.mark.parametrize(("first", "then", "danger"), STILL_TAKEN)
def test_a_change_of_one_danger_leaves_the_other_in_prompts(site, first, then, danger):
    plugin = told(site, first, then)
    assert danger in recall(plugin, "how does a fridge work", session_key="agent:main:later").standing
