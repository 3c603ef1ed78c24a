"""Measure what a person sees of a memory in weeks of chats, at default settings.

    python -m bench.conversations dev [--failures]
    python -m bench.conversations weeks [--failures]
    python -m bench.conversations unseen      # or strangers, by four more authors

A script of ``bench/sets/conversations``, and of those of ``bench/sets/weeks`` that nothing learns from, has what a person and an assistant said in several chats. It is played through the plugin,
turn by turn, with a relayer of its own. What each turn stores is read from the list of memories afterwards. Of ``unseen`` and ``strangers``, only
totals are printed.
"""

from __future__ import annotations

import asyncio
import html
import json
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track

from bench.day import SECRET
from bench.report import Section, show
from memrelay import AsyncMemoryPlugin
from relayer.adapters.local_embedder import LocalEmbedder
from relayer.telemetry import configure
from relayer.testing.local_relayer import local_relayer

SETS = Path(__file__).parent / "sets"
FOLDERS = {
    "dev": "conversations/dev",
    "weeks": "weeks/left_out",
    "unseen": "conversations/unseen",
    "strangers": "weeks/unseen",
}
_HIDDEN = ("unseen", "strangers")
_TELLING = frozenset({"tell", "update", "alike"})
_IN_VAIN = frozenset({"ask", "old", "never", "none", "fiction", "remark"})
_PATIENCE = 60.0
MEASURES = (
    "told of what was asked", "told of old values", "told of what plans need", "found by the tool", "telling stored",
    "in vain stored", "replies stored", "corrected removed", "replaced in vain", "lines for a question", "lines for a plan",
    "never told, got lines", "of them, not as unsure", "no memory matters, got lines", "fiction and remarks, got lines",
)  # fmt: skip


class Counts:
    """The values of each measure, and the cases that failed."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = defaultdict(list)
        self.failures: list[str] = []

    def add(self, measure: str, value: float, what: str = "") -> None:
        """Count a case; ``what`` describes it if it failed."""
        self.values[measure].append(float(value))
        if what:
            self.failures.append(f"{measure}: {what}")

    def render(self, measure: str) -> str:
        """Return the mean as text, in percent unless it counts lines."""
        values = self.values[measure]
        mean = sum(values) / len(values) if values else float("nan")
        return f"{mean:.1f}" if measure.startswith("lines") else f"{100 * mean:.1f}"


def plain(text: str) -> str:
    """Return a text in small letters and without HTML entities, with single spaces: texts that differ in these are the same here."""
    return " ".join(html.unescape(text).casefold().split())


class Person:
    """A person whose chats are played."""

    def __init__(self, plugin: AsyncMemoryPlugin, counts: Counts, name: str) -> None:
        self._plugin, self._counts, self._name = plugin, counts, name
        self._known: set[str] = set()
        self._over: list[str] = []

    async def play(self, turns: Sequence[dict[str, Any]]) -> None:
        """Play all turns, and count at the end what was replaced."""
        for turn in turns:
            await (self._search(turn) if turn["kind"] == "search" else self._say(turn))
        live = "\n".join((await self._listed(turns[0], 100, everything=True)).values())
        for over in self._over:
            gone = plain(over) not in live
            self._counts.add("corrected removed", gone, "" if gone else over)
        replaced = await self._plugin.replaced_lately(session_key=self._key(turns[0]))
        for one in replaced:
            statement = plain(one.statement).strip(" .,;")
            right = any(statement in plain(over) or plain(over) in statement for over in self._over)
            self._counts.add("replaced in vain", not right, "" if right else f"{one.statement} <- {one.text}")

    def _key(self, turn: dict[str, Any]) -> str:
        return f"agent:{self._name}:{turn['session']}"

    async def _listed(self, turn: dict[str, Any], limit: int, *, everything: bool = False) -> dict[str, str]:
        """Return the texts of the newest live memories, or of all, by their ids."""
        found: dict[str, str] = {}
        arguments: dict[str, Any] = {"limit": limit}
        while True:
            answer = await self._plugin.tool("memory_list", arguments, session_key=self._key(turn))
            found |= {one["id"]: plain(one["text"]) for one in answer.details["memories"]}
            if not everything or "next_cursor" not in answer.details:
                return found
            arguments["cursor"] = answer.details["next_cursor"]

    async def _search(self, turn: dict[str, Any]) -> None:
        answer = await self._plugin.tool(
            "memory_search", {"query": turn["query"]}, session_key=self._key(turn)
        )
        found = all(plain(word) in plain(answer.text) for word in turn["want"])
        self._counts.add("found by the tool", found, "" if found else f"{turn['query']} {turn['want']}")

    async def _say(self, turn: dict[str, Any]) -> None:
        kind, said, key = turn["kind"], turn["user"], self._key(turn)
        injection = await self._plugin.before_turn(said, session_key=key, deadline=_PATIENCE)
        shown = plain(f"{injection.standing}\n{injection.text}")
        lines = [hit.text for hit in injection.hits]
        missing = [word for word in turn.get("want", ()) if plain(word) not in shown]
        what = f"{said[:160]} | {missing} | {lines}"
        if kind in {"ask", "old"} and turn.get("want"):
            measure = "told of what was asked" if kind == "ask" else "told of old values"
            self._counts.add(measure, not missing, what if missing else "")
        if kind == "ask":
            self._counts.add("lines for a question", len(lines))
        if kind == "plan" and turn.get("want"):
            self._counts.add(
                "told of what plans need", 1 - len(missing) / len(turn["want"]), what if missing else ""
            )
            self._counts.add("lines for a plan", len(lines))
        if kind == "never":
            self._counts.add("never told, got lines", bool(lines))
            if lines:
                self._counts.add("of them, not as unsure", "Perhaps" not in injection.text)
        if kind == "none":
            self._counts.add("no memory matters, got lines", bool(lines), what if lines else "")
        if kind in {"fiction", "remark"}:
            self._counts.add("fiction and remarks, got lines", bool(lines), what if lines else "")
        messages = [{"role": "user", "content": said}, {"role": "assistant", "content": turn["assistant"]}]
        await self._plugin.after_turn(messages, session_key=key)
        while not await self._plugin.flush(_PATIENCE):
            pass
        await self._count_stored(turn)

    async def _count_stored(self, turn: dict[str, Any]) -> None:
        newest = await self._listed(turn, 30)
        texts = [text for memory, text in newest.items() if memory not in self._known]
        self._known.update(newest)
        own = [text for text in texts if text in plain(turn["user"])]
        replies = [text for text in texts if text in plain(turn["assistant"]) and text not in own]
        if turn["kind"] in _TELLING:
            self._counts.add("telling stored", bool(own), "" if own else turn["user"])
        if turn["kind"] in _IN_VAIN:
            self._counts.add("in vain stored", bool(own), f"{turn['kind']}: {own}" if own else "")
        self._counts.add("replies stored", bool(replies), f"{replies}" if replies else "")
        self._over += [one["was"] if isinstance(one, dict) else one for one in turn.get("over", ())]


async def measure(half: str) -> dict[str, Counts]:
    """Play all scripts of a half; return the counts by script."""
    found: dict[str, Counts] = {}
    embedder = LocalEmbedder("multilingual")
    for path in track(sorted((SETS / FOLDERS[half]).glob("*.json")), "conversations"):
        counts = found[path.stem] = Counts()
        with tempfile.TemporaryDirectory() as home:
            async with (
                local_relayer(embedder=embedder, rate_limits="off") as relayer,
                AsyncMemoryPlugin(relayer.url, secret=SECRET, environ={"HOME": home}) as plugin,
            ):
                turns = json.loads(path.read_text("utf-8"))
                await Person(plugin, counts, path.stem).play(turns)
    return found


def section(half: str, found: dict[str, Counts]) -> Section:
    """Return the table: a measure a row, a script a column."""
    total = Counts()
    for counts in found.values():
        for measured, values in counts.values.items():
            total.values[measured] += values
    names = () if half in _HIDDEN else tuple(found)
    rows = [
        (one, total.render(one), str(len(total.values[one])), *(found[name].render(one) for name in names))
        for one in MEASURES
    ]
    data = {one: total.values[one] for one in MEASURES}
    return Section(f"Conversations, {half}: percent, or lines", ("", "all", "cases", *names), rows, data)


def main(
    half: Annotated[str, typer.Argument(help="dev, weeks, unseen or strangers.")] = "dev",
    *,
    failures: Annotated[
        bool, typer.Option("--failures", help="Print what failed; not of unseen and strangers.")
    ] = False,
) -> None:
    """Play the conversations of a half and print what was seen."""
    configure("console", "warning")
    console = Console(width=150)
    found = asyncio.run(measure(half))
    show(section(half, found), console)
    if failures and half not in _HIDDEN:
        for name, counts in found.items():
            for line in counts.failures:
                print(f"{name}: {line}")


if __name__ == "__main__":
    typer.run(main)
