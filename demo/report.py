"""What the demonstration prints, on a terminal or as plain lines."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from typing import Any, Final

from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from demo.checks import LEAST_SAME, LEAST_SILENCE, Observation, percentile
from demo.gateway import Played
from demo.runner import DemoOutcome, ObjectExcerpt
from relayer.wire.fields import clip, one_line

_PLAIN_WIDTH: Final = 120
_MOST_ROWS: Final = 40
_ROW: Final = 16
_FRAME_LINE: Final = re.compile(r"^\d+\. ")


class Report:
    """Prints as things happen; what was said by people is shown as it is, never interpreted as markup."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        if not self._console.is_terminal:
            self._console.width = _PLAIN_WIDTH
        fancy = "utf" in self._console.encoding.lower()
        self._marks = ("✓", "✗") if fancy else ("ok", "FAILED")
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def heading(self, text: str) -> None:
        """Print a heading."""
        self._finish_progress()
        self._console.print()
        self._console.print(Text(text, style="bold"))

    def step(self, text: str) -> None:
        """Print a line."""
        self._finish_progress()
        self._console.print(Text(f"- {text}"), soft_wrap=True)

    def playing(self, agent: str, turns: int) -> None:
        """Begin a progress bar."""
        if self._progress is None:
            self.heading("Two agents live through their conversations")
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}"),
                TimeElapsedColumn(),
                console=self._console,
            )
            self._progress.start()
        self._tasks[agent] = self._progress.add_task(agent, total=turns, note="")

    def played(self, agent: str, played: Played) -> None:
        """Move the bar."""
        if self._progress is not None:
            recall = "" if played.recall_ms is None else f"recall {played.recall_ms} ms"
            self._progress.update(self._tasks[agent], advance=1, note=recall)

    def observed(self, observations: Sequence[Observation]) -> None:
        """Print a table of prompts and what was injected for them; of very many, the first."""
        self.heading("What is injected for later prompts, and what is not")
        table = Table(header_style="bold", show_lines=False)
        for name, options in _COLUMNS:
            table.add_column(name, **options)
        for item in observations[:_MOST_ROWS]:
            table.add_row(
                item.agent,
                item.probe.kind.value,
                Text(item.probe.prompt),
                str(item.milliseconds),
                _injected(item),
            )
        self._console.print(table)
        if len(observations) > _MOST_ROWS:
            self.step(f"and {len(observations) - _MOST_ROWS} more prompts")

    def excerpt(self, excerpt: ObjectExcerpt) -> None:
        """Print a stored object beside what it hides."""
        self._finish_progress()
        rows = Table.grid(padding=(0, 2), expand=True)
        rows.add_column(no_wrap=True)
        rows.add_column(ratio=1)
        rows.add_row(
            Panel(Text(_hex_dump(excerpt.start)), title=f"in the store: {excerpt.size} bytes"),
            Panel(Text(clip(excerpt.hidden, 600)), title="what was said"),
        )
        self.heading("One object of the store, and what it hides")
        self._console.print(Text(excerpt.file, style="dim"), soft_wrap=True)
        self._console.print(rows)

    def verdict(self, outcome: DemoOutcome, *, curated: bool) -> None:
        """Print every assertion, figures, and the sum."""
        self.heading("Assertions")
        for check in outcome.checks:
            mark = self._marks[0] if check.held else self._marks[1]
            line = Text(f"{mark} {check.name:<9} ", style="green" if check.held else "bold red")
            line.append(one_line(check.claim), style="default" if check.held else "red")
            if check.detail:
                line.append(f"  ({one_line(check.detail)})", style="dim")
            self._console.print(line, soft_wrap=True)
        failed = [check for check in outcome.checks if not check.held]
        self.heading("Summary")
        found, asked = outcome.hits
        if not curated:
            self.step(
                "the probes come from the dialogue's questions, of which some need more than one memory: the rate of "
                f"hits is told, not asserted; asserted are privacy, durability, at least {LEAST_SILENCE:.0%} silence, "
                f"and at least {LEAST_SAME:.0%} of the same bytes after the restart"
            )
        memories = ", ".join(f"{agent} {count}" for agent, count in outcome.memories.items())
        self.step(
            f"{outcome.turns} messages played, {outcome.captured} sent to the relayer; memories: {memories}"
        )
        self.step(f"related prompts answered from memory: {found} of {asked}")
        p50, p95 = (percentile(outcome.recalls_ms, share) for share in (0.5, 0.95))
        self.step(f"recall over HTTP, {len(outcome.recalls_ms)} times: p50 {p50} ms, p95 {p95} ms")
        style = "bold red" if failed else "bold green"
        verdict = f"{len(outcome.checks) - len(failed)} of {len(outcome.checks)} assertions hold"
        self._console.print(Text(verdict + ("" if failed else "; all promises kept"), style=style))

    def next_commands(self, commands: Sequence[str]) -> None:
        """Print what to type next."""
        self.heading("Next")
        for command in commands:
            self._console.print(Text(f"  {command}"), soft_wrap=True)

    def close(self) -> None:
        """End what still moves."""
        self._finish_progress()

    def _finish_progress(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


_COLUMNS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("agent", {"no_wrap": True}),
    ("kind", {"no_wrap": True}),
    ("prompt", {"ratio": 2}),
    ("ms", {"justify": "right", "no_wrap": True}),
    ("injected", {"ratio": 3}),
)


def as_document(outcome: DemoOutcome, *, source: str) -> str:
    """Return the results as JSON: assertions, probes, figures."""
    document = {
        "conversation": source,
        "held": outcome.held,
        "checks": [
            {"name": check.name, "claim": check.claim, "held": check.held, "detail": check.detail}
            for check in outcome.checks
        ],
        "probes": [
            {
                "agent": item.agent,
                "kind": item.probe.kind.value,
                "prompt": item.probe.prompt,
                "status": item.status,
                "injected": [text for _, text in item.memories],
                "ms": item.milliseconds,
            }
            for item in outcome.observations
        ],
        "turns": outcome.turns,
        "captured": outcome.captured,
        "memories": dict(outcome.memories),
        "related_hits": {"found": outcome.hits[0], "asked": outcome.hits[1]},
        "recall_ms": {
            "count": len(outcome.recalls_ms),
            "p50": percentile(outcome.recalls_ms, 0.5),
            "p95": percentile(outcome.recalls_ms, 0.95),
        },
    }
    return json.dumps(document, ensure_ascii=False, indent=2)


def _injected(item: Observation) -> Text:
    if not item.text:
        return Text("silence" if item.status == "empty" else item.status, style="dim")
    lines = [html.unescape(line) for line in item.text.splitlines() if _FRAME_LINE.match(line)]
    expected = (item.probe.expect or "").casefold()
    # Of several, the one that answers is worth the room.
    answering = [line for line in lines if expected and expected in line.casefold()] or lines
    shown = clip(one_line(_FRAME_LINE.sub("", answering[0])), 160) if answering else ""
    more = f"  (+{len(lines) - 1} more)" if len(lines) > 1 else ""
    return Text(shown).append(more, style="dim")


def _hex_dump(data: bytes) -> str:
    rows = []
    for start in range(0, len(data), _ROW):
        part = data[start : start + _ROW]
        printable = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        rows.append(f"{start:04x}  {part.hex(' '):<{3 * _ROW - 1}}  {printable}")
    return "\n".join(rows)
