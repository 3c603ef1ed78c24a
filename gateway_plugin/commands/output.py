"""What the command line prints: tables for people, one JSON document for programs.

A memory is untrusted text: control characters never reach the terminal, and no markup in it is interpreted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway_plugin.formatting import age_in_words
from gateway_plugin.text.measures import one_line
from relayer.wire.schemas import Memory, NamespaceView, RecallHit

__all__ = ["Output", "as_error"]


class Output:
    """Standard output, in one of the two forms."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._console = Console(highlight=False, soft_wrap=True)

    def json(self, value: Any) -> None:
        """Print a document."""
        self._console.out(json.dumps(value, ensure_ascii=False, indent=2), highlight=False)

    def say(self, sentence: str) -> None:
        """Print a line; nothing in it is interpreted."""
        self._console.print(Text(sentence))

    def raw(self, text: str) -> None:
        """Print lines as they are."""
        self._console.out(text, highlight=False)

    def pairs(self, rows: Iterable[tuple[str, str]]) -> None:
        """Print names and values; a value is never broken over lines, so that it can be copied."""
        known = list(rows)
        width = max((len(name) for name, _ in known), default=0)
        for name, value in known:
            self._console.print(Text(name.ljust(width + 2), style="dim") + Text(one_line(value)))

    def memories(self, memories: Sequence[Memory], now: float, *, sources: bool = False) -> None:
        """Print memories, one row each; hits with their relevance, and with ``sources`` where each comes from."""
        moment = datetime.fromtimestamp(now, UTC).astimezone()
        hits = any(isinstance(memory, RecallHit) for memory in memories)
        table = Table(box=None, pad_edge=False, header_style="dim")
        for heading in ("id", *(("relevance",) if hits else ()), "when", "kind"):
            table.add_column(heading, no_wrap=True)
        table.add_column("text", overflow="fold")
        if sources:
            table.add_column("source", overflow="fold")
        for memory in memories:
            at = memory.occurred_at if memory.occurred_at is not None else memory.created_at
            age = age_in_words(datetime.fromtimestamp(at / 1000, UTC), moment)
            relevance = (f"{memory.relevance:.2f}",) if isinstance(memory, RecallHit) else ()
            state = "" if memory.state == "live" else f" ({memory.state})"
            source = (Text(one_line(memory.source.reference)),) if sources else ()
            table.add_row(
                memory.id, *relevance, age, memory.kind + state, Text(one_line(memory.text)), *source
            )
        self._console.print(table)

    def nothing_found(self, namespace: str, considered: int, *, show_all: str = "") -> None:
        """Say that there is nothing, or nothing that is relevant enough.

        Args:
            namespace: whose memories were searched: whoever looks at the wrong agent sees the same as one who stored nothing.
            considered: how many there are.
            show_all: the option that shows the nearest ones all the same.
        """
        if not considered:
            self.say(
                f"{namespace} has no memories. Another agent's: --agent NAME, see memrelay-gateway namespaces."
            )
            return
        memories = "the one memory" if considered == 1 else f"the {considered} memories"
        self.say(f"Nothing relevant among {memories} of {namespace}. {show_all} shows the nearest ones.")

    def namespaces(self, views: Sequence[NamespaceView]) -> None:
        """Print namespaces, one row each."""
        table = Table(box=None, pad_edge=False, header_style="dim")
        for heading in ("name", "memories", "bytes", "custody", "state"):
            table.add_column(heading)
        for view in views:
            memories = "?" if view.memories is None else str(view.memories)
            size = "?" if view.bytes is None else str(view.bytes)
            table.add_row(Text(view.name), memories, size, view.custody, view.state)
        self._console.print(table)
        if any(view.memories is None for view in views):
            self.say(
                "?: the relayer does not have it open; memrelay-gateway status --agent NAME opens and counts it"
            )


def as_error(sentence: str, fix: str) -> None:
    """Print what went wrong and what to do, on standard error."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(Text(f"memrelay-gateway: {sentence}"))
    if fix:
        console.print(Text(f"  {fix}"))
