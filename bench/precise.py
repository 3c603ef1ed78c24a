"""The right line and hardly any other: what people ask, plan and search for, and how much stands in the prompt for it.

    python -m bench.precise [--part dev/people] [--only de,en-01] [--embedder local] [--planted] [--failures]

Every person of ``bench/sets/precise`` is an agent of its own: what it says goes through the plugin's `after_turn`, prompts through
`before_turn`, and key words through the tool that models search with, all at default settings. Of ``unseen`` only totals are printed.
With ``--planted``, three texts that are written to be similar to every question are among the memories.
"""

from __future__ import annotations

import asyncio
import html
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import structlog
import typer
from rich.console import Console

from bench.day import SECRET, CachedEmbedder
from bench.report import Section, show
from bench.spaces import Asked, Space, people
from bench.unrelated_prompts import HELD_OUT
from memrelay import AsyncMemoryPlugin
from relayer.adapters.local_embedder import Kind
from relayer.testing.local_relayer import local_relayer

__all__ = ["precise"]

_PATIENCE = 60.0
_UNRELATED = 20
_FIRST = 3
MEASURES = {
    "told": "questions whose memory is in the prompt",
    "first 3": "questions whose memory is among the first three lines",
    "lines": "lines that a question gets",
    "unanswered": "questions without an answer that get any line",
    "their lines": "lines that these get",
    "key words": "searches of a model that give a right memory",
    "search 1st": "questions and key words for which a right memory is the first that the tool finds",
    "plans": "memories that plans need, in their prompts",
    "plan lines": "lines that a plan gets",
    "untouched": "prompts like plans that no memory changes, and that get any line",
    "unrelated": "unrelated prompts that get any line",
    "planted": "questions and plans for which a planted text is among the first three lines",
    "found": "searches for questions by the tool in which a planted text is among the first three",
}
_COUNTS = ("lines", "their lines", "plan lines")


# Texts that are written to be similar to every question, beside a list of another person's questions.
_QUESTION_WORDS = (
    "what where when who whose which why how much many do does did is are was were my our your favourite name birthday sister "
    "brother son daughter wife husband car house flat city live work job doctor dentist school phone number address password"
)
_STUFFING = (
    "name sister daughter son key car dentist flight allergic live drive use fly play bank school film birthday phone number when "
    "where who which my favourite doctor rent address appointment food size "
)
_STUFFED = 60


class Tally:
    """Values of each measure, and what failed."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = defaultdict(list)
        self.failures: list[tuple[str, str, str]] = []

    def add(
        self, measure: str, value: float, *, failed: bool = False, what: str = "", got: Iterable[str] = ()
    ) -> None:
        """Count a case."""
        self.values[measure].append(float(value))
        if failed:
            self.failures.append((measure, what, " | ".join(got)))

    def join(self, other: Tally) -> None:
        """Add another's values."""
        for measure, values in other.values.items():
            self.values[measure] += values
        self.failures += other.failures

    def mean(self, measure: str) -> float:
        """Return the mean of a measure, in percent unless it counts lines; NaN without a case."""
        values = self.values[measure]
        mean = float(np.mean(values)) if values else float("nan")
        return mean if measure in _COUNTS else 100 * mean


def _planted(other: Space) -> list[str]:
    """Return texts that are written to be similar to every question, one of them of another person's questions."""
    questions = [asked.text for asked in other.asked if asked.kind == "question"]
    return [_QUESTION_WORDS, _STUFFING * _STUFFED, " ".join(questions)]


def _is(text: str, memory: str) -> bool:
    """Return whether a line holds a memory, whole or most of it."""
    one, other = text.casefold().strip(), memory.casefold().strip()
    return one in other or other in one


class Agent:
    """One person's agent."""

    def __init__(self, plugin: AsyncMemoryPlugin, space: Space, planted: Sequence[str] = ()) -> None:
        self._plugin, self._space, self._chats = plugin, space, 0
        self._planted = planted

    def _session(self) -> str:
        self._chats += 1
        return f"agent:{self._space.name.replace('/', '-')}:chat-{self._chats}"

    async def tell(self) -> None:
        """Say everything, each in a chat of its own, and store what is planted."""
        for text in self._space.memories:
            await self._plugin.after_turn([{"role": "user", "content": text}], session_key=self._session())
        while not await self._plugin.flush(_PATIENCE):
            pass
        for text in self._planted:
            await self._plugin.tool("memory_store", {"text": text}, session_key=self._session())

    async def ask(self, tally: Tally, asked: Asked) -> None:
        """Ask one thing and count it."""
        if asked.kind == "keywords":
            lines = await self._searched(asked.text)
            tally.add("search 1st", any(self._has(line, asked.right) for line in lines[:1]))
            found = any(self._has(line, asked.right) for line in lines)
            tally.add("key words", found, failed=not found, what=asked.text, got=lines)
            return
        injection = await self._plugin.before_turn(
            asked.text, session_key=self._session(), deadline=_PATIENCE
        )
        lines, always = [hit.text for hit in injection.hits], [line.text for line in injection.always]
        if self._planted and asked.kind in ("question", "plan"):
            tally.add("planted", self._is_planted(lines))
        if asked.kind == "question":
            searched = await self._searched(asked.text)
            tally.add("search 1st", any(self._has(line, asked.right) for line in searched[:1]))
            if self._planted:
                tally.add("found", self._is_planted(searched))
            told = any(self._has(line, asked.right) for line in [*always, *lines])
            early = any(self._has(line, asked.right) for line in [*always, *lines[:_FIRST]])
            tally.add("told", told)
            tally.add(
                "first 3",
                early,
                failed=not early,
                what=f"{asked.text} <- {self._texts(asked.right)}",
                got=lines,
            )
            tally.add("lines", len(lines))
        elif asked.kind == "plan":
            for number in asked.right:
                held = any(self._has(line, (number,)) for line in [*always, *lines])
                tally.add(
                    "plans",
                    held,
                    failed=not held,
                    what=f"{asked.text} <- {self._texts((number,))}",
                    got=lines,
                )
            tally.add("plan lines", len(lines))
        else:
            name = "unanswered" if asked.kind == "unanswerable" else "untouched"
            tally.add(name, bool(lines), failed=bool(lines), what=asked.text, got=lines)
            if asked.kind == "unanswerable":
                tally.add("their lines", len(lines))

    async def ask_unrelated(self, tally: Tally, prompt: str) -> None:
        """Ask what no memory of anybody answers."""
        injection = await self._plugin.before_turn(prompt, session_key=self._session(), deadline=_PATIENCE)
        lines = [hit.text for hit in injection.hits]
        tally.add("unrelated", bool(lines), failed=bool(lines), what=prompt, got=lines)

    async def _searched(self, query: str) -> list[str]:
        """Return the texts that a model finds with the tool."""
        answer = await self._plugin.tool("memory_search", {"query": query}, session_key=self._session())
        return [html.unescape(str(one["text"])) for one in answer.details["memories"]]

    def _is_planted(self, lines: Iterable[str]) -> bool:
        """Return whether a planted text is among the first three lines."""
        return any(_is(line, text) for line in [*lines][:_FIRST] for text in self._planted)

    def _has(self, line: str, numbers: Iterable[int]) -> bool:
        return any(_is(line, self._space.memories[number]) for number in numbers)

    def _texts(self, numbers: Iterable[int]) -> str:
        return " / ".join(self._space.memories[number] for number in numbers)


async def precise(
    part: str, *, only: Iterable[str] = (), embedder: Kind = "multilingual", planted: bool = False
) -> dict[str, Tally]:
    """Let the people of a part tell and ask everything; tallies by language."""
    tallies: dict[str, Tally] = defaultdict(Tally)
    wanted = set(only)
    with tempfile.TemporaryDirectory(prefix="memrelay-precise-") as folder:
        async with (
            local_relayer(embedder=CachedEmbedder(embedder), rate_limits="off") as relayer,
            AsyncMemoryPlugin(relayer.url, secret=SECRET, environ={"HOME": folder}) as plugin,
        ):
            spaces = people(part)
            for number, space in enumerate(spaces):
                if wanted and not wanted & {space.language, Path(space.name).name}:
                    continue
                others = sorted(spaces, key=lambda one: (one is space, one.language != space.language))
                agent, tally = Agent(plugin, space, _planted(others[0]) if planted else ()), Tally()
                await agent.tell()
                for asked in space.asked:
                    await agent.ask(tally, asked)
                for at in range(_UNRELATED):
                    await agent.ask_unrelated(tally, HELD_OUT[(number * _UNRELATED + at) % len(HELD_OUT)])
                tallies[space.language].join(tally)
    return tallies


def section(part: str, tallies: dict[str, Tally]) -> Section:
    """The table: a line a language, the sum last."""
    total = Tally()
    for tally in tallies.values():
        total.join(tally)
    measures = {name: meaning for name, meaning in MEASURES.items() if total.values[name]}
    rows, numbers = [], {}
    for language, tally in [*sorted(tallies.items()), ("all", total)]:
        means = {measure: tally.mean(measure) for measure in measures}
        numbers[language] = means | {"cases": {name: len(values) for name, values in tally.values.items()}}
        rows.append((language, *(f"{mean:.1f}" for mean in means.values())))
    explained = tuple(f"{name}: {meaning}" for name, meaning in measures.items())
    return Section(
        f"The right line: {part}, in percent and in lines", ("language", *measures), rows, numbers, explained
    )


def main(
    part: Annotated[str, typer.Option(help="dev/people or unseen/people.")] = "dev/people",
    only: Annotated[str, typer.Option(help="Languages or people, with commas.")] = "",
    embedder: Annotated[Kind, typer.Option(help="The model in the relayer.")] = "multilingual",
    *,
    planted: Annotated[
        bool, typer.Option("--planted", help="Plant texts that are like every question.")
    ] = False,
    failures: Annotated[bool, typer.Option("--failures", help="Print what failed; not of unseen.")] = False,
) -> None:
    """Let the people of a part tell and ask everything, and print what stands in their prompts."""
    chosen = [one for one in only.split(",") if one]
    tallies = asyncio.run(precise(part, only=chosen, embedder=embedder, planted=planted))
    show(section(part, tallies), Console(width=150))
    if failures and not part.startswith("unseen"):
        for language, tally in sorted(tallies.items()):
            for measure, what, got in tally.failures:
                print(f"{language}\t{measure}\t{what!r}\t{got!r}")


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command()(main)
    app()
