"""Count how many wishes not to be reminded `relayer.extraction.wishes` recognises, and how many other sentences it takes for one.

    python -m bench.wishes           # the half that the lists were written with, and ordinary speech
    python -m bench.wishes --held    # also the half that they were not

The sets are ``bench/sets/hush`` (in each language 16 wishes and 16 sentences that are similar and harmless; every second line is
held out) and, of other origin, ``hush`` in ``bench/sets/kinds``. Ordinary speech is what the sets for messages, kinds, prompts and
standing lines have besides, and ``ordinary_speech.jsonl``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from relayer.extraction.wishes import is_wish
from relayer.extraction.words import split_sentences

SETS = Path(__file__).parent / "sets"
Case = tuple[str, str]
"""Language and text."""


def written(label: str, *, held: bool) -> list[Case]:
    """The sentences of one half of the set: ``hush`` or ``other``."""
    cases = []
    for path in sorted((SETS / "hush").glob("*.tsv")):
        lines = [line.partition("\t") for line in path.read_text("utf-8").splitlines()]
        cases += [(path.stem, text) for kind, _, text in lines[int(held) :: 2] if kind == label]
    return cases


def _labelled(name: str) -> list[tuple[str, str, str]]:
    """The language, the label and the text of each line of a set."""
    found = []
    for path in sorted((SETS / name).glob("*.tsv")):
        for line in path.read_text("utf-8").splitlines():
            label, _, text = line.partition("\t")
            found.append((path.stem, label, text.replace("\\n", "\n")))
    return found


def elsewhere() -> list[Case]:
    """Wishes in a set that was written for another purpose."""
    return [(lang, text) for lang, kind, text in _labelled("kinds") if kind == "hush"]


def ordinary() -> list[Case]:
    """What people say and ask otherwise."""
    of_sets = [one for name in ("messages", "kinds", "standing", "prompts") for one in _labelled(name)]
    speech = (SETS / "ordinary_speech.jsonl").read_text("utf-8").splitlines()
    return [(lang, text) for lang, kind, text in of_sets if kind != "hush"] + [
        ("en", json.loads(line)["text"]) for line in speech
    ]


def has_wish(text: str) -> bool:
    """Whether a sentence of a message is a wish."""
    return any(is_wish(text[slice(*span)]) for span in split_sentences(text))


def count(cases: Iterable[Case]) -> str:
    """How many of the texts have a wish, and of how many."""
    found = [has_wish(text) for _, text in cases]
    return f"{sum(found)} of {len(found)}"


def main(*, held: Annotated[bool, typer.Option("--held", help="Also the held-out half.")] = False) -> None:
    """Print a line for each language."""
    table = Table(
        "language",
        "wishes",
        "harmless neighbours",
        "wishes held out",
        "neighbours held out",
        "wishes elsewhere",
        "ordinary speech",
    )
    sets = [written("hush", held=False), written("other", held=False)]
    sets += [written("hush", held=True), written("other", held=True)] if held else [[], []]
    sets += [elsewhere(), ordinary()]
    for lang in (*sorted({lang for lang, _ in sets[0]}), "all"):
        table.add_row(lang, *(count(case for case in cases if lang in {case[0], "all"}) for cases in sets))
    Console(width=140).print(table)


if __name__ == "__main__":
    typer.run(main)
