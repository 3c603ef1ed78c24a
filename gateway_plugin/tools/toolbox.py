"""The memory tools that a model can call: search, read, store, correct and forget memories, and read a session's log.

`Toolbox.call` validates the arguments, runs the tool and returns a `ToolAnswer`. What a tool returns enters the prompt, so
it is filtered and escaped like injected memories. Errors are returned as text with their cause and never raised, so that a
failing tool does not end a turn. The model cannot delete memories permanently, and cannot choose a namespace that its agent
has no access to.

Six more tools (list, history, profile, analyze, job and status) are for programs that neither recall nor capture by
themselves. Hosts that do both do not offer them, because their descriptions cost tokens in every turn.
"""

from __future__ import annotations

import asyncio
import hashlib
import html
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, ClassVar, Final

from gateway_plugin.calls.clock import Clock
from gateway_plugin.client import RelayerClient
from gateway_plugin.errors import GatewayError, IdentityError, RelayerRefused
from gateway_plugin.files.indexed import DialogueEntry, NoSuchLog, read_transcript
from gateway_plugin.files.markdown import without_notes
from gateway_plugin.keys.identity import Identity, TurnAudience, audience_name, parse_session_key, typed
from gateway_plugin.recall.formatting import (
    TRUSTED,
    age_in_words,
    harmless_profile,
    label_of,
    may_be_shown,
    may_be_told,
    shown_text,
    told_at,
)
from gateway_plugin.recall.recaller import SEARCH_FLOOR, ranking
from gateway_plugin.recall.sharing import SharedHit, Shares, recall_shared, shared_namespace
from gateway_plugin.settings.model import PluginSettings
from gateway_plugin.text.wrappers import scan, strip
from gateway_plugin.tools.arguments import (
    AnalyzeArguments,
    ForgetArguments,
    GetArguments,
    HistoryArguments,
    JobArguments,
    ListArguments,
    ProfileArguments,
    SearchArguments,
    StatusArguments,
    StoreArguments,
    ToolError,
    TranscriptArguments,
    UpdateArguments,
    parse_arguments,
)
from gateway_plugin.turn.gates import Hearing, Turn
from gateway_plugin.turn.query import moment_of
from relayer.wire import names
from relayer.wire.codec import InvalidName
from relayer.wire.fields import NOBODY_KNOWN, Audience, SourceInfo, escape, one_line
from relayer.wire.redaction import redact
from relayer.wire.schemas import (
    AnalyzeRequest,
    Memory,
    MemoryItem,
    RecallHit,
    RecallRequest,
    RememberRequest,
    SupersedeRequest,
    TurnItem,
)
from relayer.wire.service import TranscriptRequest

_TRANSCRIPT_DEADLINE: Final = 15.0
# `Toolbox._transcript` looks for the label "User".
_SPEAKERS: Final = {"user": "User", "assistant": "Assistant"}
_MAX_SESSION: Final = 512


async def read_kept(client: RelayerClient, asked: TranscriptArguments, absent: NoSuchLog, turn: Turn) -> str:
    """Return the part of a session's transcript that the relayer has stored, for a session of which the host has no log.

    The result has the form of `gateway_plugin.files.indexed.read_transcript`, after a line that says where it is from.

    Raises:
        ToolError: the relayer has no transcript of the session either, or the anchor is not in it.
    """
    audiences = turn.hearing.audiences
    if len(asked.path) > _MAX_SESSION or (not turn.hearing.private and asked.path != turn.session.key):
        raise absent
    named = {} if asked.anchor is None else {"anchor": asked.anchor, "at": moment_of(asked.anchor)}
    request = TranscriptRequest(session=asked.path, limit=asked.turns, audiences=audiences, **named)
    try:
        kept = await client.transcript(turn.identity, request, deadline=_TRANSCRIPT_DEADLINE)
    except GatewayError as error:
        raise ToolError(f"{absent}; and the relayer could not be asked: {error}") from error
    if not kept.total:
        raise absent
    if not kept.lines:
        raise ToolError(
            "anchor: no message that was kept of this session has that id, and none is as old as that time"
        )
    said = [DialogueEntry(line.id, _SPEAKERS[line.role], line.text, line.call) for line in kept.lines]
    heading = "(The host has no log of this session. Kept by the relayer, of the turns that left a memory:)"
    return "\n".join([heading, *(one.line for one in said if not scan(one.text).blocked)])


READING: Final = frozenset(
    {
        "memory_search",
        "memory_get",
        "memory_transcript",
        "memory_list",
        "memory_history",
        "memory_profile",
        "memory_job",
        "memory_status",
    }
)
"""The names of the tools that change nothing, so that a host may repeat a call."""

_STATES: Final = {"superseded": ", corrected since"}
_NONE_FOUND: Final = "No relevant memories found."
_SAID_BY: Final = {
    "user": "said by the user",
    "assistant": "said by the assistant",
    "imported": "imported",
    "external": "from a tool",
}
_LEFT_OUT: Final = "[omitted: it looks like an instruction to the model]"
_FILE_LINES: Final = 500
_NARROW: Final = frozenset({"sessions", "wiki"})
_MOST_FOUND: Final = 100
_FOUND_PER_HIT: Final = 5
_PREVIEW: Final = 100
_SHOWN: Final = 3
# How long the relayer's language model may extract facts before the call returns. A relayer without a model answers
# immediately.
_WAIT_MS: Final = 5000
_NEIGHBOURS: Final = 4
_PAGE: Final = 100
# Maximum number of requests for one list: there may be many memories that may not be shown.
_MOST_PAGES: Final = 10
_DEADLINE: Final = 15.0
_ANALYZE_DEADLINE: Final = 55.0
# A language model has often finished within this time. Later results can be read with the tool memory_job.
_ANALYZE_WAIT_MS: Final = 20_000


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The result of a tool call.

    Attributes:
        text: the result for the model, escaped for use in a prompt.
        details: the same result for programs; its texts are escaped, too, because hosts show some of them to a model.
        failed: whether the text is an error message.
        reason: for programs, the cause of a failure: the error's ``outcome``, ``arguments``, ``failed``, ``outbox`` or
            ``switched_off``; "" if the call succeeded.
    """

    text: str
    details: dict[str, Any] = field(default_factory=dict, repr=False)
    failed: bool = False
    reason: str = ""


def failure(error: GatewayError) -> ToolAnswer:
    """Return the result of a tool call that failed with an error."""
    return ToolAnswer(f"Memory error: {escape(str(error))}", failed=True, reason=error.outcome)


class Toolbox:
    """Runs the memory tools against one relayer.

    ``cited`` has the current file and line of memories that come from files, by their ids: ``MEMORY.md#3``.
    """

    def __init__(
        self,
        client: RelayerClient,
        settings: PluginSettings,
        clock: Clock,
        cited: Mapping[str, str] = MappingProxyType({}),
        shares: Shares | None = None,
    ) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock
        self._cited = cited
        self._shares = shares

    async def call(self, tool: str, arguments: Mapping[str, object], turn: Turn) -> ToolAnswer:
        """Run a tool. It never raises: failures are returned as a `ToolAnswer`."""
        try:
            parsed = parse_arguments(tool, arguments)
            named = getattr(parsed, "namespace", None)
            whose = self._shared(turn.identity, named, writes=tool not in READING)
            whose = whose or _granted(turn.identity, named)
            return await self._WORK[type(parsed)](self, parsed, replace(turn, whose=whose))
        except ToolError as error:
            return ToolAnswer(f"Memory error: {escape(str(error))}", failed=True, reason="arguments")
        except GatewayError as error:
            return failure(error)
        except Exception as error:  # noqa: BLE001 - a defect of ours must not end the model's turn
            return ToolAnswer(
                f"Memory error: internal failure of the plugin ({type(error).__name__})",
                failed=True,
                reason="failed",
            )

    def _shared(self, identity: Identity, namespace: str | None, *, writes: bool) -> Identity | None:
        """Return the identity for a namespace that the call names and that is shared with the agent; None for any other.

        Raises:
            ToolError: the tool writes, and the namespace is shared for reading only.
        """
        if self._shares is None or namespace is None:
            return None
        try:
            wanted = shared_namespace(namespace)
        except InvalidName:
            return None
        known = self._shares.shares_of(identity) if writes else self._shares.also_read(identity)
        given = namespace.strip()
        found = next(
            (one for one in known if (one.shown == given if one.is_guest else one.namespace == wanted)), None
        )
        if found is not None and writes and not self._shares.may_write(identity, found):
            raise ToolError("namespace: shared read-only; omit it to store in your own")
        return found

    async def _search(self, asked: SearchArguments, turn: Turn) -> ToolAnswer:
        recall = self._settings.recall
        default = recall.min_score if "min_score" in recall.model_fields_set else SEARCH_FLOOR
        hearing = turn.hearing
        request = RecallRequest(
            query=redact(strip(asked.query) or asked.query, self._settings.capture.redaction).text,
            # Which corpus a memory belongs to is not known to the relayer.
            limit=min(_MOST_FOUND, asked.limit * _FOUND_PER_HIT) if asked.corpus in _NARROW else asked.limit,
            floor=default if asked.min_score is None else asked.min_score,
            audiences=hearing.audiences,
            trusts=TRUSTED,
            rerank=True,
            **ranking(recall),
            **_given(named=hearing.named, include=asked.include),
            **({} if asked.as_of is None else {"as_of": _moment("asOf", asked.as_of)}),
            **({} if asked.where is None else {"where": asked.where}),
        )
        # If the call names a namespace, only that one is searched.
        shared = () if self._shares is None or asked.namespace else self._shares.also_read(turn.identity)
        own = self._client.recall(turn.identity, request, deadline=_DEADLINE)
        answer = await recall_shared(self._client, own, shared, request, seconds=_DEADLINE)
        hits = [
            hit
            for hit in answer.memories
            if may_be_shown(hit, hearing, asked.query) and self._is_of(hit, asked.corpus)
        ][: asked.limit]
        hits.sort(
            key=lambda hit: (not hearing.is_of_project(hit), hearing.private and not hearing.is_own(hit))
        )
        if not hits:
            return ToolAnswer(_NONE_FOUND, {"count": 0, "namespace": turn.namespace, "memories": []})
        shown = [self._shown(hit) | _voice(hit, turn) for hit in hits]
        lines = [
            f"{number}. {escape(shown_text(hit))} ({round(hit.relevance * 100)}% relevance{_STATES.get(hit.state, '')}{_origin(hit)}{_others(hit, hearing)})"
            for number, (hit, one) in enumerate(zip(hits, shown, strict=True), 1)
        ]
        details = {
            "count": len(hits),
            "namespace": turn.namespace,
            "degraded": answer.degraded,
            "memories": shown,
        }
        # The ids are part of the text, because other tools need them and hosts show a model the text only.
        ids = ", ".join(
            f"{number} = {one['id']} ({one['source'] or one['voice'] or _SAID_BY[hit.trust]}, {one['date']})"
            for number, (hit, one) in enumerate(zip(hits, shown, strict=True), 1)
        )
        return ToolAnswer("\n".join([f"Found {len(hits)} memories:", "", *lines, "", f"ids: {ids}"]), details)

    def _is_of(self, hit: RecallHit, corpus: str | None) -> bool:
        """Return whether a memory belongs to a corpus. What was captured belongs to ``memory`` and ``sessions``."""
        path = self._source(hit).rpartition("#")[0] or self._source(hit)
        match corpus:
            case "sessions":
                return not path or path.endswith(".jsonl")
            case "wiki":
                return path.startswith("wiki/")
            case "memory":
                return not path.endswith(".jsonl")
        return True

    async def _get(self, asked: GetArguments, turn: Turn) -> ToolAnswer:
        read = await asyncio.to_thread(self._read, asked, turn)
        if read is not None:
            return read
        memory = await self._find(asked.ref, turn)
        if memory is None:
            # The host's own tool returns the same for a file that does not exist (CP-48).
            return ToolAnswer("", {"text": "", "path": escape(asked.ref)})
        around = await self._around(memory, turn)
        newer = f" by {memory.superseded_by}" if memory.superseded_by else ""
        over = f"{_STATES[memory.state]}{newer}" if memory.state in _STATES else ""
        lines = [
            _with_age(memory, self._clock, turn.hearing, over),
            *(f"Around it: {_with_age(one, self._clock, turn.hearing)}" for one in around),
        ]
        if memory.source.session and turn.hearing.private:
            # The key of a session reveals who else talks with the agent, so it is not disclosed in a group.
            lines.append(f"Said in: {escape(memory.source.session)} at {told_at(memory).isoformat()}")
        last = None if asked.lines is None else asked.start - 1 + asked.lines
        text = "\n".join(lines[asked.start - 1 : last])
        details = {
            **self._shown(memory),
            **_voice(memory, turn),
            "text": text,
            "around": [self._shown(one) | _voice(one, turn) for one in around],
        }
        return ToolAnswer(text, details)

    def _read(self, asked: GetArguments, turn: Turn) -> ToolAnswer | None:
        if turn.host.files is None:
            return None
        path, _, anchor = asked.ref.strip().partition("#")
        text = turn.host.files.read(path, private=turn.hearing.private)
        if text is None:
            return None
        start = int(anchor) if asked.start == 1 and anchor.isascii() and anchor.isdigit() else asked.start
        whole = redact(text, self._settings.capture.redaction).text.split("\n")
        count = _FILE_LINES if asked.lines is None else min(asked.lines, _FILE_LINES)
        # A line that reads like an instruction to the model is replaced, so that the other lines keep their numbers.
        lines = [
            escape(line) if may_be_told(line) else _LEFT_OUT for line in whole[start - 1 : start - 1 + count]
        ]
        shown = "\n".join(lines)
        details: dict[str, Any] = {"text": shown, "path": escape(path), "from": start, "lines": len(lines)}
        if start - 1 + len(lines) < len(whole):
            details["nextFrom"] = start + len(lines)
        return ToolAnswer(shown, details)

    async def _store(self, asked: StoreArguments, turn: Turn) -> ToolAnswer:
        # The host has the model note a project behind what it keeps.
        said, notes = without_notes(asked.text)
        item = self._item(said, turn, _moment("occurredAt", asked.occurred_at))
        item = item.model_copy(update={"tags": asked.tags, "metadata": {**notes, **asked.metadata}})
        kept = None if turn.host.by_person else await self._analyzed(item, turn)
        if kept is not None:
            return self._with_left_out(kept, said, turn)
        request = RememberRequest(items=(item,), **_given(keep_secrets=_keeps_secrets(turn)))
        answer = await self._client.remember(turn.identity, request)
        outcome = answer.memories[0]
        if outcome.status == "refused":
            raise ToolError(f"rejected by the relayer: {outcome.code}")
        preview = escape(item.text)[:_PREVIEW]
        known = " (known already)" if outcome.status == "duplicate" else ""
        stored = ToolAnswer(
            f"Stored 1 fact(s): {preview}{known}", {"id": outcome.id, "status": outcome.status}
        )
        return self._with_left_out(stored, said, turn)

    def _with_left_out(self, stored: ToolAnswer, text: str, turn: Turn) -> ToolAnswer:
        """Return the result of storing a text, and which secrets were taken out of it."""
        kinds = () if _keeps_secrets(turn) else redact(strip(text), self._settings.capture.redaction).kinds
        if not kinds or not stored.details.get("id"):
            return stored
        names = " and the ".join(kind.replace("_", " ") for kind in kinds)
        them = "it" if len(kinds) == 1 else "them"
        keep = f" To keep {them}: /memory remember --with-secrets TEXT" if turn.host.by_person else ""
        return replace(stored, text=f"{stored.text}\nStored without the {names}.{keep}")

    async def _analyzed(self, item: MemoryItem, turn: Turn) -> ToolAnswer | None:
        """Store a note whole, and have the relayer's model extract its facts, if there is one.

        The relayer keeps no note that only asks or only exchanges courtesies.

        Returns:
            The result; None if the note is to be stored by another request, because the relayer does not support this one.

        Raises:
            ToolError: the relayer refused the note.
        """
        note = TurnItem(
            role="assistant",
            text=item.text,
            occurred_at=item.occurred_at,
            suspect=item.suspect,
            noted=True,
            whole=True,
            **_given(sender=item.source.sender),
        )
        request = AnalyzeRequest(
            turns=(note,),
            audience=item.audience,
            wait_ms=_WAIT_MS,
            tags=item.tags,
            metadata=item.metadata,
            **_given(place=item.source.place),
        )
        try:
            answer = await self._client.analyze(turn.identity, request, deadline=_DEADLINE)
        except RelayerRefused as error:
            if error.status in {400, 422}:
                return None
            raise
        if not answer.memories:
            return ToolAnswer("No memorable facts extracted from the input.", {"count": 0})
        first = answer.memories[0]
        if first.status == "refused":
            raise ToolError(f"rejected by the relayer: {first.code}")
        said = [
            (await self._client.get_memory(turn.identity, one)).memory.text for one in answer.facts[:_SHOWN]
        ]
        shown = "; ".join(escape(text)[:_PREVIEW] for text in said or [item.text])
        known = " (known already)" if first.status == "duplicate" and not said else ""
        ids = [one.id for one in answer.memories] + list(answer.facts)
        count = len(answer.facts) or 1
        return ToolAnswer(
            f"Stored {count} fact(s): {shown}{known}", {"id": first.id, "status": first.status, "ids": ids}
        )

    async def _update(self, asked: UpdateArguments, turn: Turn) -> ToolAnswer:
        old = await self._changeable(asked.ref, turn)
        text = asked.text if turn.host.by_person else _unescaped(asked.text, old.text)
        item = self._item(text, turn, None)
        # The new version stays where the old one was said, and belongs to the same person: the request names neither.
        request = SupersedeRequest(
            text=item.text,
            trust=item.trust,
            suspect=item.suspect,
            # If a model repeats the call because it got no answer, the key prevents a second version.
            idempotency_key=hashlib.sha256(f"{old.id}\n{item.text}".encode()).hexdigest(),
        )
        answer = await self._client.supersede(turn.identity, old.id, request)
        updated = ToolAnswer(
            f"Updated: {escape(item.text)[:_PREVIEW]}", {"id": answer.id, "replaces": old.id}
        )
        return self._with_left_out(updated, text, turn)

    async def _forget(self, asked: ForgetArguments, turn: Turn) -> ToolAnswer:
        memory = await self._changeable(asked.ref, turn)
        await self._client.forget(turn.identity, memory.id)
        return ToolAnswer(f"Forgotten: {memory.id}. The user can restore it.", {"id": memory.id})

    async def _transcript(self, asked: TranscriptArguments, turn: Turn) -> ToolAnswer:
        try:
            said = read_transcript(turn.host.transcripts, asked.path, anchor=asked.anchor, turns=asked.turns)
        except NoSuchLog as absent:
            said = await read_kept(self._client, asked, absent, turn)
        lines = []
        for line in said.split("\n"):
            # Only the label in front of a message is the plugin's own text; what follows must be escaped.
            label, is_message, text = line.partition("]: ") if line.startswith("[") else ("", "", line)
            lines.append(f"{label}{is_message}{escape(redact(text).text)}")
        with suppress(IdentityError):
            named = parse_session_key(asked.path)
            if TurnAudience.DIRECT not in {named.said_to, named.audience}:
                # The log of a group does not say which member spoke.
                lines = [re.sub(r"^\[User\]:", "[A member]:", line) for line in lines]
        return ToolAnswer("\n".join(lines))

    async def _list(self, asked: ListArguments, turn: Turn) -> ToolAnswer:
        told: list[Memory] = []
        cursor, size, total = asked.cursor, asked.limit, 0
        for _ in range(_MOST_PAGES):
            page = await self._client.list_memories(
                turn.identity, limit=size, cursor=cursor, where=asked.where, deadline=_DEADLINE
            )
            total = page.total
            told += [one for one in page.memories if may_be_shown(one, turn.hearing)]
            # The cursor of a page is the id of its last memory.
            cursor = told[asked.limit - 1].id if len(told) > asked.limit else page.next_cursor
            if cursor is None or len(told) >= asked.limit:
                break
            size = _PAGE
        told = told[: asked.limit]
        details = {
            # In other chats it would count what others said.
            **({"total": total} if turn.hearing.private else {}),
            "namespace": turn.namespace,
            "memories": [_shown_memory(one) | _voice(one, turn) for one in told],
            **_given(next_cursor=cursor),
        }
        lines = [f"{one.id} {_with_age(one, self._clock, turn.hearing)}" for one in told]
        more = f"(more with cursor {cursor})" if cursor else ""
        none = "" if lines else "No memories up to here." if more else "No memories."
        return ToolAnswer("\n".join(filter(None, [*lines, none, more])), details)

    async def _history(self, asked: HistoryArguments, turn: Turn) -> ToolAnswer:
        found = await self._find(asked.ref, turn)
        if found is None:
            raise ToolError("ref: no memory has this id; memory_search shows the ids")
        answer = await self._client.get_memory(turn.identity, found.id, deadline=_DEADLINE)
        versions = [one for one in answer.history if may_be_shown(one, turn.hearing)] or [answer.memory]
        lines = [f"{one.id} [{one.state}] {_with_age(one, self._clock, turn.hearing)}" for one in versions]
        return ToolAnswer(
            "\n".join(lines), {"memories": [_shown_memory(one) | _voice(one, turn) for one in versions]}
        )

    async def _profile(self, asked: ProfileArguments, turn: Turn) -> ToolAnswer:
        audiences = turn.hearing.lasting
        answer = await self._client.profile(
            turn.identity, max_tokens=asked.max_tokens, audiences=audiences, trusts=TRUSTED
        )
        told = harmless_profile(answer, audiences, TRUSTED)
        document = "\n".join(escape(line) for line in told.document.splitlines())
        return ToolAnswer(document, {"document": document, "shown": told.shown})

    async def _analyze(self, asked: AnalyzeArguments, turn: Turn) -> ToolAnswer:
        clean, suspect = self._clean(asked.text, least=1)
        # The text comes from the model and not from a person, even if it quotes one.
        said = TurnItem(
            role="assistant",
            text=clean,
            occurred_at=_moment("occurredAt", asked.occurred_at),
            suspect=suspect,
            noted=True,
            **_given(sender=_sender(turn)),
        )
        request = AnalyzeRequest(
            turns=(said,),
            audience=audience_name(turn.said_to),
            host=turn.host.host,
            wait_ms=_ANALYZE_WAIT_MS,
            **_given(place=turn.place),
            # If a model repeats the call because it got no answer, the key makes it the same request.
            idempotency_key=hashlib.sha256(f"analyze noted\n{turn.namespace}\n{clean}".encode()).hexdigest(),
        )
        answer = await self._client.analyze(turn.identity, request, deadline=_ANALYZE_DEADLINE)
        kept = [one for one in answer.memories if one.status != "refused"]
        ids = list(dict.fromkeys([*(one.id for one in kept), *answer.facts]))
        pending = f" A language model goes on reading: job {answer.job_id}." if answer.job_id else ""
        refused = [one.code or one.status for one in answer.memories if one.status == "refused"]
        reasons = (one.reason for one in answer.verdicts if not one.kept and one.reason != "refused")
        left_out = list(dict.fromkeys([*refused, *reasons]))
        shown = f" ids: {', '.join(ids)}" if ids else ""
        if not ids and left_out:
            shown = f" Left out: {escape(', '.join(left_out))}."
        return ToolAnswer(
            f"Kept {len(ids)} {'memory' if len(ids) == 1 else 'memories'}.{shown}{pending}",
            {
                "state": answer.state,
                "ids": ids,
                "refused": len(refused),
                "left_out": left_out,
                **_given(job_id=answer.job_id),
            },
        )

    async def _job(self, asked: JobArguments, turn: Turn) -> ToolAnswer:
        try:
            job = await self._client.job(turn.identity, asked.job_id, deadline=_DEADLINE)
        except RelayerRefused as error:
            if error.status not in {400, 404, 422}:
                raise
            # A memory that a call stored directly has no job: it was complete when the call ended.
            memory = await self._find(asked.job_id, turn)
            if memory is None:
                raise ToolError("job_id: no job and no memory has this id") from error
            return ToolAnswer(f"done: {memory.id}", {"state": "done", "ids": [memory.id]})
        why = f" ({escape(job.reason)})" if job.reason else ""
        ids = f": {', '.join(job.memories)}" if job.memories else ""
        return ToolAnswer(f"{job.state}{why}{ids}", {"state": job.state, "ids": list(job.memories)})

    async def _status(self, _asked: StatusArguments, turn: Turn) -> ToolAnswer:
        version = await self._client.version(deadline=_DEADLINE)
        details: dict[str, Any] = {
            "relayer": self._client.endpoint.origin,
            "version": version.version,
            "account": turn.identity.account,
            "agent": typed(turn.identity.agent),
            "namespace": turn.namespace,
        }
        if turn.hearing.private:
            held = await self._client.list_memories(turn.identity, limit=1, deadline=_DEADLINE)
            details["memories"] = held.total
        return ToolAnswer("\n".join(f"{name}: {value}" for name, value in details.items()), details)

    def _shown(self, memory: Memory) -> dict[str, Any]:
        return _shown_memory(memory, self._source(memory))

    def _source(self, memory: Memory) -> str:
        """Return the file and line that a memory comes from; "" if it was said in a conversation."""
        return escape(one_line(self._cited.get(memory.id) or memory.source.reference))

    def _item(self, text: str, turn: Turn, at: int | None) -> MemoryItem:
        clean, suspect = self._clean(text, least=3, secrets=_keeps_secrets(turn))
        return MemoryItem(
            text=clean,
            audience=audience_name(turn.said_to),
            # A text that the model passes comes from the model, whatever a person said before.
            trust="user" if turn.host.by_person else "assistant",
            suspect=suspect,
            occurred_at=at,
            source=SourceInfo(
                role="user" if turn.host.by_person else "assistant", place=turn.place, sender=_sender(turn)
            ),
        )

    def _clean(self, text: str, *, least: int, secrets: bool = False) -> tuple[str, bool]:
        """Return a text without wrappers and, unless ``secrets`` are kept, without secrets, and whether it is suspect.

        Raises:
            ToolError: the text contains what may not be stored, or has fewer than ``least`` characters.
        """
        clean = redact(strip(text), self._settings.capture.redaction)
        kept = strip(text) if secrets else clean.text
        verdict = scan(kept)
        if clean.blocked:
            raise ToolError(f"text: contains secrets that must not be stored ({', '.join(clean.blocked)})")
        if verdict.blocked:
            raise ToolError("Cannot store text containing disallowed patterns.")
        if len(kept.strip()) < least:
            raise ToolError("text: empty after cleaning")
        return kept, verdict.suspect

    async def _find(self, ref: str, turn: Turn) -> Memory | None:
        named = ref.strip().partition("#")[0].removeprefix("memory/").removesuffix(".md")
        try:
            memory = (await self._client.get_memory(turn.identity, named)).memory
        except RelayerRefused as error:
            if error.status in {400, 404, 422}:
                return None
            raise
        return memory if memory.state != "forgotten" and may_be_shown(memory, turn.hearing) else None

    async def _changeable(self, ref: str, turn: Turn) -> Memory:
        """Return the memory with an id, to correct or forget it.

        Raises:
            ToolError: there is none, or it belongs to someone else than the person who speaks.
        """
        memory = await self._find(ref, turn)
        if memory is None:
            raise ToolError("ref: no memory has this id; memory_search shows the ids")
        hearing = turn.hearing
        own = hearing.own if turn.person in hearing.own else {turn.person or NOBODY_KNOWN}
        # Of direct chats, only the memories of the same one may be shown.
        is_theirs = memory.audience == Audience.DIRECT or (
            memory.audience == Audience.GROUP and memory.source.sender in own
        )
        # In a private chat the owner speaks, who alone may change each.
        if not hearing.private and not is_theirs:
            raise ToolError(
                "ref: here only the person who said a memory may change it; the owner may change each in a direct chat"
            )
        return memory

    async def _around(self, memory: Memory, turn: Turn) -> list[Memory]:
        """Return up to four memories that were said close to a memory, oldest first.

        They are among the newest 100 memories: the one that it refers to, those that refer to it, and those of its session.
        """
        page = await self._client.list_memories(turn.identity, limit=_PAGE)
        near = [
            one
            for one in page.memories
            if one.id != memory.id
            and may_be_shown(one, turn.hearing)
            and (
                memory.id == one.context_of
                or one.id == memory.context_of
                or (memory.source.session and one.source.session == memory.source.session)
            )
        ]
        near.sort(key=lambda one: abs(one.created_at - memory.created_at))
        return sorted(near[:_NEIGHBOURS], key=lambda one: (one.created_at, one.id))

    _WORK: ClassVar[Mapping[type, Callable[[Toolbox, Any, Turn], Awaitable[ToolAnswer]]]] = {
        SearchArguments: _search,
        GetArguments: _get,
        StoreArguments: _store,
        UpdateArguments: _update,
        ForgetArguments: _forget,
        TranscriptArguments: _transcript,
        ListArguments: _list,
        HistoryArguments: _history,
        ProfileArguments: _profile,
        AnalyzeArguments: _analyze,
        JobArguments: _job,
        StatusArguments: _status,
    }


def _keeps_secrets(turn: Turn) -> bool:
    """Return whether a text is stored with its secrets: the owner asked for it by a command. A model cannot."""
    return turn.host.by_person and turn.host.keeps_secrets


def _sender(turn: Turn) -> str:
    """Return the id of the person to whom the model speaks in a group; "" outside of groups."""
    return (turn.person or NOBODY_KNOWN) if audience_name(turn.said_to) == "group" else ""


def _given(**fields: object) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _voice(memory: Memory, turn: Turn) -> dict[str, str]:
    return {"voice": escape(label_of(memory, turn.hearing))}


def _others(memory: Memory, hearing: Hearing) -> str:
    """Return a label that says whose words a memory is; "" if they are the user's own."""
    foreign = isinstance(memory, SharedHit) and memory.is_foreign
    return "" if hearing.is_own(memory) and not foreign else f", {escape(label_of(memory, hearing))}"


def _origin(hit: RecallHit) -> str:
    return f", shared from {hit.shared_from}" if isinstance(hit, SharedHit) else ""


def _granted(identity: Identity, namespace: str | None) -> Identity:
    """Return the identity for a call: the agent's namespace, or one below it that the model names (X13).

    Raises:
        ToolError: the name is invalid, or the namespace is not the agent's.
    """
    given = (namespace or "").strip()
    below = given.removeprefix("./")
    if not below:
        return identity
    try:
        wanted = "/".join(names.as_shown(part) for part in below.split("/"))
    except InvalidName:
        raise ToolError("namespace: not a valid name; omit it") from None
    if given.startswith("./"):
        return replace(identity, namespace=f"{identity.namespace}/{wanted}")
    if wanted in {identity.namespace, identity.agent}:
        return identity
    if not wanted.startswith(f"{identity.namespace}/"):
        raise ToolError("namespace: belongs to another agent; omit it")
    return replace(identity, namespace=wanted)


def _shown_memory(memory: Memory, source: str = "") -> dict[str, Any]:
    """Return a memory as a dictionary for programs, also under the keys of the memory systems that memrelay replaces."""
    text = escape(memory.text)
    path, _, anchor = source.rpartition("#")
    shown = {
        "id": memory.id,
        "blob_id": memory.id,
        "chunk_hash": memory.id,
        "text": text,
        "content": text,
        "path": path or source or f"memory/{memory.id}.md",
        "source": source,
        "line": int(anchor) if path and anchor.isascii() and anchor.isdigit() else 1,
        "date": told_at(memory).astimezone().date().isoformat(),
        "kind": memory.kind.value,
        "said_by": memory.trust.value,
        "state": memory.state.value,
    }
    if isinstance(memory, SharedHit):
        shown["shared_from"] = memory.shared_from
    if isinstance(memory, RecallHit):
        shown |= {"relevance": memory.relevance, "score": memory.relevance}
    return shown


# An entity of `escape`, also if the text that it escaped had an entity there.
_ENTITY: Final = re.compile(r"&(?:amp;)*(?:amp|lt|gt|#\d{1,7});")


def _unescaped(text: str, quoted: str) -> str:
    """Return the new text of a memory without the entities with which the tools have shown its old text, ``quoted``.

    A text that has been read through a tool comes back with them. Entities that are part of the old text itself stay.

    Example:
        >>> _unescaped("Müller &amp; Partner GmbH", "Müller & Partner"), _unescaped("&nbsp; and &lt;", "&nbsp;")
        ('Müller & Partner GmbH', '&nbsp; and &lt;')
    """
    shown = {*_ENTITY.findall(escape(quoted))} - {*_ENTITY.findall(quoted)}
    return _ENTITY.sub(lambda found: html.unescape(found[0]) if found[0] in shown else found[0], text)


def _with_age(memory: Memory, clock: Clock, hearing: Hearing, over: str = "") -> str:
    now = datetime.fromtimestamp(clock.now(), UTC).astimezone()
    return (
        f"({age_in_words(told_at(memory), now)}{over}{_others(memory, hearing)}) {escape(shown_text(memory))}"
    )


def _moment(field: str, value: str | int | None) -> int | None:
    """Return a time argument in ms since the epoch; raises `ToolError` naming ``field`` if it is invalid."""
    if value is None or isinstance(value, int):
        return value
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        raise ToolError(f"{field}: not an ISO 8601 time") from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
