"""Measure what captures do to what was said before: nothing that is true may disappear, and what is over should.

    python -m bench.relations dev [--failures]
    python -m bench.relations unseen
    python -m bench.relations dev --curve       # how many pairs the reader takes for changes, by likelihood, without captures

Everything is said to a relayer over HTTP, at default settings, and only what it stores is counted. The pairs of
``bench/sets/precise/*/relations`` and those of ``bench/sets/day`` are captured one after the other, each pair by an agent of its own,
as they are and among the statements of a person of ``precise/*/people``, all of which are true at one time. Of ``unseen`` only totals are
printed.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from bench.day import SECRET, personas
from bench.report import Section, show
from gateway_plugin.client import Identity, TrustStore, identify, load_keys, parse_session_key
from memrelay import RelayerClient
from relayer.adapters.local_embedder import LocalEmbedder
from relayer.ports import RELATIONS, RelationReader
from relayer.telemetry import configure
from relayer.testing.local_relayer import local_relayer
from relayer.wire import schemas
from relayer.writing.merging import LOOKED_AT, clause_spans, relations

SETS = Path(__file__).parent / "sets" / "precise"
HALVES = ("dev", "unseen")
OUTCOMES = ("replaced", "dropped", "first", "beside")
"""What a capture did to the statement before it: replaced it; was dropped because it says the same; is shown before it; nothing."""
_DEADLINE = 60.0
_DAY_MS = 86_400_000
_BEGUN_MS = 1_760_000_000_000


@dataclass(frozen=True, slots=True)
class Case:
    """Two statements of one person, their relation and their language."""

    language: str
    relation: str
    old: str
    new: str


@dataclass(slots=True)
class Count:
    """The outcomes of cases of one kind; ``left`` are cases of which the relayer did not keep both statements in any case."""

    outcomes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    left: int = 0

    def share(self, *wanted: str) -> float:
        """Return the share of these outcomes among the cases, in percent; NaN without a case."""
        total = sum(self.outcomes.values())
        return 100 * sum(self.outcomes[one] for one in wanted) / total if total else float("nan")


def cases(half: str) -> list[Case]:
    """Return the pairs of a half."""
    found = []
    for path in sorted((SETS / half / "relations").glob("*.tsv")):
        for line in path.read_text("utf-8").splitlines():
            relation, old, new = line.split("\t")
            found.append(Case(path.stem, relation, old, new))
    for persona in personas("second" if half == "dev" else "unseen"):
        pairs = [
            *(("replaces", item) for item in persona.raw["corrections"]),
            *(("both", item) for item in persona.raw["compatible"]),
        ]
        found += [Case(persona.language, relation, item["first"], item["then"]) for relation, item in pairs]
    return found


def people(half: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the language and the statements of each person of a half; all statements are true at one time."""
    for path in sorted((SETS / half / "people").glob("*.json")):
        raw = json.loads(path.read_text("utf-8"))
        yield raw["language"], raw["memories"]


def changed_files() -> list[str]:
    """Return the files of ``unseen`` that are not those that were written down before anything was tuned."""
    found = []
    for sums in sorted((SETS / "unseen").glob("*SHA256SUMS")):
        for line in sums.read_text("utf-8").splitlines():
            digest, name = line.split(maxsplit=1)
            path = sums.parent / name
            if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
                found.append(name)
    return found


class Captures:
    """Says statements to a relayer, each agent's in a namespace of its own."""

    def __init__(self, client: RelayerClient) -> None:
        self._client = client
        self._keys = load_keys({"MEMRELAY_SECRET": SECRET}, notify=print)
        self._agents = 0

    def agent(self) -> Identity:
        """Return an agent without memories."""
        self._agents += 1
        return identify(self._keys, parse_session_key(f"agent:relations-{self._agents}:chat"))

    async def say(self, identity: Identity, text: str, day: int) -> str | None:
        """Capture a message; return the id of the memory that it became or repeats; None if it was not worth keeping."""
        turn = schemas.TurnItem(role="user", text=text, occurred_at=_BEGUN_MS + day * _DAY_MS)
        request = schemas.AnalyzeRequest(turns=(turn,), session=f"day {day}")
        answer = await self._client.analyze(identity, request, deadline=_DEADLINE)
        return answer.memories[0].id if answer.memories else None

    async def get(self, identity: Identity, memory: str) -> schemas.Memory:
        """Return a memory as the relayer shows it."""
        return (await self._client.get_memory(identity, memory, deadline=_DEADLINE)).memory

    async def outcome(self, old_text: str, new_text: str) -> str | None:
        """Capture two statements by an agent of their own; return what the second did to the first, as the relayer shows it.

        None stands for a case of which not both were worth keeping.
        """
        identity = self.agent()
        old, new = await self.say(identity, old_text, 0), await self.say(identity, new_text, 30)
        if old is None or new is None:
            return None
        if old == new:
            return "dropped"
        before, after = [await self.get(identity, one) for one in (old, new)]
        if before.state != "live" or before.replaced:
            return "replaced"
        return "first" if old in (*after.follows, *after.contradicts) else "beside"


async def count_pairs(
    captures: Captures, pairs: Iterable[Case], failures: list[tuple[Case, str]]
) -> dict[str, dict[str, Count]]:
    """Capture pairs; return the counts by language and relation."""
    counts: dict[str, dict[str, Count]] = defaultdict(lambda: {name: Count() for name in RELATIONS})
    for case in pairs:
        counted = counts[case.language][case.relation]
        outcome = await captures.outcome(case.old, case.new)
        if outcome is None:
            counted.left += 1
            continue
        counted.outcomes[outcome] += 1
        if (case.relation == "replaces") is not (outcome == "replaced"):
            failures.append((case, outcome))
    return counts


async def count_lives(
    captures: Captures, lives: Iterable[tuple[str, Sequence[str]]], failures: list[tuple[Case, str]]
) -> dict[str, tuple[int, int]]:
    """Capture what people say in its order; return how many statements were kept and how many of them were lost again."""
    counts: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for language, said in lives:
        identity = captures.agent()
        ids: dict[str, str] = {}
        lost = 0
        for day, text in enumerate(said):
            found = await captures.say(identity, text, day)
            if found in ids:
                failures.append((Case(language, "both", ids[found], text), "dropped"))
                lost += 1
            elif found is not None:
                ids[found] = text
        for one, text in ids.items():
            memory = await captures.get(identity, one)
            if memory.state != "live" or memory.replaced:
                by = memory.superseded_by or memory.replaced[0].by
                failures.append((Case(language, "both", text, ids[by]), "replaced"))
                lost += 1
        kept, gone = counts[language]
        counts[language] = (kept + len(ids), gone + lost)
    return counts


def pairs_section(half: str, counts: dict[str, dict[str, Count]]) -> Section:
    """Return the table of pairs: a line for each language, the sum last."""
    total: dict[str, Count] = {name: Count() for name in RELATIONS}
    for found in counts.values():
        for name, count in found.items():
            total[name].left += count.left
            for outcome, number in count.outcomes.items():
                total[name].outcomes[outcome] += number
    rows, numbers = [], {}
    for language, found in [*sorted(counts.items()), ("all", total)]:
        shares = {
            "true kept": found["both"].share("first", "beside"),
            "true shown second": found["both"].share("first"),
            "refined kept": found["refines"].share("first", "beside"),
            "old left": found["replaces"].share("first", "beside", "dropped"),
            "old left, shown second": found["replaces"].share("first"),
            "new dropped": found["replaces"].share("dropped"),
            "same dropped": found["same"].share("dropped"),
        }
        numbers[language] = shares | {name: dict(count.outcomes) for name, count in found.items()}
        sizes = "/".join(f"{sum(found[name].outcomes.values())}" for name in ("both", "replaces"))
        rows.append((language, sizes, *(f"{share:.1f}" for share in shares.values())))
    names = [name for name in numbers["all"] if name not in RELATIONS]
    return Section(f"Pairs, {half}, in percent", ("language", "both/replaces", *names), rows, numbers)


def lives_section(half: str, counts: dict[str, tuple[int, int]]) -> Section:
    """Return the table of people: how many of their true statements were lost."""
    total = (sum(kept for kept, _ in counts.values()), sum(lost for _, lost in counts.values()))
    rows = [
        (language, f"{kept}", f"{lost}", f"{100 * lost / kept if kept else 0:.2f}")
        for language, (kept, lost) in [*sorted(counts.items()), ("all", total)]
    ]
    return Section(
        f"True statements of one person each, {half}",
        ("language", "kept", "lost", "in percent"),
        rows,
        {"all": total},
    )


LEFT_OUT = ("a part replaced", "no part replaced", "replaced", "another thing changed")
"""What is counted of statements that no reader learnt from: of long ones, and of ones next to changes of other things."""
_LIKELIHOODS = (0.8, 0.9, 0.95, 0.96, 0.97, 0.98, 0.985, 0.99)


def left_out() -> list[tuple[str, str, str]]:
    """Return statements, each with what replaces it or a part of it, and what leaves all of it true; no reader learnt from them."""
    found, older = [], ""
    for path in sorted((SETS.parent / "relations" / "left_out").glob("*.txt")):
        for line in path.read_text("utf-8").splitlines():
            kind, _, rest = line.partition(" ")
            if kind == "O":
                older = rest.replace("[[", "").replace("]]", "")
            elif rest:
                found.append((LEFT_OUT["RB".index(kind) + 2 * path.name.startswith("mixed")], older, rest))
    return found


async def curve_section(half: str) -> Section:
    """Return how many pairs are taken for changes from a likelihood on: pairs of a half, and near statements of one person."""
    embedder = LocalEmbedder("multilingual")
    await embedder.load()
    pairs = [(case.relation, case.old, case.new) for case in cases(half)]
    pairs += left_out()
    for _, said in people(half):
        rows = await embedder.embed(said)
        for at in range(1, len(said)):
            near = np.argsort(-(rows[:at] @ rows[at]))[:LOOKED_AT]
            pairs += [("one person", said[other], said[at]) for other in near]
    read = await relations(
        embedder, [([old[slice(*span)] for span in clause_spans(old)], new) for _, old, new in pairs]
    )
    await embedder.close()
    found: dict[str, list[float]] = defaultdict(list)
    for (relation, _, _), likely in zip(pairs, read, strict=True):
        found[relation].append(likely.likeliest)
    names = ("replaces", "both", "one person", *LEFT_OUT)
    table = [
        (f"{least}", *(f"{100 * np.mean(np.array(found[name]) >= least):.1f}" for name in names))
        for least in _LIKELIHOODS
    ]
    sizes = [f"{name}, of {len(found[name])}" for name in names]
    return Section(f"Taken for changes, {half}, in percent", ("from", *sizes), table, dict(found))


@asynccontextmanager
async def capturing(relations: RelationReader | None = None) -> AsyncIterator[Captures]:
    """Run a relayer at default settings, in this process and on a real socket.

    Args:
        relations: instead of the relayer's own reader, to see that captures are measured.
    """
    embedder = LocalEmbedder("multilingual")
    with tempfile.TemporaryDirectory(prefix="memrelay-relations-") as folder:
        async with (
            local_relayer(
                embedder=embedder, relations=relations, rate_limits="off", quota_namespaces=0
            ) as relayer,
            aclosing(RelayerClient(relayer.url, trust=TrustStore(Path(folder) / "trust.json"))) as client,
        ):
            yield Captures(client)
    await embedder.close()


async def measure(half: str, failures: list[tuple[Case, str]], only: Sequence[str] = ()) -> list[Section]:
    """Measure a half; ``failures`` gets what went wrong."""
    pairs = [case for case in cases(half) if not only or case.language in only]
    lives = [life for life in people(half) if not only or life[0] in only]
    async with capturing() as captures:
        return [
            pairs_section(half, await count_pairs(captures, pairs, failures)),
            lives_section(half, await count_lives(captures, lives, failures)),
        ]


def main(
    half: Annotated[str, typer.Argument(help="dev or unseen.")] = "dev",
    only: Annotated[str, typer.Option(help="Languages, with commas.")] = "",
    *,
    failures: Annotated[
        bool, typer.Option("--failures", help="Print what went wrong; not of unseen.")
    ] = False,
    curve: Annotated[
        bool, typer.Option("--curve", help="Read pairs without captures, all languages.")
    ] = False,
) -> None:
    """Capture pairs and people, and print what was replaced, dropped and kept."""
    if half not in HALVES:
        raise typer.BadParameter(f"{half} is none of {', '.join(HALVES)}")
    if half == "unseen" and (changed := changed_files()):
        sys.exit(f"not the sets that were written down: {', '.join(changed)}")
    console, wrong = Console(width=170), list[tuple[Case, str]]()
    if curve:
        show(asyncio.run(curve_section(half)), console)
        return
    for section in asyncio.run(measure(half, wrong, [part for part in only.split(",") if part])):
        show(section, console)
    if failures and half == "dev":
        for case, outcome in wrong:
            print(f"{case.language}\t{case.relation}\t{outcome}\t{case.old}\t{case.new}")


if __name__ == "__main__":
    configure("console", "warning")
    typer.run(main)
