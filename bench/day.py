"""A person's day, as it is lived: what people tell an assistant in chat, and what they ask it later, in fifteen languages.

    python -m bench.day [--half unseen|second|strangers] [--fill 300] [--only de,fr] [--embedder local] [--failures]

Every persona of ``bench/sets/day`` is an agent of its own: what it says goes through the plugin's `after_turn`, what it asks
through `before_turn`, both at default settings, and what is counted is what stands in the prompt. The sets were written before
anything was tuned on them; of ``unseen`` and ``strangers`` only totals are printed.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import structlog
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from bench.locomo import conversations
from bench.report import Section, show
from gateway_plugin.client import TrustStore, identify, load_keys, parse_session_key
from memrelay import AsyncMemoryPlugin, Injection, RelayerClient
from relayer.adapters.local_embedder import Kind, LocalEmbedder
from relayer.testing.local_relayer import local_relayer
from relayer.wire import schemas

__all__ = ["SETS", "Persona", "Tally", "day", "personas", "verify_sets"]

SETS = Path(__file__).parent / "sets" / "day"
# Two were written at first, two later by a hand that had read neither; of the others than `_LOOKED_AT` only totals are read.
HALVES = ("seen", "unseen", "second", "strangers")
_LOOKED_AT = ("seen", "second")
_PAGE = 100
_DEADLINE = 60.0
_BATCH = 64
SECRET = "5a" * 32
"""What is counted, in the order of the table: name, what it means, and whether more is better."""
MEASURES: dict[str, tuple[str, bool]] = {
    "told": ("asked for, and in the prompt", True),
    "facts kept": ("told in chat, and stored", True),
    "short kept": ("short facts stored", True),
    "short told": ("short facts asked for, and in the prompt", True),
    "corrected": ("the new value told, and the old one not as current", True),
    "stale": ("the old value told as current", False),
    "both stay": ("two alike that are both true, both live", True),
    "touching": ("prompts that touch a memory and get it", True),
    "unrelated": ("unrelated prompts that got anything", False),
    "noise": ("of what is stored, what should not be", False),
}


@dataclass(frozen=True, slots=True)
class Persona:
    """One person of the sets; ``raw`` is the file, see ``bench/sets/day/README.md`` for its form."""

    name: str
    language: str
    raw: dict[str, Any]

    def fact(self, name: str) -> dict[str, Any]:
        """A fact by its id."""
        found: dict[str, Any] = next(fact for fact in self.raw["facts"] if fact["id"] == name)
        return found


@dataclass
class Tally:
    """Hits and cases of each measure, and what failed."""

    hits: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    cases: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    failures: list[tuple[str, str, str]] = field(default_factory=list)

    def add(self, measure: str, *, hit: bool, what: str = "", got: str = "") -> None:
        """Count a case; it failed when ``hit`` is not what is wanted."""
        self.cases[measure] += 1
        self.hits[measure] += hit
        if hit is not MEASURES[measure][1]:
            self.failures.append((measure, what, got))

    def join(self, other: Tally) -> None:
        """Add another's counts."""
        for measure, count in other.cases.items():
            self.cases[measure] += count
            self.hits[measure] += other.hits[measure]
        self.failures += other.failures

    def share(self, measure: str) -> float:
        """Hits in percent; NaN without a case."""
        return 100 * self.hits[measure] / self.cases[measure] if self.cases[measure] else float("nan")


class CachedEmbedder(LocalEmbedder):
    """The real embedder, asked once for each text: the same notes fill every namespace."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind)
        self._known: dict[tuple[str, bool, bool], NDArray[np.float32]] = {}

    async def embed(
        self, texts: Sequence[str], *, query: bool = False, prompt: bool = False
    ) -> NDArray[np.float32]:
        """As the real one."""
        new = [text for text in dict.fromkeys(texts) if (text, query, prompt) not in self._known]
        if new:
            rows = await super().embed(new, query=query, prompt=prompt)
            for text, row in zip(new, rows, strict=True):
                self._known[text, query, prompt] = row
        return np.stack([self._known[text, query, prompt] for text in texts])


def personas(half: str, only: Iterable[str] = ()) -> list[Persona]:
    """The personas of a half; of some languages, or of persons (``de-03``), if any are given."""
    wanted = set(only)
    found = []
    for path in sorted((SETS / half).glob("*.json")):
        raw = json.loads(path.read_text("utf-8"))
        if not wanted or wanted & {raw["language"], path.stem}:
            found.append(Persona(path.stem, raw["language"], raw))
    return found


def verify_sets() -> list[str]:
    """Names of set files whose SHA-256 is not the one that was written down when they were made."""
    lines = (SETS / "SHA256SUMS").read_text("utf-8").split("\n")
    sums = dict(reversed(line.split("  ", 1)) for line in lines if line)
    here = {str(path.relative_to(SETS)) for half in HALVES for path in (SETS / half).glob("*.json")}
    wrong = [name for name, known in sums.items() if name not in here or _sha256(SETS / name) != known]
    return sorted({*wrong, *(here - sums.keys())})


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _has(text: str, any_of: Iterable[str]) -> bool:
    folded = text.casefold()
    return any(part.casefold() in folded for part in any_of)


class Life:
    """One persona's agent: says, asks, looks at what is stored."""

    def __init__(self, plugin: AsyncMemoryPlugin, client: RelayerClient, persona: Persona) -> None:
        self._plugin = plugin
        self._client = client
        self._agent = persona.name
        self._identity = identify(
            load_keys({"MEMRELAY_SECRET": SECRET}, notify=print), parse_session_key(self._session(0))
        )
        self._sessions = 0

    def _session(self, number: int) -> str:
        return f"agent:{self._agent}:chat-{number}"

    def _next_session(self) -> str:
        self._sessions += 1
        return self._session(self._sessions)

    async def say(self, said: Sequence[str], reply: str = "") -> None:
        """One turn of a chat of its own, captured."""
        messages = [{"role": "user", "content": text} for text in said]
        if reply:
            messages.append({"role": "assistant", "content": reply})
        await self._plugin.after_turn(messages, session_key=self._next_session())

    async def ask(self, prompt: str) -> Injection:
        """One prompt in a session of its own; the text is all that stands in the prompt."""
        found = await self._plugin.before_turn(prompt, session_key=self._next_session(), deadline=_DEADLINE)
        return replace(found, text="\n".join(filter(None, (found.standing, found.text))))

    async def fill(self, notes: Sequence[str]) -> None:
        """Store other notes."""
        for at in range(0, len(notes), _BATCH):
            items = tuple(schemas.MemoryItem(text=text) for text in notes[at : at + _BATCH])
            await self._client.remember(
                self._identity, schemas.RememberRequest(items=items), deadline=_DEADLINE
            )

    async def stored(self) -> list[str]:
        """Texts of all live memories."""
        texts: list[str] = []
        cursor = None
        while True:
            page = await self._client.list_memories(
                self._identity, limit=_PAGE, cursor=cursor, deadline=_DEADLINE
            )
            texts += [memory.text for memory in page.memories]
            cursor = page.next_cursor
            if cursor is None:
                return texts


async def _tell(life: Life, raw: dict[str, Any]) -> None:
    """Everything that the persona says, as a week brings it: news between chatter, corrections at its end."""
    told: list[tuple[list[str], str]] = [(fact["said"], fact["reply"]) for fact in raw["facts"]]
    told += [([item["first"]], "") for item in (*raw["corrections"], *raw["compatible"])]
    told += [([item["said"]], "") for item in raw["short"]]
    for said, reply in told:
        await life.say(said, reply)
    for item in raw["noise"]:
        if item["role"] == "user":
            await life.say([item["said"]])
        else:
            await life.say(["ok"], item["said"])
    for item in (*raw["compatible"], *raw["corrections"]):
        await life.say([item["then"]])


def _count_stored(tally: Tally, texts: Sequence[str], raw: dict[str, Any]) -> None:
    for fact in raw["facts"]:
        tally.add(
            "facts kept", hit=any(_has(text, fact["kept"]) for text in texts), what=" / ".join(fact["said"])
        )
    for item in raw["short"]:
        tally.add("short kept", hit=any(_has(text, item["accept"]) for text in texts), what=item["said"])
    for item in raw["compatible"]:
        live = all(any(_has(text, [part]) for text in texts) for part in item["both"])
        tally.add("both stay", hit=live, what=f"{item['first']} | {item['then']}")
    noise = [item["said"].strip() for item in raw["noise"]]
    for text in texts:
        tally.add("noise", hit=any(text.strip() in said or said in text for said in noise), what=text)


def _judge_correction(tally: Tally, found: Injection, item: dict[str, Any]) -> None:
    """The new value must be there; the old one nowhere, or after the new one, whose date tells the order."""
    shown = [line.text for line in found.always] + [hit.text for hit in found.hits]
    places = {
        which: next((at for at, text in enumerate(shown) if _has(text, item[which])), None)
        for which in ("old", "new")
    }
    old, new = places["old"], places["new"]
    if old is not None and old == new:
        old = None
    what, got = f"{item['first']} | {item['then']} | {item['ask']}", found.text
    tally.add("corrected", hit=new is not None and (old is None or new < old), what=what, got=got)
    tally.add("stale", hit=old is not None and (new is None or old < new), what=what, got=got)


async def live(
    plugin: AsyncMemoryPlugin, client: RelayerClient, persona: Persona, filler: Sequence[str]
) -> Tally:
    """Let a persona tell and ask everything."""
    tally, raw, life = Tally(), persona.raw, Life(plugin, client, persona)
    if filler:
        await life.fill(filler)
    await _tell(life, raw)
    while not await plugin.flush(_DEADLINE):
        pass
    texts = await life.stored()
    strange = set(filler)
    _count_stored(tally, [text for text in texts if text not in strange], raw)
    for item in raw["questions"]:
        found = await life.ask(item["ask"])
        told = _has(found.text, item["accept"])
        tally.add(
            "told",
            hit=told,
            what=f"{item['ask']} <- {' / '.join(persona.fact(item['fact'])['said'])}",
            got=found.text,
        )
    for item in raw["short"]:
        found = await life.ask(item["ask"])
        tally.add(
            "short told",
            hit=_has(found.text, item["accept"]),
            what=f"{item['ask']} <- {item['said']}",
            got=found.text,
        )
    for item in raw["corrections"]:
        _judge_correction(tally, await life.ask(item["ask"]), item)
    for item in raw["touching"]:
        found = await life.ask(item["prompt"])
        hit = _has(found.text, persona.fact(item["fact"])["kept"])
        tally.add(
            "touching",
            hit=hit,
            what=f"{item['prompt']} <- {' / '.join(persona.fact(item['fact'])['said'])}",
            got=found.text,
        )
    for prompt in raw["unrelated"]:
        found = await life.ask(prompt)
        tally.add("unrelated", hit=bool(found.hits), what=prompt, got=found.text)
    return tally


def notes(count: int, half: str, data: Sequence[Path]) -> Iterator[str]:
    """Other notes to fill a namespace with: what others say in chats that lie elsewhere, said again on other days."""
    texts = [turn.text for path in data for talk in conversations(path) for turn in talk.turns]
    if not texts:
        texts = [" ".join(fact["said"]) for one in personas(half) for fact in one.raw["facts"]]
    for at in range(count):
        again = at // len(texts)
        yield texts[at % len(texts)] + (f" ({again})" if again else "")


async def day(
    half: str,
    *,
    only: Iterable[str] = (),
    fill: int = 0,
    data: Sequence[Path] = (),
    embedder: Kind = "multilingual",
    progress: Progress | None = None,
) -> dict[str, Tally]:
    """Live the days of a half; tallies by language."""
    tallies: dict[str, Tally] = defaultdict(Tally)
    chosen = personas(half, only)
    task = progress.add_task(f"{half} half, {fill} other memories", total=len(chosen)) if progress else None
    filler = list(notes(fill, half, data))
    with tempfile.TemporaryDirectory(prefix="memrelay-day-") as folder:
        cached = CachedEmbedder(embedder)
        await cached.load()
        async with (
            local_relayer(embedder=cached, rate_limits="off") as relayer,
            AsyncMemoryPlugin(relayer.url, secret=SECRET, environ={"HOME": folder}) as plugin,
            aclosing(RelayerClient(relayer.url, trust=TrustStore(Path(folder) / "trust.json"))) as client,
        ):
            for persona in chosen:
                tallies[persona.language].join(await live(plugin, client, persona, filler))
                if progress and task is not None:
                    progress.advance(task)
        await cached.close()
    return tallies


def section(half: str, fill: int, tallies: dict[str, Tally]) -> Section:
    """The table: a line a language, the sum last."""
    total = Tally()
    for tally in tallies.values():
        total.join(tally)
    rows, numbers = [], {}
    for language, tally in [*sorted(tallies.items()), ("all", total)]:
        shares = {measure: tally.share(measure) for measure in MEASURES}
        numbers[language] = shares | {"cases": dict(tally.cases)}
        rows.append((language, *(f"{share:.1f}" for share in shares.values())))
    title = f"A person's day: {half}, {fill} other memories, in percent"
    explained = tuple(f"{name}: {meaning}" for name, (meaning, _) in MEASURES.items())
    return Section(title, ("language", *MEASURES), rows, numbers, explained)


def main(
    half: Annotated[str, typer.Option(help="seen, unseen, second or strangers.")] = "seen",
    only: Annotated[str, typer.Option(help="Languages or personas, with commas.")] = "",
    fill: Annotated[int, typer.Option(help="Other memories in each namespace.")] = 0,
    data: Annotated[list[Path] | None, typer.Option(help="Conversations to fill with.")] = None,
    embedder: Annotated[Kind, typer.Option(help="The model in the relayer.")] = "multilingual",
    *,
    failures: Annotated[
        bool, typer.Option("--failures", help="Print what failed; not of unseen and strangers.")
    ] = False,
) -> None:
    """Live the days of a half and print what was told, kept and left alone."""
    if half not in HALVES:
        raise typer.BadParameter(f"{half} is none of {', '.join(HALVES)}")
    wrong = verify_sets()
    if wrong:
        sys.exit(f"not the sets that were written down: {', '.join(wrong)}")
    begun, console = time.monotonic(), Console(width=150)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        chosen = [part for part in only.split(",") if part]
        tallies = asyncio.run(
            day(half, only=chosen, fill=fill, data=data or [], embedder=embedder, progress=progress)
        )
    show(section(half, fill, tallies), console)
    console.print(f"{time.monotonic() - begun:.0f} s")
    if failures and half in _LOOKED_AT:
        for language, tally in sorted(tallies.items()):
            for measure, what, got in tally.failures:
                print(f"{language}\t{measure}\t{what!r}\t{got!r}")


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command()(main)
    app()
