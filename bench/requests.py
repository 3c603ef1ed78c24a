"""Count how many bare requests and fictions captures leave as memories, and how many statements with similar words they lose.

    python -m bench.requests                   # requests and statements that nothing is learnt from
    python -m bench.requests --of brief/left_out   # texts of another folder of bench/sets: a label, a tab, a text
    python -m bench.requests --fictions dev    # roles, hypotheses and quotations of the people of bench/sets/precise
    python -m bench.requests --failures        # also the texts that were stored or lost

Each text is a turn of its own, captured over HTTP by a relayer at default settings without a language model. The sets are
``bench/sets/requests`` and the fictions of ``bench/sets/precise``, of whose part ``unseen`` only totals are printed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from bench.day import SECRET
from gateway_plugin.client import Identity, TrustStore, identify, load_keys, parse_session_key
from memrelay import RelayerClient
from relayer.adapters.local_embedder import Kind, LocalEmbedder
from relayer.telemetry import configure
from relayer.testing.local_relayer import local_relayer
from relayer.wire import schemas

SETS = Path(__file__).parent / "sets"
# The labels of what is to leave no memory.
_NO_MEMORY = frozenset({"one_off", "courtesy", "question", "none", "unreal"})
# The parts of the sets for precise memory.
PARTS = ("train", "dev", "unseen")
_DEADLINE = 60.0


class Said(NamedTuple):
    """What one types.

    Attributes:
        language: its language.
        label: ``keep`` for a statement, another label for what is to leave no memory.
        text: what one types.
        mark: the words that are not to be in a memory; "" for any words.
    """

    language: str
    label: str
    text: str
    mark: str = ""


class Captures:
    """Captures turns, each as one that an agent of its own said."""

    def __init__(self, client: RelayerClient) -> None:
        self._client = client
        self._number = 0

    async def stores(self, text: str, mark: str = "") -> bool:
        """Return whether something of a user's message, or what has the mark, becomes a memory."""
        self._number += 1
        identity = self._identity()
        turn = schemas.TurnItem(role="user", text=text)
        answer = await self._client.analyze(
            identity, schemas.AnalyzeRequest(turns=(turn,)), deadline=_DEADLINE
        )
        kept = [text[one.start : one.end] for one in answer.verdicts if one.kept]
        return any(mark.casefold() in one.casefold() for one in kept)

    def _identity(self) -> Identity:
        keys = load_keys({"MEMRELAY_SECRET": SECRET}, notify=print)
        return identify(keys, parse_session_key(f"agent:request-{self._number}:chat"))


@asynccontextmanager
async def capturing(embedder: Kind = "multilingual") -> AsyncIterator[Captures]:
    """Run a relayer at default settings, in this process and on a real socket."""
    model = LocalEmbedder(embedder)
    with tempfile.TemporaryDirectory(prefix="memrelay-requests-") as folder:
        async with (
            local_relayer(embedder=model, rate_limits="off", quota_namespaces=0) as relayer,
            aclosing(RelayerClient(relayer.url, trust=TrustStore(Path(folder) / "trust.json"))) as client,
        ):
            yield Captures(client)
    await model.close()


def requests(folder: str = "requests") -> Iterator[Said]:
    """Yield bare requests and statements that resemble them, or the labelled texts of another folder of ``bench/sets``."""
    for path in sorted((SETS / folder).glob("*.tsv")):
        for line in path.read_text("utf-8").splitlines():
            label, text, *_ = line.split("\t")
            yield Said(path.stem, label if label in _NO_MEMORY else "keep", text)


def fictions(part: str) -> Iterator[Said]:
    """Yield the fictions of the people of a part of ``bench/sets/precise``, and what they say of themselves."""
    for path in sorted((SETS / "precise" / part / "people").glob("*.json")):
        person = json.loads(path.read_text("utf-8"))
        for item in person["fictions"]:
            yield Said(person["language"], "unreal", item["said"], item["not"])
        for text in person["memories"]:
            yield Said(person["language"], "keep", text)


async def measure(said: list[Said], embedder: Kind) -> list[bool]:
    """Return what was stored."""
    async with capturing(embedder) as captures:
        return [await captures.stores(one.text, one.mark) for one in said]


def main(
    fictions_of: Annotated[
        str, typer.Option("--fictions", help=f"Instead of requests: {', '.join(PARTS)}.")
    ] = "",
    embedder: Annotated[Kind, typer.Option(help="The model in the relayer.")] = "multilingual",
    folder: Annotated[
        str, typer.Option("--of", help="The folder of bench/sets whose texts are said.")
    ] = "requests",
    *,
    failures: Annotated[
        bool, typer.Option("--failures", help="Print the texts that were misread; not of unseen.")
    ] = False,
) -> None:
    """Print a line for each language, and one for all."""
    if fictions_of and fictions_of not in PARTS:
        sys.exit(f"{fictions_of} is none of {', '.join(PARTS)}")
    console = Console(width=120)
    said = list(fictions(fictions_of) if fictions_of else requests(folder))
    if not said:
        sys.exit(
            f"bench/sets/{folder} has no .tsv files: say --of requests, brief/left_out or standing/unseen"
        )
    counts: dict[str, dict[bool, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for one, stored in zip(said, asyncio.run(measure(said, embedder)), strict=True):
        wanted = one.label == "keep"
        for name in (one.language, "all"):
            counts[name][wanted].append(stored)
        if failures and stored is not wanted and fictions_of != "unseen":
            console.print(f"{one.language} {'lost' if wanted else 'stored'}: {one.text}", markup=False)
    what = "fictions" if fictions_of else "bare requests"
    table = Table(title=f"{what}, and statements", title_justify="left")
    for name in ("language", what, "stored", "statements", "lost"):
        table.add_column(name, justify="right")
    for name in ["all"] if fictions_of == "unseen" else [*sorted(set(counts) - {"all"}), "all"]:
        asked, told = counts[name][False], counts[name][True]
        table.add_row(name, *map(str, (len(asked), sum(asked), len(told), len(told) - sum(told))))
    console.print(table)


if __name__ == "__main__":
    configure("console", "warning")
    typer.run(main)
