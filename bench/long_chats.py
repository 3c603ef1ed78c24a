"""What is found among long messages, beside BM25: `python -m bench.long_chats` (`--part unseen`, `--data FILE`).

``sets/long_chats`` has what six people write to an assistant in a year and what it answers: drafts, lists, tables and logs, with
facts that are told in passing, and questions that are asked weeks later in other words. All messages of a person lie in one
namespace, one memory a message, stored and asked over HTTP at default settings; at floor 0, so that the order alone counts.
"""

from __future__ import annotations

import asyncio
import math
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bench.http_gateway import BenchGateway
from bench.http_servers import started
from bench.locomo import Conversation, conversations
from bench.quality import ask, store
from bench.report import Section, show
from bench.scores import Scores

__all__ = ["best_matching", "main"]

SETS = Path(__file__).parent / "sets" / "long_chats"
_MEASURES = ("r@5", "r@10", "MRR")
# The usual constants of BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009).
_K1, _B = 1.2, 0.75


def best_matching(texts: Sequence[str]) -> Callable[[str], list[int]]:
    """Return a function that orders texts by BM25 with a query.

    Words are in lower case; of scripts without spaces, each character and each pair of them is a word.

    Example:
        >>> best_matching(["a red boat", "the green house"])("Which house is green?")
        [1, 0]
    """
    counted = [Counter(_words(text)) for text in texts]
    among = Counter(word for words in counted for word in words)
    mean = sum(words.total() for words in counted) / len(texts)
    rarity = {word: math.log(1 + (len(texts) - n + 0.5) / (n + 0.5)) for word, n in among.items()}
    # By word, the texts that have it, with its part of their scores.
    postings: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    for at, words in enumerate(counted):
        length = _K1 * (1 - _B + _B * words.total() / mean)
        for word, count in words.items():
            postings[word].append((at, rarity[word] * count * (_K1 + 1) / (count + length)))

    def ordered(query: str) -> list[int]:
        scores = [0.0] * len(texts)
        for word in _words(query):
            for at, score in postings.get(word, ()):
                scores[at] += score
        return sorted(range(len(texts)), key=lambda at: -scores[at])

    return ordered


def _words(text: str) -> list[str]:
    found: list[str] = []
    for word in re.findall(r"[\u3040-\u30ff\u3400-\u9fff]+|[^\W\u3040-\u30ff\u3400-\u9fff]+", text.lower()):
        if word[0] < "\u3040":
            found.append(word)
        else:
            found += [*word, *(word[at : at + 2] for at in range(len(word) - 1))]
    return found


async def _measured(chosen: Sequence[Conversation], work: Path, say: Callable[[str], None]) -> Section:
    ways = {"memrelay": Scores(), "BM25": Scores()}
    rows: list[tuple[str, ...]] = []
    data: dict[str, Any] = {}
    arguments = ["serve", "--port", "0", "--data", str(work / "data"), "--rate-limits", "off"]
    with started("relayer", arguments, work / "relayer") as relayer:
        gateway = BenchGateway(relayer, work)
        for person in chosen:
            say(f"{person.id}: storing {len(person.turns):,} messages")
            space = await store(gateway, person)
            relayer.settle(600)
            texts = [question.text for question in person.questions]
            own = {"memrelay": Scores(), "BM25": Scores()}
            ordered = best_matching([turn.text for turn in person.turns])
            found = await ask(relayer, gateway, space.identity, texts, floor=0.0)
            for question, answer in zip(person.questions, found, strict=True):
                evidence = [space.memories[turn] for turn in question.evidence]
                by_words = [person.turns[at].id for at in ordered(question.text)]
                for scores in (own, ways):
                    scores["memrelay"].add(answer.ids, evidence)
                    scores["BM25"].add(by_words, question.evidence)
            for way, scores_of in own.items():
                rows.append(_row(person.id, way, scores_of))
                data[f"{person.id}, {way}"] = scores_of.means()
        await gateway.client.aclose()
    for way, scores_of in ways.items():
        rows.append(_row("all", way, scores_of))
        data[way] = scores_of.means()
    return Section("Evidence among long messages, in percent", ("", "n", *_MEASURES), rows, data)


def _row(person: str, way: str, scores: Scores) -> tuple[str, ...]:
    means = scores.means()
    return (f"{person}, {way}", str(len(scores)), *(f"{means[measure]:.1f}" for measure in _MEASURES))


def main(
    part: Annotated[str, typer.Option(help="dev, or unseen, which is for measuring alone.")] = "dev",
    data: Annotated[list[Path] | None, typer.Option(help="Files of conversations instead.")] = None,
) -> None:
    """Let the people of a part ask everything."""
    files = data or sorted((SETS / part).glob("*.json"))
    chosen = [one for path in files for one in conversations(path)]
    with tempfile.TemporaryDirectory() as work, Console(stderr=True).status("starting") as status:
        section = asyncio.run(_measured(chosen, Path(work), status.update))
    show(section, Console(width=120))


if __name__ == "__main__":
    typer.run(main)
