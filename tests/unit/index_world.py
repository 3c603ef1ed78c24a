"""Namespaces with a stored index, for tests: what is done to them, and what two relayers say of them."""

from __future__ import annotations

import random

from relayer.domain.operations import Erase, Forget, Origin, Record, Restore, Source
from relayer.maintenance.logs import IndexLimits, IndexMaintenance
from relayer.namespaces.namespace import OpenNamespace
from relayer.use_cases.recall import recall
from relayer.wire.fields import Audience, Consistency, Kind, Trust
from relayer.wire.schemas import RecallRequest
from relayer.writing.drafts import Draft, append_drafts

SMALL = IndexLimits(least=1, growth=1.0)
WORDS = ("tea", "coffee", "oslo", "lisbon", "bicycle", "garden", "piano", "winter", "tokyo", "harbour")


async def opened_of(house, agent: str = "researcher") -> OpenNamespace:
    async with house.ctx.namespaces.use(house.access(agent), house.deadline(), create=True) as opened:
        return opened


async def write_index(house, agent: str = "researcher", limits: IndexLimits = SMALL) -> bool:
    return await IndexMaintenance(house.ctx, limits).keep(await opened_of(house, agent))


def text(rng: random.Random) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(2, 6)))


async def do_something(house, rng: random.Random, *, erases: bool = True) -> None:
    """Append one entry of one operation or several."""
    opened = await opened_of(house)
    known = opened.ids()
    origin = Origin(b"author", house.randomness.bytes(16))
    chosen = rng.random()
    if known and chosen < 0.12:
        await opened.log.append([Forget(origin, rng.choice(known))])
    elif known and chosen < 0.2:
        await opened.log.append([Restore(origin, rng.choice(known))])
    elif known and chosen < 0.3 and erases:
        await opened.log.append([Erase(origin, (rng.choice(known),))])
    else:
        house.embedder.down = rng.random() < 0.1
        drafts = [_draft(rng, known) for _ in range(rng.randrange(1, 4))]
        await append_drafts(
            house.ctx, opened, house.access(), drafts, idempotency_key=None, deadline=house.deadline()
        )
        house.embedder.down = False
    await opened.wait_indexed()


def _draft(rng: random.Random, known: list[bytes]) -> Draft:
    record = Record(
        id=b"",
        namespace="researcher",
        text=text(rng),
        kind=rng.choice([Kind.STATEMENT, Kind.FACT]),
        audience=rng.choice([Audience.AGENT, Audience.DIRECT]),
        trust=rng.choice([Trust.USER, Trust.TOOL]),
        source=Source(session=rng.choice(["", "s1", "s2"]), speaker=rng.choice(["", "Ada"])),
        suspect=rng.random() < 0.1,
        occurred_at=rng.choice([None, rng.randrange(10**12)]),
        expires_at=rng.choice([None, None, 2**41]),
        context_of=rng.choice([b"", *known[-2:]]),
    )
    return Draft(record)


async def answers(house, seed: int) -> list:
    """What a relayer says of the namespace, seen from every side."""
    rng = random.Random(seed)
    opened = await opened_of(house)
    await opened.read(Consistency.STRONG)
    found: list = [opened.log.state, list(opened.view.table.numbers), sorted(opened.view.table.shown)]
    for _ in range(6):
        request = RecallRequest(
            query=text(rng),
            floor=rng.choice([0, 0.3]),
            explain=True,
            kinds=rng.choice([(), ("fact",)]),
            audiences=rng.choice([(), ("direct",)]),
            include_suspect=rng.random() < 0.5,
            include=rng.choice([(), ("superseded", "forgotten")]),
            occurred_after=rng.choice([None, 10**11]),
        )
        found.append(await house.call(recall, request))
    found.append(list(opened.memories()))
    found.append([opened.last_of_session(session) for session in ("s1", "s2")])
    found.append((list(opened.view.space.lacking), opened.view.table.unreadable))
    found.append((opened.view.journal.after((0, 0)), opened.view.journal.after((5, 1))))
    return found
