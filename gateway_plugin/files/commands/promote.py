"""``memory promote``, ``promote-explain``, ``rem-harness`` and ``rem-backfill``: promoted memories and the diary of days.

The commands show what they would write; ``promote --apply`` and ``rem-backfill`` write, and ``--rollback`` of either takes
back what they wrote.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from gateway_plugin.client import RelayerClient
from gateway_plugin.commands.run import Run, command, open_outbox, with_client
from gateway_plugin.files.bounded import named
from gateway_plugin.files.commands.index import OpenIndex, open_index
from gateway_plugin.files.exports import ImportProblem, files_of, read_file
from gateway_plugin.files.living import locked_index
from gateway_plugin.files.notes import (
    ARCHIVES,
    CHATS,
    DIARY,
    MEMORY,
    NOTES,
    Promotions,
    is_for_owner,
    memories_with,
    owners_days,
)
from gateway_plugin.hosting import SystemClock
from gateway_plugin.recall.consolidation import LEAST_QUESTIONS, LEAST_RECALLS, Counted, RecallCounts
from relayer.wire.command_line import FAILED, USAGE, fail
from relayer.wire.fields import one_line
from relayer.wire.schemas import Memory

_T = TypeVar("_T")
_PATIENCE: Final = 30.0
MOST_DAYS: Final = 92
_QUOTED_CHARS: Final = 500
_LEAST_SCORE: Final = 0.5
_DAILY: Final = re.compile(r"(\d{4}-\d{2}-\d{2})(?:-.+)?\.md", re.IGNORECASE)
RollbackOption = Annotated[bool, typer.Option("--rollback", help="Take back what was written.")]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A memory that turns were given, and how often."""

    memory: Memory
    count: Counted

    @property
    def score(self) -> float:
        """Return the mean relevance, 0..1."""
        return round(self.count.relevance / self.count.recalls, 2)

    def missing(self, score: float, recalls: int, questions: int) -> list[str]:
        """Return the reasons why the memory is not promoted, in words; empty if it is."""
        found = []
        if self.count.recalls < recalls:
            found.append(f"{self.count.recalls} of {recalls} recalls")
        if len(self.count.questions) < questions:
            found.append(f"{len(self.count.questions)} of {questions} different queries")
        if self.score < score:
            found.append(f"score {self.score} of {score}")
        if not is_for_owner(self.memory):
            found.append("not the owner's own statement, so it is never written into a file")
        return found

    def row(self, missing: Sequence[str]) -> dict[str, Any]:
        """Return the candidate for a JSON document."""
        return {
            "id": self.memory.id,
            "snippet": self.memory.text,
            "recallCount": self.count.recalls,
            "uniqueQueries": len(self.count.questions),
            "score": self.score,
            "passes": not missing,
            "missing": [*missing],
        }

    def line(self) -> str:
        """Return a line for the terminal: the memory's id and text, its number of recalls and its score."""
        return (
            f"{self.memory.id}  {one_line(self.memory.text)}  "
            f"({self.count.recalls} recalls, {len(self.count.questions)} queries, score {self.score})"
        )


def promote(
    run: Run,
    *,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Maximum number of memories.")] = 500,
    score: Annotated[
        float, typer.Option("--min-score", min=0, max=1, help="Minimum mean relevance.")
    ] = _LEAST_SCORE,
    recalls: Annotated[
        int, typer.Option("--min-recall-count", min=1, help="Minimum number of recalls.")
    ] = LEAST_RECALLS,
    questions: Annotated[
        int, typer.Option("--min-unique-queries", min=1, help="Minimum number of different queries.")
    ] = LEAST_QUESTIONS,
    apply: Annotated[bool, typer.Option("--apply", help=f"Append them to {MEMORY}.")] = False,
    rollback: RollbackOption = False,
    memory: Annotated[
        list[str] | None, typer.Option(help="With --rollback: only this memory; repeatable.")
    ] = None,
) -> None:
    """Show which memories turns needed often; with --apply, append them to MEMORY.md and tell it in DREAMS.md.

    Recalls are counted while consolidation.enabled is set.

    Example: memrelay-gateway memory promote --apply --limit 5

    Example: memrelay-gateway memory promote --rollback
    """
    if apply and rollback:
        fail(USAGE, "--apply and --rollback: say one of them", "memrelay-gateway memory promote --apply")
    if memory and not rollback:
        fail(USAGE, "--memory: only valid with --rollback", "memrelay-gateway memory promote --rollback")
    opened = open_index(run.url, run.agent)
    if rollback:
        gone = written(opened, lambda files: files.take_out(memory or ()))
        run.tell({"removed": gone}, f"{len(gone)} lines were removed from {MEMORY}; their memories are kept")
        return
    found = [one for one in _candidates(opened) if not one.missing(score, recalls, questions)][:limit]
    done: list[Memory] = []
    if apply and found:
        done = _apply(opened, found)
    run.json({"candidates": [one.row(()) for one in found], "promoted": [one.id for one in done]})
    for one in found:
        run.say(one.line())
    if apply:
        run.say(
            f"{len(done)} lines were written into {MEMORY}; take them back with: memory promote --rollback"
        )
    elif found:
        run.say(f"nothing was written; append them to {MEMORY} with: memory promote --apply")
    else:
        run.say("no memory was needed often enough; recalls are counted while consolidation.enabled is set")


def promote_explain(
    run: Run, selector: Annotated[str, typer.Argument(help="Id of a memory, or words of its text.")]
) -> None:
    """Show why a memory would be promoted or not.

    Example: memrelay-gateway memory promote-explain "deploy window"
    """
    wanted = selector.casefold()
    found = [
        one
        for one in _candidates(open_index(run.url, run.agent))
        if wanted == one.memory.id or wanted in one.memory.text.casefold()
    ]
    if not found:
        fail(
            FAILED,
            f"no turn was given a memory like {selector!r} since recalls are counted",
            "recalls are counted while consolidation.enabled is set",
        )
    rows = [(one, one.missing(_LEAST_SCORE, LEAST_RECALLS, LEAST_QUESTIONS)) for one in found]
    run.json({"candidates": [one.row(missing) for one, missing in rows]})
    for one, missing in rows:
        run.say(one.line())
        run.say(
            f"  not promoted: {'; '.join(missing)}" if missing else "  promoted by: memory promote --apply"
        )


def rem_harness(run: Run) -> None:
    """Show today's entry of the diary and what would be promoted; writes nothing.

    Example: memrelay-gateway memory rem-harness
    """
    opened = open_index(run.url, run.agent)
    today = datetime.now(UTC).astimezone().date()
    passing = [
        one.memory
        for one in _candidates(opened)
        if not one.missing(_LEAST_SCORE, LEAST_RECALLS, LEAST_QUESTIONS)
    ]
    entry = workspace_files(opened).entry(today, days_told(opened, today, today).get(today, ()), passing)
    run.json({"day": today.isoformat(), "entry": entry, "promotes": [one.id for one in passing]})
    run.raw(entry.rstrip("\n") or "There is nothing to tell of today.")


def rem_backfill(
    run: Run,
    *,
    path: Annotated[
        Path | None,
        typer.Option(
            help="Tell daily notes from elsewhere: a file YYYY-MM-DD.md, or a folder of such files."
        ),
    ] = None,
    since: Annotated[
        datetime | None, typer.Option("--from", formats=["%Y-%m-%d"], help="The first day.")
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option("--to", formats=["%Y-%m-%d"], help="The last day; default: today, or with --path any."),
    ] = None,
    rollback: RollbackOption = False,
) -> None:
    """Write an entry for each day into DREAMS.md: what the owner said that day, by kind, or lines of daily notes.

    Other texts in the file remain. Notes are not stored as memories: memrelay-gateway index does that.

    Example: memrelay-gateway memory rem-backfill --from 2026-05-01

    Example: memrelay-gateway memory rem-backfill --path old-workspace/memory

    Example: memrelay-gateway memory rem-backfill --rollback
    """
    if rollback and path:
        fail(
            USAGE, "--rollback and --path: say one of them", "memrelay-gateway memory rem-backfill --rollback"
        )
    opened = open_index(run.url, run.agent)
    if rollback:
        count = written(opened, lambda files: files.clear_diary())
        run.tell({"removed": count}, f"{count} days were removed from {DIARY}")
        return
    last = until.date() if until else datetime.now(UTC).astimezone().date()
    undo = "take them back with: memory rem-backfill --rollback"
    if path is not None:
        notes = _notes(path, since.date() if since else date.min, last if until else date.max)
        lines: dict[date, list[str]] = {}
        for (day, _), texts in notes.items():
            lines.setdefault(day, []).extend(texts)
        count = written(opened, lambda files: files.quote(lines, NOTES, "from daily notes"))
        run.tell(
            {"days": count, "sourceFiles": [str(file) for _, file in notes]},
            f"{count} days were written into {DIARY}; {undo}",
        )
        return
    first = since.date() if since else last - timedelta(days=MOST_DAYS - 1)
    told = days_told(opened, first, last)
    count = written(
        opened, lambda files: files.write_diary({day: files.entry(day, told[day]) for day in told})
    )
    run.tell({"days": count}, f"{count} days were written into {DIARY}; {undo}")


def _day_of(file: Path) -> date | None:
    """Return the day of daily notes, ``2026-05-01.md`` or ``2026-05-01-harbour.md``; None for other files."""
    found = _DAILY.fullmatch(file.name)
    with suppress(ValueError):
        return date.fromisoformat(found[1]) if found else None
    return None


def _notes(path: Path, first: date, last: date) -> dict[tuple[date, Path], list[str]]:
    """Return the lines of daily notes by day and file, oldest first; exit with an error if a file cannot be read."""
    place = named(path)
    below = files_of(place)
    for error in below.left_out:
        if _day_of(error.path):
            fail(FAILED, str(error), "nothing was written")
    days = [
        (day, file)
        for file, _ in below.files
        if file.parent == (place if place.is_dir() else place.parent) and (day := _day_of(file))
    ]
    found = [(day, file) for day, file in sorted(days) if first <= day <= last]
    if not found:
        fail(
            FAILED,
            f"{path}: has no daily notes of these days",
            "name a file like 2026-05-01.md, or their folder",
        )
    try:
        return {(day, file): [item.text for item in read_file(file, file.name)] for day, file in found}
    except ImportProblem as error:
        fail(FAILED, str(error), "mend or move it, then run the command again; nothing was written")


def add_to_memory(app: typer.Typer) -> None:
    """Add the commands to a host's memory command."""
    command(app, "promote")(promote)
    command(app, "promote-explain")(promote_explain)
    command(app, "rem-harness")(rem_harness)
    command(app, "rem-backfill")(rem_backfill)


def workspace_files(opened: OpenIndex) -> Promotions:
    """Return ``MEMORY.md`` and the diary of an agent's workspace; exit with an error if it has none."""
    if opened.promotions is None:
        fail(
            USAGE,
            "the agent's workspace is not known",
            "memrelay-gateway index --workspace ~/.openclaw/workspace",
        )
    return opened.promotions


def written(opened: OpenIndex, work: Callable[[Promotions], _T]) -> _T:
    """Change files of the workspace while no other process scans them."""
    files = workspace_files(opened)

    async def run(_client: RelayerClient) -> _T:
        async with locked_index(opened.index, _PATIENCE) as mine:
            if not mine:
                fail(FAILED, "another process is indexing these files", "wait until it has finished")
            opened.index.reload()
            return work(files)

    return with_client(opened.context.settings, run)


def quote_chats(
    opened: OpenIndex, chats: Mapping[date, Iterable[str]], archived: Mapping[date, Iterable[str]]
) -> int:
    """Write what was said in stored chats and in archived session logs into the diary; return how many entries were written.

    The entry of a day without lines is removed.
    """
    return written(
        opened,
        lambda files: (
            files.quote(chats, CHATS, "from stored chats", _QUOTED_CHARS)
            + files.quote(archived, ARCHIVES, "from archived session logs", _QUOTED_CHARS)
        ),
    )


def _apply(opened: OpenIndex, found: Sequence[Candidate]) -> list[Memory]:
    today = datetime.now(UTC).astimezone().date()
    told = days_told(opened, today, today).get(today, ())

    def write(files: Promotions) -> list[Memory]:
        done = files.add(one.memory for one in found)
        files.write_diary({today: files.entry(today, told, done)})
        return done

    done = written(opened, write)
    owner = opened.context.identity.ref
    with open_outbox(opened.context) as outbox:
        RecallCounts(outbox, owner, SystemClock()).drop(owner, (one.memory.id for one in found))
    return done


def _candidates(opened: OpenIndex) -> list[Candidate]:
    """Return the live memories that turns were given, the most needed first."""
    identity = opened.context.identity
    with open_outbox(opened.context) as outbox:
        counts = RecallCounts(outbox, identity.ref, SystemClock()).counts(identity.ref)
    live = with_client(opened.context.settings, lambda client: memories_with(client, identity, counts))
    found = [Candidate(memory, counts[one]) for one, memory in live.items()]
    return sorted(found, key=lambda one: (-len(one.count.questions), -one.count.recalls, -one.score))


def days_told(opened: OpenIndex, first: date, last: date) -> dict[date, list[Memory]]:
    """Return the owner's memories of some days, by the local day on which they were told."""
    identity = opened.context.identity
    return with_client(opened.context.settings, lambda client: owners_days(client, identity, first, last))
