"""What a real gateway at default settings keeps of what people type, and what a later chat is told of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from e2e_relayer import Relayer
from openclaw_gateway import Gateway, memrelay_plugins
from openclaw_install import Installed
from processes import wait_until
from stub_model import StubModel, said

LAST = "The kayak of our club is stored in bay nineteen."
SECRETS = {
    "la contraseña del servidor es tapir-azul-5521": "tapir-azul",
    "pagerduty key is PDKEY-8f3a9c21d7e64b50": "PDKEY-8f3a",
    "Das Passwort für den Router lautet Fuchs-1988": "Fuchs-1988",
    "the code of the front door is 4821, and my sister lives in Lyon": "4821",
    "办公室打印机的密码是tapir-9934": "tapir-9934",
}
WITH_TAGS = {
    "the funding is from Minciencias grant 91847, english ok?": "91847",
    "the server is called heron, right?": "heron",
    "来週から大阪に引っ越します、いいですか？": "大阪",  # noqa: RUF001 - the full-width marks are the point
}
ASKED = (
    "what is the guest wifi called",
    "wo wohnt meine schwester",
    "can you draft a mail to the landlord",
    "open the report from May",
    "find the invoice from Acme",
)
WISH = "Leyla and me broke up. please dont mention her"
WIFI = "the wifi password is blue-otter-22"


@pytest.fixture(scope="module")
def gateway(
    openclaw: Installed, relayer: Relayer, model: StubModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """A gateway with memories of its own, to which all of the above was said, each in a chat of its own."""
    folder = tmp_path_factory.mktemp("openclaw-kept")
    gateway = Gateway(openclaw, folder, model.url, plugins=memrelay_plugins(relayer.url), agents=("main",))
    gateway.environment["XDG_STATE_HOME"] = str(folder / "state-of-ours")
    gateway.start()
    for number, text in enumerate((*SECRETS, *WITH_TAGS, *ASKED, "Leyla loves sailing.", WISH, LAST)):
        gateway.chat(text, user=f"kept-{number}")
    wait_until(lambda: LAST in relayer.memories(gateway))
    yield gateway
    gateway.stop()


@pytest.mark.row("OC-03", level="e2e")
def test_a_secret_is_taken_out_in_its_place_and_what_stands_beside_it_stays(
    gateway: Gateway, relayer: Relayer, model: StubModel
) -> None:
    stored = relayer.memories(gateway)
    assert [secret for secret in SECRETS.values() for text in stored if secret in text] == []
    assert "la contraseña del servidor es [password removed]" in stored
    assert [text for text in stored if "Lyon" in text]
    question = "Where does my sister live?"
    gateway.chat(question, user="asking-for-the-sister")
    prompt = said(model.asked(question)[-1])
    assert "Lyon" in prompt
    assert "4821" not in prompt


@pytest.mark.row("OC-03", level="e2e")
def test_a_secret_that_is_asked_to_be_kept_is_kept_by_the_option_alone(
    gateway: Gateway, relayer: Relayer
) -> None:
    told = gateway.command(f"/remember {WIFI}")
    assert "the wifi password is [password removed]" in told
    assert told.endswith("To keep it: /memory remember --with-secrets TEXT")
    assert not [text for text in relayer.memories(gateway) if "blue-otter" in text]
    gateway.command(f"/memory remember --with-secrets {WIFI}")
    assert WIFI in relayer.memories(gateway)


def test_a_statement_with_a_question_behind_it_is_kept(gateway: Gateway, relayer: Relayer) -> None:
    stored = "\n".join(relayer.memories(gateway))
    assert [word for word in WITH_TAGS.values() if word not in stored] == []


def test_questions_and_requests_without_a_mark_are_no_memories(gateway: Gateway, relayer: Relayer) -> None:
    stored = relayer.memories(gateway)
    assert [asked for asked in ASKED if any(asked.lower() in text.lower() for text in stored)] == []


def test_a_greeting_brings_few_lines_and_not_who_is_not_to_be_mentioned(
    gateway: Gateway, model: StubModel
) -> None:
    before = len(model.turns)
    gateway.chat("hi", user="kept-greeting")
    prompt = said(model.turns[before])
    lines = [line for line in prompt.splitlines() if line.startswith("- ")]
    assert 1 <= len(lines) <= 8
    assert "Leyla" not in prompt
    assert not [asked for asked in ASKED if asked in prompt]


def test_what_was_replaced_is_listed_in_the_chat_and_a_plan_replaces_nothing(
    gateway: Gateway, relayer: Relayer
) -> None:
    both = ("This week I see my dentist Dr. Sato.", "Next week I see my dentist Dr. Tanaka.")
    phone = ("My phone number is 555-0171.", "I changed my phone number, it is 555-0188 now.")
    for number, text in enumerate((*both, *phone)):
        gateway.chat(text, user=f"kept-replaced-{number}")
        wait_until(lambda text=text: any(text.rstrip(".") in one for one in relayer.memories(gateway)))
    replaced = wait_for_replaced(gateway)
    assert "555-0171" in replaced
    assert "555-0188" in replaced
    assert "Sato" not in replaced
    shown = gateway.command("/memory list")
    assert "Sato" in shown
    assert "Tanaka" in shown
    restore = next(line.split() for line in replaced.splitlines() if "memrelay-gateway restore" in line)
    assert gateway.cli("memrelay", *restore[1:]).returncode == 0
    stored = "\n".join(relayer.memories(gateway))
    assert "555-0171" in stored
    assert "555-0188" in stored


def wait_for_replaced(gateway: Gateway) -> str:
    """Return what ``/memory replaced`` says as soon as it lists something."""
    answers: list[str] = []

    def listed() -> bool:
        answers.append(gateway.command("/memory replaced"))
        return "restore" in answers[-1]

    wait_until(listed)
    return answers[-1]
