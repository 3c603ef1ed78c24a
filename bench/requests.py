"""Count how many bare requests a user's turn leaves as memories, and how many statements with similar words it loses.

    python -m bench.requests              # the set that nothing is learnt from
    python -m bench.requests --failures   # also the texts that were stored or lost

Each text is a turn of its own and is read by the extractor that captures use when the relayer has no language model. The set is
``bench/sets/requests``.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from relayer.domain.operations import Role
from relayer.extraction.statements import ConversationTurn, StatementExtractor

REQUESTS = Path(__file__).parent / "sets" / "requests"


def is_stored(text: str) -> bool:
    """Return whether something of a user's message is kept."""
    return bool(StatementExtractor().extract([ConversationTurn(Role.USER, text)]))


def main(
    *,
    failures: Annotated[bool, typer.Option("--failures", help="Print the texts that were misread.")] = False,
) -> None:
    """Print a line for each language, and one for all."""
    console = Console(width=120)
    counts: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(REQUESTS.glob("*.tsv")):
        for line in path.read_text("utf-8").splitlines():
            label, _, text = line.partition("\t")
            stored = is_stored(text)
            for name in (path.stem, "all"):
                counts[name][label].append(stored)
            if failures and stored is not (label == "keep"):
                console.print(f"{path.stem} {'lost' if label == 'keep' else 'stored'}: {text}", markup=False)
    table = Table(title="bare requests, and statements that resemble them", title_justify="left")
    for name in ("language", "requests", "stored", "statements", "lost"):
        table.add_column(name, justify="right")
    for name in (*sorted(set(counts) - {"all"}), "all"):
        asked, told = counts[name]["one_off"], counts[name]["keep"]
        table.add_row(name, *map(str, (len(asked), sum(asked), len(told), len(told) - sum(told))))
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
