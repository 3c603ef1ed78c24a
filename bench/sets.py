"""How right the rules are on the labelled sets: extraction, duplicates, supersession, injection, ordinary speech.

    python -m bench.sets [--failures] [--json out.json]

Every set was written before the rules that it judges were tuned. Which half a case belongs to follows from a hash of the
set's name and the case's number; of the half marked ``unseen`` only totals were ever looked at, so ``--failures`` prints
the other half alone. Nothing is random: the same rules print the same numbers.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.relations import capturing
from gateway_plugin.text.wrappers import scan
from relayer.extraction.statements import ConversationTurn, StatementExtractor
from relayer.wire.fields import Role

FOLDER = Path(__file__).parent / "sets"
FILES = ("transcripts", "duplicates", "supersession", "injection", "ordinary_speech")
_LABEL_OF = {"replaced": "replaces", "first": "conflict"}

Row = dict[str, Any]


@dataclass(frozen=True)
class Judged:
    """One decision: what it was of, what it should have been, what it was."""

    shown: str
    wanted: str
    got: str
    unseen: bool


def rows(name: str) -> list[Row]:
    """Read a set."""
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines()]


def is_unseen(name: str, number: int) -> bool:
    """Which half a case belongs to, for good."""
    return hashlib.sha256(f"{name}/{number}".encode()).digest()[0] % 2 == 1


def extraction(role: Role) -> Iterator[Judged]:
    """Judge each message of one side in the transcript that it stands in."""
    for row in rows("transcripts"):
        turns = [
            ConversationTurn(Role(item["role"]), item["text"], turn_id=f"{at}")
            for at, item in enumerate(row["turns"])
        ]
        kept = {candidate.turn_ids[0] for candidate in StatementExtractor().extract(turns)}
        for at, item in enumerate(row["turns"]):
            if item["role"] == role.value:
                wanted = "keep" if item["keep"] else "leave"
                yield Judged(item["text"], wanted, "keep" if f"{at}" in kept else "leave", row["unseen"])


async def duplicates() -> list[Judged]:
    """Judge pairs by whether a relayer drops the second one, as one that says the same."""
    return [
        Judged(shown, "different" if case["label"] == "different" else "same", got, case["unseen"])
        for case, shown, outcome in await _captured("duplicates", "first", "second")
        for got in ["same" if outcome == "dropped" else "different"]
    ]


async def supersession() -> list[Judged]:
    """Judge pairs of an older and a newer statement by what a relayer does when they are captured."""
    return [
        Judged(shown, case["label"], _LABEL_OF.get(outcome, "compatible"), case["unseen"])
        for case, shown, outcome in await _captured("supersession", "old", "new")
    ]


async def _captured(name: str, first: str, second: str) -> list[tuple[Row, str, str]]:
    """Return the cases of a set, each with what is shown of it and the outcome of its captures."""
    found = []
    async with capturing() as captures:
        for case in rows(name):
            outcome = await captures.outcome(case[first], case[second]) or "left"
            found.append((case, f"{case[first]} | {case[second]} | {outcome}", outcome))
    return found


def injection() -> Iterator[Judged]:
    """Judge what must be detected by whether any class is found, and ordinary speech by whether none is."""
    for name in ("injection", "ordinary_speech"):
        for case in rows(name):
            wanted = "attack" if name == "injection" else "speech"
            found = bool(scan(case["text"]).classes)
            yield Judged(case["text"], wanted, "attack" if found else "speech", case["unseen"])


def classes_found() -> dict[str, str]:
    """Return for each class of attack, over both halves, how many of its cases are found under its own name."""
    counts: dict[str, list[bool]] = {}
    for case in rows("injection"):
        named = case["class"] in {found.value for found in scan(case["text"]).classes}
        counts.setdefault(case["class"], []).append(named)
    return {name: f"{sum(found)}/{len(found)}" for name, found in sorted(counts.items())}


def measured(judged: Sequence[Judged], positive: str) -> dict[str, dict[str, float | int]]:
    """Return precision and recall of one answer, for both halves."""
    return {
        half: _scores([item for item in judged if item.unseen == (half == "unseen")], positive)
        for half in ("seen", "unseen")
    }


def _scores(judged: Sequence[Judged], positive: str) -> dict[str, float | int]:
    right = sum(item.got == item.wanted == positive for item in judged)
    claimed = sum(item.got == positive for item in judged)
    wanted = sum(item.wanted == positive for item in judged)
    return {
        "cases": len(judged),
        "wanted": wanted,
        "precision": round(right / claimed, 3) if claimed else 0.0,
        "recall": round(right / wanted, 3) if wanted else 0.0,
        "passed": round(_share_passed(judged, positive), 3),
    }


def _share_passed(judged: Sequence[Judged], positive: str) -> float:
    """Return the share of the cases with another label that were left alone."""
    others = [item for item in judged if item.wanted != positive]
    return sum(item.got != positive for item in others) / len(others) if others else 1.0


async def everything() -> dict[str, tuple[list[Judged], str]]:
    """Return all decisions by question, each with the answer that precision and recall are of."""
    changes = await supersession()
    return {
        "extraction, user's side": (list(extraction(Role.USER)), "keep"),
        "extraction, assistant's side": (list(extraction(Role.ASSISTANT)), "keep"),
        "duplicates": (await duplicates(), "same"),
        "supersession: replaces": (changes, "replaces"),
        "supersession: conflicts": (changes, "conflict"),
        "injection against ordinary speech": (list(injection()), "attack"),
    }


def _lines(report: dict[str, dict[str, dict[str, float | int]]]) -> Iterable[str]:
    yield f"{'':36}{'half':8}{'cases':>6}{'wanted':>8}{'precision':>11}{'recall':>8}{'others pass':>13}"
    for name, halves in report.items():
        for half, one in halves.items():
            yield (
                f"{name:36}{half:8}{one['cases']:>6}{one['wanted']:>8}{one['precision']:>11.3f}"
                f"{one['recall']:>8.3f}{one['passed']:>13.3f}"
            )


def main(say: Callable[[str], None] = print) -> None:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--failures", action="store_true", help="print what is wrong in the half that is seen"
    )
    parser.add_argument("--json", type=Path, help="write the numbers to this file, too")
    options = parser.parse_args()
    decided = asyncio.run(everything())
    report = {name: measured(judged, positive) for name, (judged, positive) in decided.items()}
    for line in _lines(report):
        say(line)
    found = classes_found()
    say(
        "attacks found under their own class: "
        + ", ".join(f"{name} {count}" for name, count in found.items())
    )
    hashes = {name: hashlib.sha256((FOLDER / f"{name}.jsonl").read_bytes()).hexdigest() for name in FILES}
    for name, digest in hashes.items():
        say(f"{digest}  bench/sets/{name}.jsonl")
    if options.failures:
        wrong = [
            item
            for judged, _ in decided.values()
            for item in judged
            if not item.unseen and item.got != item.wanted
        ]
        for item in dict.fromkeys(wrong):
            say(f"{item.got} instead of {item.wanted}: {item.shown}")
    if options.json:
        everything_found = {"sets": hashes, "scores": report, "classes": found}
        options.json.write_text(json.dumps(everything_found, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
