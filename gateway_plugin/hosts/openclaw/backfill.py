"""``openclaw memory session-backfill``: the direct chats that OpenClaw stored, by day, captured when a person asks for it.

A turn is captured as in `EarlierSessions`, which does it in the background where OpenClaw's memory covers sessions. A small file
in the host's state directory names the turns that the command captured; ``--rollback`` forgets what they added to memory.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from gateway_plugin.commands.run import Run, guarded, with_client
from gateway_plugin.errors import IdentityError
from gateway_plugin.files.commands.index import OpenIndex, open_index
from gateway_plugin.files.commands.promote import (
    MOST_DAYS,
    RollbackOption,
    days_told,
    quote_chats,
    workspace_files,
    written,
)
from gateway_plugin.hosting import (
    ImportProblem,
    NotRead,
    RelayerClient,
    judge,
    named,
    parse_json,
    parse_messages,
    read_session_log,
    replace_private,
)
from gateway_plugin.hosts.openclaw.config import plugin_settings, read_config, state_folder
from gateway_plugin.hosts.openclaw.sessions import AGAIN, Compressed, EarlierSessions, EarlierTurn
from gateway_plugin.plugin import AsyncMemoryPlugin
from gateway_plugin.settings.model import PluginSettings
from relayer.wire.command_line import FAILED, USAGE, fail
from relayer.wire.fields import Role, one_line
from relayer.wire.redaction import redact
from relayer.wire.schemas import Memory

_SHOWN: Final = 5
_SHOWN_CHARS: Final = 200
_DELIVERY_SECONDS: Final = 120.0
_MAX_WAITING: Final = 50


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A stored turn with messages that would be captured, or a message of an archive."""

    turn: EarlierTurn | None = field(repr=False)
    day: date
    texts: tuple[str, ...] = field(repr=False)


def session_backfill(
    run: Run,
    *,
    since: Annotated[
        datetime | None, typer.Option("--from", formats=["%Y-%m-%d"], help="The first day.")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option("--to", formats=["%Y-%m-%d"], help="The last day.")
    ] = None,
    limit_days: Annotated[
        int, typer.Option("--limit-days", min=1, help="At most this many days, the oldest first.")
    ] = MOST_DAYS,
    archives: Annotated[
        list[Path] | None,
        typer.Option(
            "--archive-files", help="Also show the user's messages of session logs (.jsonl); never captured."
        ),
    ] = None,
    more: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="More files after --archive-files.")
    ] = None,
    rem: Annotated[
        bool, typer.Option("--rem", help="Write what is shown into DREAMS.md, and capture nothing.")
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Capture them, and write their days into DREAMS.md.")
    ] = False,
    rollback: RollbackOption = False,
) -> None:
    """Show what the direct chats that OpenClaw stored would add to memory, by day; with --apply, add it.

    Example: memrelay-gateway memory session-backfill --from 2026-01-01

    Example: memrelay-gateway memory session-backfill --rem --archive-files old.jsonl older.jsonl

    Example: memrelay-gateway memory session-backfill --apply
    """
    logs = [*(archives or ()), *(more or ())]
    _check_together(rollback=rollback, apply=apply, rem=rem, logs=bool(logs), days=bool(since or until))
    if more and not archives:
        fail(USAGE, f"{more[0]}: files come after --archive-files", "session-backfill --archive-files FILE")
    opened = open_index(run.url, run.agent)
    apart = guarded(lambda: read_config(os.environ)).keeps_people_apart
    account = opened.context.identity.account
    stored = EarlierSessions(state_folder(os.environ), opened.name, account, apart=apart)
    if rollback:
        _roll_back(run, opened, stored)
        return
    chosen = _chosen(opened, stored, logs, since and since.date(), until and until.date())
    days = sorted({one.day for one in chosen})[:limit_days]
    chosen = [one for one in chosen if one.day in days]
    texts = _by_day(chosen)
    count = sum(map(len, texts.values()))
    queued, entries = 0, 0
    if apply and days:
        queued = _apply(opened, stored, chosen, days)
    elif rem and days:
        chats = _by_day([one for one in chosen if one.turn is not None])
        archived = _by_day([one for one in chosen if one.turn is None])
        entries = quote_chats(opened, {day: chats.get(day, ()) for day in days}, archived)
    rows: list[dict[str, Any]] = [
        {
            "day": day.isoformat(),
            "candidateCount": len(texts[day]),
            "topCandidates": [text[:_SHOWN_CHARS] for text in texts[day][:_SHOWN]],
        }
        for day in days
    ]
    run.json(
        {
            "days": rows,
            "candidateCount": count,
            "stagedEntries": queued,
            "writtenDiaryEntries": entries,
            "applied": apply,
            "rem": rem,
        }
    )
    undo = "take back: memory session-backfill --rollback"
    if not rows:
        said = "there is nothing new in the direct chats that OpenClaw stored"
    elif apply:
        said = f"{queued} messages were handed to memory; {undo}"
    elif rem:
        said = f"{entries} entries were written into DREAMS.md; {undo}"
    else:
        said = "nothing was changed; add them with: memory session-backfill --apply"
    for row in rows:
        run.say(f"{row['day']}: {row['candidateCount']} messages")
        for text in row["topCandidates"]:
            run.say(f"- {text}")
    run.say(said)


def _by_day(chosen: Sequence[_Candidate]) -> dict[date, list[str]]:
    texts: dict[date, list[str]] = {}
    for one in chosen:
        texts.setdefault(one.day, []).extend(one.texts)
    return texts


def _check_together(*, rollback: bool, apply: bool, rem: bool, logs: bool, days: bool) -> None:
    if rollback and (apply or rem or logs or days):
        fail(
            USAGE,
            "--rollback: cannot be combined with --apply, --rem, --from, --to or --archive-files",
            "memrelay-gateway memory session-backfill --rollback",
        )
    if apply and rem:
        fail(USAGE, "--apply and --rem: say one of them", "memrelay-gateway memory session-backfill --apply")
    if apply and logs:
        fail(
            USAGE,
            "--archive-files: cannot be combined with --apply, since nothing proves who wrote the files",
            "store them as what files say: memrelay-gateway index --sessions FOLDER",
        )


def _chosen(
    opened: OpenIndex, stored: EarlierSessions, logs: Sequence[Path], first: date | None, last: date | None
) -> list[_Candidate]:
    """Return what memory does not have, of stored chats and session logs, oldest first."""
    known: dict[str, list[str]] = {}
    for memory in _memories(opened):
        known.setdefault(memory.source.session, []).append(one_line(memory.text))
    settings, _ = _host_settings(opened)
    found = [*_candidates(stored, settings, known), *_archived(logs, settings, known)]
    first, last = first or date.min, last or date.max
    return sorted((one for one in found if first <= one.day <= last), key=lambda one: one.day)


def _candidates(
    stored: EarlierSessions, settings: PluginSettings, known: Mapping[str, list[str]]
) -> list[_Candidate]:
    done = _handed(stored)
    found = []
    for turn in _read(stored.left):
        if turn.last in done.get(turn.session, ()):
            continue
        messages = [one for one in parse_messages(turn.messages) if one.role is Role.USER]
        judged = [judge(one.text, origin=Role.USER, settings=settings.capture) for one in messages]
        texts = tuple(one_line(redact(one.text).text) for one in judged if one.dropped is None)
        at = next((one.at for one in messages if one.at is not None), None)
        said = "\n".join(texts)
        if texts and at is not None and not any(text in said for text in known.get(turn.key, ())):
            found.append(_Candidate(turn, _day_of(at), texts))
    return found


def _archived(
    logs: Sequence[Path], settings: PluginSettings, known: Mapping[str, list[str]]
) -> list[_Candidate]:
    """Return what the user said in session logs and memory does not have; exit with an error if one cannot be read."""
    had = {text for texts in known.values() for text in texts}
    found = []
    for path in map(named, logs):
        try:
            items = read_session_log(path, path.name, settings.capture, root=path.parent)
        except ImportProblem as error:
            fail(
                FAILED, str(error), "name session logs of OpenClaw, Claude Code or Codex; nothing was changed"
            )
        at = path.stat().st_mtime * 1000
        for item in items:
            text = one_line(item.text)
            if item.source.role == "user" and text not in had:
                found.append(_Candidate(None, _day_of(item.occurred_at or at), (text,)))
    return found


def _day_of(milliseconds: float) -> date:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone().date()


def _read(read: Callable[[], list[EarlierTurn]]) -> list[EarlierTurn]:
    try:
        return read()
    except NotRead:
        return []  # the agent has no sessions yet
    except Compressed as error:
        fail(FAILED, str(error), "which node")
    except sqlite3.Error as error:
        fail(FAILED, f"OpenClaw's sessions cannot be read just now ({type(error).__name__})", "try again")


def _host_settings(opened: OpenIndex) -> tuple[PluginSettings, Path]:
    config = guarded(lambda: read_config(os.environ))
    settings = guarded(lambda: plugin_settings(config, os.environ))
    url = opened.context.settings.url
    return settings.model_copy(update={"url": url}), config.workspace(opened.name, os.environ)


def _apply(opened: OpenIndex, stored: EarlierSessions, chosen: list[_Candidate], days: list[date]) -> int:
    """Capture turns and write the diary of their days; return how many messages were captured."""
    workspace_files(opened)
    settings, workspace = _host_settings(opened)
    done = _handed(stored)

    async def capture() -> tuple[int, str]:
        queued, problem = 0, ""
        async with AsyncMemoryPlugin(settings=settings, holder=opened.context.holder) as plugin:
            for one in chosen:
                if one.turn is None:
                    continue
                if plugin.status().waiting > _MAX_WAITING:
                    await plugin.flush(_DELIVERY_SECONDS)
                report = await stored.capture(plugin, one.turn, workspace)
                if report.status in AGAIN:
                    problem = f"{report.status} {report.detail}".strip()
                    break
                if report.status.startswith("skipped:"):
                    # Of one session, or of all: it is offered again.
                    problem = f"{report.status} {report.detail}".strip()
                    continue
                queued += report.queued
                done.setdefault(one.turn.session, []).append(one.turn.last)
            if not await plugin.flush(_DELIVERY_SECONDS):
                problem = problem or "the relayer did not take them yet; they wait in the outbox"
        return queued, problem

    queued, problem = guarded(lambda: asyncio.run(capture()))
    with suppress(OSError, IdentityError):
        stored.place(_FILE).parent.mkdir(parents=True, exist_ok=True)
        replace_private(stored.place(_FILE), json.dumps(done).encode())
    told = days_told(opened, days[0], days[-1])
    if not problem:
        quote_chats(opened, dict.fromkeys(days, ()), {})  # what --rem told of these days is in memory now
    written(
        opened,
        lambda files: files.write_diary({day: files.entry(day, told[day]) for day in days if day in told}),
    )
    if problem:
        fail(FAILED, f"{queued} messages were captured, not all: {problem}", "see: memrelay-gateway doctor")
    return queued


def _roll_back(run: Run, opened: OpenIndex, stored: EarlierSessions) -> None:
    """Forget what the command added to memory, and clear the diary."""
    done = _handed(stored)
    handed = [turn for turn in _read(stored.all) if turn.last in done.get(turn.session, ())]
    ids = {(turn.key, str(message["id"])) for turn in handed for message in turn.messages}
    identity = opened.context.identity
    gone = [
        one.id
        for one in _memories(opened)
        if any((one.source.session, message) in ids for message in one.source.message_ids)
    ]

    async def forget(client: RelayerClient) -> None:
        for one in gone:
            await client.forget(identity, one)

    with_client(opened.context.settings, forget)
    entries = written(opened, lambda files: files.clear_diary())
    run.tell(
        {"rollback": {"removedDiaryEntries": entries, "removedStagedEntries": len(gone)}},
        f"{len(gone)} memories were forgotten (bring one back: memrelay-gateway restore ID), "
        f"and {entries} entries were removed from DREAMS.md",
    )


def _memories(opened: OpenIndex) -> list[Memory]:
    identity = opened.context.identity

    async def listed(client: RelayerClient) -> list[Memory]:
        return [one async for one in client.all_memories(identity)]

    return with_client(opened.context.settings, listed)


_FILE: Final = "backfilled"


def _handed(stored: EarlierSessions) -> dict[str, list[int]]:
    """Return the turns that the command captured: the numbers of their last events, by session."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        kept = parse_json(stored.place(_FILE).read_text("utf-8"))
        return {str(session): [int(last) for last in turns] for session, turns in kept.items()}
    return {}
