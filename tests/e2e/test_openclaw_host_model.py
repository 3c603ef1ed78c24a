"""OpenClaw's own model makes facts and summaries of what was captured, and reminders, with a relayer that has no model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from e2e_relayer import Relayer
from openclaw_gateway import Gateway, memrelay_plugins
from processes import wait_until
from stub_model import StubModel, said, system

CAPTURED = "My cousin Ottilie opened a bindery in Ghent on 4 April 2026."
FACT = "The user's cousin Ottilie opened a bindery in Ghent."
INVENTED = "The user's cousin Ottilie sold a bakery in Bruges."
POINTS = ["Ottilie opened a bindery in Ghent."]
EXTRACTS = "You keep the long-term memory of an assistant"


def is_extraction(request: dict[str, Any]) -> bool:
    return EXTRACTS in system(request) and '"facts"' in system(request)


def answer(request: dict[str, Any]) -> str | None:
    """Extract as a model would: a fact that was said, and one that was not."""
    if is_extraction(request):
        if CAPTURED not in said(request):
            return '{"facts": [], "summary": ""}'
        proved = {"text": FACT, "message": 1, "evidence": "Ottilie opened a bindery in Ghent"}
        invented = {"text": INVENTED, "message": 1, "evidence": "sold a bakery in Bruges"}
        return json.dumps({"facts": [proved, invented], "summary": ""})
    return json.dumps({"points": POINTS}) if '"points"' in system(request) else None


@pytest.fixture
def hosted(gateway: Gateway, relayer: Relayer, model: StubModel) -> Iterator[Gateway]:
    """The gateway with the operator's consent to its model."""
    gateway.reload(memrelay_plugins(relayer.url, hostModel={"enabled": True}))
    model.answer_with(answer)
    yield gateway
    model.answer_with(lambda _request: None)


def questions(model: StubModel, about: str) -> list[dict[str, Any]]:
    return [one for one in model.requests if is_extraction(one) and about in said(one)]


@pytest.mark.row("CP-38", "CP-53", level="e2e")
@pytest.mark.row("MS-19", level="e2e")
def test_with_consent_openclaws_model_extracts_facts_that_were_said_and_summarises_the_session(
    hosted: Gateway, relayer: Relayer, model: StubModel
) -> None:
    user = "host-model"
    hosted.chat(CAPTURED, user=user)
    wait_until(lambda: FACT in relayer.memories(hosted))
    texts = relayer.memories(hosted)
    assert CAPTURED in texts
    assert INVENTED not in texts
    (question,) = questions(model, CAPTURED)
    assert not question.get("tools")
    status = hosted.command("/memory status")
    assert re.search(r"\d of 60 calls this hour, \d+ since the start; \d+ tokens.*facts stored", status)
    assert "hostModel.enabled: false ends that" in hosted.log_text()
    hosted.chat("The bindery of Ottilie employs Severin as an apprentice.", user=user)
    hosted.chat("My own workshop is two streets away in the Oudburg.", user=user)
    hosted.call("sessions.reset", {"key": f"agent:main:openai-user:{user}"})
    wait_until(lambda: f"- {POINTS[0]}" in relayer.memories(hosted))


@pytest.mark.row("AR-03", level="e2e")
def test_at_default_settings_openclaws_model_is_not_asked(
    gateway: Gateway, relayer: Relayer, model: StubModel
) -> None:
    saying = "The lighthouse keeper of Texel is called Wubbo Terpstra."
    asked = len(model.requests) - len(model.turns)
    gateway.chat(saying, user="no-host-model")
    wait_until(lambda: saying in relayer.memories(gateway))
    gateway.call("sessions.reset", {"key": "agent:main:openai-user:no-host-model"})
    assert "OpenClaw's model: not asked" in gateway.command("/memory status")
    assert len(model.requests) - len(model.turns) == asked


@pytest.mark.row("AM-01", level="e2e")
def test_active_mode_asks_openclaws_model_what_helps(
    hosted: Gateway, relayer: Relayer, model: StubModel
) -> None:
    fact = "My telescope is stored in the attic of the observatory in Leiden."
    reminder = "The telescope is stored in the attic of the observatory in Leiden."
    hosted.chat(fact, user="active-telling")
    wait_until(lambda: fact in relayer.memories(hosted))
    model.answer_with(lambda request: reminder if '"latest_message"' in said(request) else answer(request))
    # A machine that is busy may need more than a turn's two seconds to search; that deadline is not what is tested.
    recall = {"mode": "active", "deadlineMs": 10_000}
    hosted.reload(
        memrelay_plugins(
            relayer.url,
            recall=recall,
            active={"agents": ["main"], "timeoutMs": 30_000},
            hostModel={"enabled": True},
        )
    )
    question = "Where did I leave my telescope, actually?"
    # A turn does not wait for a bridge that is still starting, nor for a namespace that it opens first; this tool does.
    wait_until(lambda: fact in json.dumps(hosted.invoke("memory_search", {"query": question})))
    hosted.chat(question, user="active-asking")
    # In system context, where active-memory has it: not in what the user says.
    given = system(model.asked(question)[-1])
    why = hosted.command("/memory why", session="agent:main:openai-user:active-asking")
    assert "<active_memory_plugin>" in given, why
    assert reminder in given, why


@pytest.mark.row("AM-15", level="e2e")
def test_status_and_doctor_say_at_once_what_active_mode_needs_to_ask_a_model(
    gateway: Gateway, relayer: Relayer
) -> None:
    recall, active = {"mode": "active"}, {"agents": ["main", "research"]}
    consent = "memrelay-gateway init --host openclaw --write --host-model"
    permission = "openclaw config set plugins.entries.memrelay.llm.allowAgentIdOverride true"

    def told(plugins: dict[str, Any]) -> list[list[bool]]:
        gateway.reload(plugins)
        wait_until(lambda: "relayer: " in gateway.command("/memory status"))
        status = gateway.command("/memory status")
        doctor = gateway.cli("memrelay", "doctor", "--host", "openclaw", patience=300).stdout
        both = (status, " ".join(doctor.split()))
        return [[sentence in one for sentence in (consent, permission)] for one in both]

    assert told(memrelay_plugins(relayer.url, recall=recall, active=active)) == [[True, False]] * 2
    allowed = memrelay_plugins(relayer.url, recall=recall, active=active, hostModel={"enabled": True})
    assert told(allowed) == [[False, False]] * 2
    # An operator who decided otherwise is not gone round, but told which setting it is.
    allowed["entries"]["memrelay"]["llm"] = {"allowAgentIdOverride": False}
    assert told(allowed) == [[False, True]] * 2
