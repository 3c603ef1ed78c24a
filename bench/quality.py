"""Evidence recall and unwanted injection through the HTTP API, with the local model, without any language model.

One namespace a conversation, one memory a turn, the bare question as the query; deterministic for the same data. Every
prompt is asked at floor 0: what a higher floor leaves is what has that relevance, and one floor is asked for to see it.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.http_gateway import BenchGateway
from bench.http_servers import Server, started
from bench.locomo import CATEGORIES, Conversation, conversations
from bench.quality_curve import DEFAULT_FLOOR, Asked, curve_section, injection_section
from bench.report import Lab, Section
from bench.scores import CUTS, Scores
from bench.stats import percentile
from bench.unrelated_prompts import HELD_OUT
from gateway_plugin.keys.identity import Identity
from relayer.wire import schemas

__all__ = ["Found", "Space", "ask", "recall_quality", "store"]

LIMIT = 20
_NEAR_PROMPTS = 100
_PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class Space:
    """A conversation that was stored, and the id of the memory that each turn became."""

    conversation: Conversation
    identity: Identity
    memories: dict[str, str]


@dataclass(slots=True)
class Found:
    """Ids of the memories in an answer with their relevance, best first."""

    ids: list[str]
    relevance: list[float]
    seconds: float


async def recall_quality(lab: Lab) -> list[Section]:
    """Measure, or say that the data is not there."""
    if lab.data is None or not lab.data.is_file():
        return [_skipped(lab.data)]
    chosen = conversations(lab.data)
    if lab.quick:
        chosen = [_shortened(item) for item in chosen[:2]]
    work = lab.work / "quality"
    arguments = ["serve", "--port", "0", "--data", str(work / "data"), "--rate-limits", "off"]
    with started("relayer", arguments, work / "relayer") as relayer:
        gateway = BenchGateway(relayer, work)
        lab.say(f"quality: storing {sum(len(item.turns) for item in chosen):,} turns")
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(store(gateway, item)) for item in chosen]
        spaces = [task.result() for task in tasks]
        relayer.settle()
        sections = await _measure(lab, relayer, gateway, spaces)
        await gateway.client.aclose()
    return sections


async def store(gateway: BenchGateway, conversation: Conversation) -> Space:
    """Store a conversation in a namespace of its own, one memory a turn, each after the one before it."""
    identity = gateway.identity(conversation.id.lower())
    memories: dict[str, str] = {}
    before = None
    for turn in conversation.turns:
        item: dict[str, Any] = {
            "text": turn.text,
            "occurred_at": turn.occurred_at,
            "source": {"speaker": turn.speaker, "session": f"session-{turn.session}"},
        }
        if before is not None and before.session == turn.session:
            item["context_of"] = memories[before.id]
        request = schemas.RememberRequest.model_validate({"items": [item]})
        answer = await gateway.client.remember(identity, request, deadline=_PATIENCE)
        memories[turn.id] = answer.memories[0].id
        before = turn
    return Space(conversation, identity, memories)


async def _measure(
    lab: Lab, relayer: Server, gateway: BenchGateway, spaces: Sequence[Space]
) -> list[Section]:
    asked = Asked()
    categories: dict[str, Scores] = {category: Scores() for category in CATEGORIES}
    at_default = Scores()
    latencies: list[float] = []
    drawn = random.Random(lab.seed)
    for space in spaces:
        questions = space.conversation.questions
        lab.say(f"quality: asking {len(questions)} questions of {space.conversation.id}")
        texts = [question.text for question in questions]
        free = await ask(relayer, gateway, space.identity, texts, floor=0.0)
        gated = await ask(relayer, gateway, space.identity, texts, floor=DEFAULT_FLOOR)
        latencies += [found.seconds for found in free]
        for question, all_found, passed in zip(questions, free, gated, strict=True):
            evidence = [space.memories[turn] for turn in question.evidence]
            categories[question.category].add(all_found.ids, evidence)
            at_default.add(passed.ids, evidence)
            asked.answerable.append((all_found.ids, all_found.relevance, evidence))
        others = [q.text for other in spaces if other is not space for q in other.conversation.questions]
        near = drawn.sample(others, min(_NEAR_PROMPTS, len(others)))
        sets = {"unrelated": HELD_OUT, "near": near, "never said": space.conversation.never_said}
        for name, prompts in sets.items():
            answers = await ask(relayer, gateway, space.identity, prompts, floor=0.0)
            asked.others[name] += [max(found.relevance, default=0.0) for found in answers]
    return [
        _recall_section(asked, categories, at_default, latencies),
        injection_section(asked),
        curve_section(asked),
    ]


async def ask(
    relayer: Server, gateway: BenchGateway, identity: Identity, texts: Sequence[str], *, floor: float
) -> list[Found]:
    """Ask one question after the other over one connection; answers come in the order of the questions."""
    bodies = [{"query": text, "floor": floor, "limit": LIMIT} for text in texts]
    load = (
        await relayer.answer([await gateway.request(identity, "/v1/recall", body) for body in bodies], 1)
    ).load
    found = []
    for answer, seconds in zip(load.bodies, load.latencies, strict=True):
        memories = json.loads(answer)["memories"]
        found.append(
            Found(
                [memory["id"] for memory in memories], [memory["relevance"] for memory in memories], seconds
            )
        )
    return found


def _recall_section(
    asked: Asked, categories: dict[str, Scores], at_default: Scores, latencies: Sequence[float]
) -> Section:
    scores = {"floor 0": asked.at(0.0)}
    scores |= {f"floor 0, {category}": found for category, found in categories.items() if len(found)}
    scores[f"floor {DEFAULT_FLOOR}"] = at_default
    measures = (*(f"r@{cut}" for cut in CUTS), "MRR", "nDCG@10")
    rows = []
    for name, found in scores.items():
        means = found.means()
        rows.append((name, str(len(found)), *(f"{means[measure]:.1f}" for measure in measures)))
    times = {f"p{share}": percentile(latencies, share / 100) for share in (50, 95, 99)}
    data: dict[str, Any] = {name: found.means() | {"questions": len(found)} for name, found in scores.items()}
    return Section(
        "Evidence recall through the HTTP API, in percent",
        ("questions", "n", *measures),
        rows,
        data | {"recall_seconds": times},
        (
            f"floor 0 and limit {LIMIT}: everything that ranks; floor {DEFAULT_FLOOR} is the default of a recall;",
            "recall with a question never asked before, one connection, embedding included: "
            + ", ".join(f"{name} {value * 1e3:.1f} ms" for name, value in times.items()),
        ),
    )


def _shortened(conversation: Conversation) -> Conversation:
    turns = conversation.turns[:30]
    known = {turn.id for turn in turns}
    questions = [item for item in conversation.questions if known.issuperset(item.evidence)]
    return Conversation(conversation.id, turns, tuple(questions[:10]), conversation.never_said[:5])


def _skipped(path: Path | None) -> Section:
    reason = "no --data was given" if path is None else f"{path} is not there"
    return Section(
        "LoCoMo evidence recall: skipped",
        ("why",),
        [(f"{reason}; give the path of the conversations by --data (make bench DATA=...)",)],
        {"skipped": reason},
    )
