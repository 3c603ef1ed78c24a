"""Share of facts that are kept although a model turned them around, and of faithful ones that are dropped.

    python -m bench.turned [--half unseen] [--failures]

Every message of ``bench/sets/turned`` is captured over HTTP in a namespace of its own. The model behind the relayer is scripted and
answers with the fact of the set, quoting the whole message as evidence. A fact counts as kept if it is among the memories that are
listed then, or if it passed the checks and only repeats the message, which is a memory already.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import structlog
import typer
from rich.console import Console

from bench.report import Section, show
from relayer.testing.local_relayer import LocalRelayer, SigningGateway, local_relayer

# The model server is a double of the tests', which are not installed.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from doubles.scripted_model_server import ScriptedModelServer, says

__all__ = ["HALVES", "SETS", "Case", "cases", "kept_facts", "proposal"]

SETS = Path(__file__).parent / "sets" / "turned"
HALVES = ("seen", "unseen")
FAITHFUL = "faithful"
_OTHER_TURN = "The brass kettle of the office is in the cellar."


@dataclass(frozen=True, slots=True)
class Case:
    """A line of the set; see its README."""

    language: str
    kind: str
    said: str
    fact: str


def cases(half: str) -> list[Case]:
    """Read one half.

    Raises:
        ValueError: the file is not the one whose SHA-256 is stored beside it.
    """
    content = (SETS / f"{half}.tsv").read_bytes()
    sums = (SETS / "SHA256SUMS").read_text("utf-8").splitlines()
    if f"{hashlib.sha256(content).hexdigest()}  {half}.tsv" not in sums:
        raise ValueError(f"{half}.tsv does not have the SHA-256 in SHA256SUMS")
    return [Case(*line.split("\t")) for line in content.decode().splitlines()]


async def kept_facts(half: str) -> list[tuple[Case, bool]]:
    """Capture all messages of a half; each case with whether its fact was kept.

    Raises:
        RuntimeError: a capture was not extracted.
    """
    results = []
    with ScriptedModelServer() as models:
        async with local_relayer(
            model_url=models.url, model_name="m", extractor="llm", rate_limits="off"
        ) as relayer:
            for case in cases(half):
                models.will_chat(says({"facts": [proposal(case)], "summary": ""}))
                results.append((case, await _is_kept(relayer, case)))
    return results


def proposal(case: Case) -> dict[str, object]:
    """Return what the model answers: the fact, proved by the whole message."""
    return {"text": case.fact, "message": 2, "evidence": case.said}


async def _is_kept(relayer: LocalRelayer, case: Case) -> bool:
    """Capture the message of a case and return whether the fact of the model was kept."""
    agent = SigningGateway()
    key = agent.memory_key(relayer.fleet_key)
    turns = [{"role": "user", "text": text, "speaker": "Kim"} for text in (_OTHER_TURN, case.said)]
    passed = _passed(relayer)
    capture = {"turns": turns, "wait_ms": 20_000}
    answer = await relayer.call("POST", "/v1/analyze", capture, gateway=agent, key=key)
    if answer.json().get("extraction") != "done":
        raise RuntimeError(f"a capture was not extracted: {answer.text}")
    listed = await relayer.call("GET", "/v1/memories", gateway=agent, key=key)
    made = any(memory["extractor"].startswith("llm/") for memory in listed.json()["memories"])
    return made or _passed(relayer) > passed


def _passed(relayer: LocalRelayer) -> int:
    """Return how many facts passed the checks so far."""
    work = relayer.relayer.context.facts
    return work.queue.counts["facts"] if work is not None else 0


def section(half: str, results: Sequence[tuple[Case, bool]]) -> Section:
    """Return the table: kept facts by language and kind, in percent and in numbers."""
    stored: defaultdict[tuple[str, str], list[bool]] = defaultdict(list)
    for case, kept in results:
        for kind in (case.kind, "all turned") if case.kind != FAITHFUL else (FAITHFUL,):
            stored[case.language, kind].append(kept)
            stored["all", kind].append(kept)
    kinds = [FAITHFUL, "all turned", *sorted({kind for _, kind in stored} - {FAITHFUL, "all turned"})]
    rows, numbers = [], {}
    for language in [*sorted({language for language, _ in stored} - {"all"}), "all"]:
        counts = {kind: (sum(stored[language, kind]), len(stored[language, kind])) for kind in kinds}
        numbers[language] = counts
        rows.append((language, *(f"{count}/{total}" for count, total in counts.values())))
    return Section(f"Facts of a model that are kept: {half}", ("language", *kinds), rows, numbers)


def main(
    half: Annotated[str, typer.Option(help="seen or unseen.")] = "seen",
    *,
    failures: Annotated[bool, typer.Option("--failures", help="Print wrong cases of the seen half.")] = False,
) -> None:
    """Capture a half of the set and print what is kept."""
    if half not in HALVES:
        raise typer.BadParameter(f"{half} is none of {', '.join(HALVES)}")
    results = asyncio.run(kept_facts(half))
    show(section(half, results), Console(width=150))
    if failures and half == "seen":
        for case, kept in results:
            if kept is not (case.kind == FAITHFUL):
                print(f"{case.language}\t{case.kind}\t{case.said}\t{case.fact}")


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command()(main)
    app()
