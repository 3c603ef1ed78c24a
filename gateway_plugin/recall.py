"""Before a turn: from a prompt to the block that goes into it, under one deadline, with a reason for every outcome."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from cachetools import LRUCache

from gateway_plugin.active import ActiveRecaller, ActiveTraces, Reminder
from gateway_plugin.client import RecallCache, RelayerClient
from gateway_plugin.clock import Clock
from gateway_plugin.consolidation import RecallCounts
from gateway_plugin.errors import GatewayError, IdentityError, RelayerRefused
from gateway_plugin.formatting import (
    TRUSTED,
    ColdStart,
    Selected,
    Shown,
    StandingBlock,
    estimate_tokens,
    format_days,
    namespace_instruction,
    select,
    standing_block,
)
from gateway_plugin.host_model import LentModel
from gateway_plugin.identity import Audience, Identity, parse_session_key
from gateway_plugin.outbox.sender import Positions, Sender
from gateway_plugin.people import Hearing
from gateway_plugin.query import ChatMessage, Role, build_query, clean_query, spoken_in_group
from gateway_plugin.sessions import MAX_SESSIONS, LastTurn, Session, Sessions, Turns, Watchdog
from gateway_plugin.settings import PluginSettings, RecallSettings
from gateway_plugin.sharing import Shares, recall_shared
from gateway_plugin.status import Injection, NotifyOnce, TurnTrace, defect, notify
from gateway_plugin.text.wrappers import split_senders
from gateway_plugin.turn import HostTurn, Purpose, Turn
from relayer.wire.fields import clip, one_line
from relayer.wire.redaction import redact
from relayer.wire.schemas import RecallRequest, RecallResponse, SourcePenalty

# No provider keeps a prompt in its cache for longer when it is not used: what lives on for days is made anew.
_LIVES_SECONDS: Final = 3600.0
_FETCH_SECONDS: Final = 10.0
# A relayer that could not tell is asked again after so long.
_PAUSE_SECONDS: Final = 60.0


@dataclass(slots=True)
class _KeptBlock:
    """The block of one session as it was fetched, what is under way, and when a turn last had it."""

    block: StandingBlock | None = None
    fetching: asyncio.Task[None] | None = None
    used_at: float = 0.0
    failed_at: float | None = None


class StandingBlocks:
    """The blocks of one plugin's sessions: what could harm the person, how to answer them, who they are.

    One is fetched beside the first recall of a session, or before, when the host says that a session is near; a turn that cannot
    have it in time does without, and the next has it. Its bytes stay the same while the session lives, whatever is remembered
    meanwhile, so that what a provider caches stays good; only what was erased leaves it at once. A group never has one: these are
    one person's things.
    """

    def __init__(self, client: RelayerClient, settings: RecallSettings, clock: Clock) -> None:
        self._client = client
        self._settings = settings.standing
        # A turn has one budget; what was asked for has at least half of it.
        self._max_tokens = min(settings.standing.max_tokens, settings.max_tokens // 2)
        self._clock = clock
        self._known: LRUCache[tuple[str, str], _KeptBlock] = LRUCache(MAX_SESSIONS)

    def begin(self, turn: Turn) -> None:
        """Fetch the block of a turn's session, unless it is there or none is to be."""
        if not self._wanted(turn):
            return
        kept, now = self._of(turn), self._clock.monotonic()
        if now - kept.used_at > _LIVES_SECONDS:
            kept.block = None
        kept.used_at = now
        pausing = kept.failed_at is not None and now - kept.failed_at < _PAUSE_SECONDS
        if kept.block is None and kept.fetching is None and not pausing:
            kept.fetching = asyncio.create_task(self._fetch(turn, kept))

    async def wait(self, turn: Turn, seconds: float) -> StandingBlock:
        """Return the block of a turn's session, waiting so long for one that is under way."""
        fetching = self._of(turn).fetching
        if fetching is not None:
            await asyncio.wait({fetching}, timeout=max(seconds, 0.0))
        return self.now(turn)

    def now(self, turn: Turn) -> StandingBlock:
        """Return the block of a turn's session as it is; an empty one where there is none, or none is to be."""
        return (self._of(turn).block if self._wanted(turn) else None) or StandingBlock()

    def erased(self, turn: Turn, gone: Collection[str]) -> None:
        """Take out of the block what is not there any more."""
        kept = self._of(turn)
        if gone and kept.block is not None:
            kept.block = kept.block.without(gone)

    def forget(self, turn: Turn) -> None:
        """Have the next turn fetch it anew: the session ended."""
        self._of(turn).block = None

    async def aclose(self) -> None:
        """Give up what is under way."""
        tasks = [kept.fetching for kept in self._known.values() if kept.fetching is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _wanted(self, turn: Turn) -> bool:
        person = turn.host.interactive and turn.heard_by in {None, Audience.DIRECT}
        return self._settings.enabled and person

    def _of(self, turn: Turn) -> _KeptBlock:
        return self._known.setdefault((turn.namespace, turn.session.key), _KeptBlock())

    async def _fetch(self, turn: Turn, kept: _KeptBlock) -> None:
        try:
            answer = await self._client.standing(
                turn.identity, audiences=turn.hearing.standing, deadline=_FETCH_SECONDS
            )
            block = standing_block(answer.lines, self._max_tokens, turn.hearing.standing)
            kept.block, kept.failed_at = block, None
        except GatewayError:
            # The turn is answered without the block, with the memories that it recalls.
            kept.failed_at = self._clock.monotonic()
        finally:
            kept.fetching = None


# What the turn before wrote should be found, but waiting for it must leave time to search.
_SHARE_FOR_OWN_WRITES: Final = 0.75
_SPARE: Final = 4
# After these, the relayer is known to be there.
_ANSWERED: Final = frozenset({"ok", "empty"})
_LEAST_SECONDS: Final = 0.001
# Of a turn's time, what waiting for the standing block leaves.
_SPARE_SECONDS: Final = 0.05


def turn_request(
    recall: RecallSettings, query: str, hearing: Hearing, standing: tuple[str, ...] = ()
) -> RecallRequest:
    """Return the request that recalls for one turn.

    Args:
        recall: the gateway's settings.
        query: the text to search for.
        hearing: whose memories may be told in the turn.
        standing: ids of the memories in the session's standing block.
    """
    # Filters of our own may drop some: ask for a few more than are wanted.
    return RecallRequest(
        query=query,
        limit=min(recall.max_results + _SPARE + len(standing), 100),
        floor=recall.min_score,
        audiences=hearing.audiences,
        trusts=TRUSTED,
        **ranking(recall),
        # What was not set is left out: a relayer that does not know it answers all the same.
        **({"standing": standing} if standing else {}),
        **({"named": hearing.named} if hearing.named else {}),
    )


class Recaller:
    """Recalls for the turns of one plugin; `trace` tells about the last one."""

    def __init__(
        self,
        client: RelayerClient,
        sender: Sender,
        settings: PluginSettings,
        clock: Clock,
        positions: Positions,
        *,
        traces: ActiveTraces | None = None,
        lent: LentModel | None = None,
        shares: Shares | None = None,
    ) -> None:
        self._shares = shares
        self.cache: RecallCache[RecallRequest, RecallResponse] = RecallCache(clock)
        client.watch_writes(self.cache.drop)
        self._active = ActiveRecaller(client, settings, clock, traces=traces, lent=lent)
        self.recalls = 0
        self.standing = StandingBlocks(client, settings.recall, clock)
        self._client = client
        self._sender = sender
        self._settings = settings
        self._clock = clock
        self._positions = positions

    async def recall(
        self, turn: Turn, earlier: Sequence[ChatMessage], session: Session, seconds: float
    ) -> tuple[Injection, TurnTrace]:
        """Recall for a turn that the gates let through, and tell a session that begins what was said lately (MS-01).

        All of it together is within ``recall.max_tokens``, and no memory is in it twice.

        Args:
            turn: whose it is, and what it asks.
            earlier: the conversation before it.
            session: the chat session.
            seconds: the deadline for all of it.
        """
        start = self._clock.monotonic()
        end = start + seconds
        self.standing.begin(turn)
        injection, trace = await self._recalled(turn, earlier, session, seconds)
        if injection.status not in _ANSWERED:
            return self.with_standing(turn, session, injection), trace
        return await self._begun(turn, session, (injection, trace), (start, end))

    async def greeted(
        self, turn: Turn, session: Session, stopped: tuple[Injection, TurnTrace], seconds: float
    ) -> tuple[Injection, TurnTrace]:
        """Tell a session that begins what was said lately, where its message asks for nothing: "hi" begins one, too.

        Args:
            turn: whose it is.
            session: the chat session.
            stopped: what a gate made of the message.
            seconds: the deadline for all of it.
        """
        start = self._clock.monotonic()
        self.standing.begin(turn)
        await self.standing.wait(turn, seconds - _SPARE_SECONDS)
        injection, trace = stopped
        with_standing = self.with_standing(turn, session, injection)
        return await self._begun(turn, session, (with_standing, trace), (start, start + seconds))

    def with_standing(self, turn: Turn, session: Session, injection: Injection) -> Injection:
        """Add what the session's prompts begin with; a message that asks for nothing does not change that."""
        standing = self.standing.now(turn)
        session.echoes.injected(line.text for line in standing.lines)
        return replace(injection, standing=standing.text, always=standing.lines)

    async def _begun(
        self,
        turn: Turn,
        session: Session,
        outcome: tuple[Injection, TurnTrace],
        times: tuple[float, float],
    ) -> tuple[Injection, TurnTrace]:
        """Put what was said lately before what a turn is given, if its session has not been told yet."""
        (injection, trace), (start, end) = outcome, times
        if not session.begins or not self._settings.recall.cold_start.enabled:
            return outcome
        try:
            begun = await self._said_lately(turn, Shown.of(injection), end - self._clock.monotonic())
        except RelayerRefused:
            # A relayer that does not know it, or has nothing: asking again would change nothing.
            session.begins = False
            return outcome
        except GatewayError:
            # The turn has its memories; what was said lately is only a beginning, and the next turn asks for it again.
            return outcome
        session.begins = False
        session.echoes.injected(begun.said)
        text = "\n\n".join(filter(None, (begun.text, injection.text)))
        milliseconds = round((self._clock.monotonic() - start) * 1000)
        begun_with = replace(injection, text=text, milliseconds=milliseconds)
        return begun_with, replace(trace, cold_start=len(begun.said), milliseconds=milliseconds)

    async def _said_lately(self, turn: Turn, shown: Shown, seconds: float) -> ColdStart:
        recall = self._settings.recall
        offset = datetime.fromtimestamp(self._clock.now(), UTC).astimezone().utcoffset()
        answer = await self._client.context(
            turn.identity,
            days=recall.cold_start.days,
            items=recall.cold_start.lines,
            offset_minutes=0 if offset is None else int(offset.total_seconds() // 60),
            audiences=turn.hearing.lasting,
            trusts=TRUSTED,
            deadline=max(seconds, _LEAST_SECONDS),
        )
        return format_days(answer, recall, turn.hearing, shown)

    async def _recalled(
        self, turn: Turn, earlier: Sequence[ChatMessage], session: Session, seconds: float
    ) -> tuple[Injection, TurnTrace]:
        start = self._clock.monotonic()
        identity, active = turn.identity, turn.active
        query = build_query(turn.query, earlier, self._settings)
        # A question may hold a secret as well as an answer, and finds nothing by it.
        query = replace(query, search=redact(query.search, self._settings.capture.redaction).text)
        trace = TurnTrace(
            "", agent=identity.agent, namespace=identity.namespace, query_chars=len(query.search)
        )
        end = start + seconds
        # The hits have direct mode's time, so that the model has the rest; and the grace before it, if it is asked.
        limits = self._settings.active
        grace = limits.setup_grace_timeout_ms / 1000 if active is not None and active.allowed else 0.0
        soon = min(end, start + self._settings.recall.deadline_ms / 1000 + grace) if active else end
        try:
            request = turn_request(
                self._settings.recall, query.search, turn.hearing, self.standing.now(turn).ids
            )
            answer, cached = await self._find(request, identity, soon)
        except GatewayError as error:
            injection = self._injection(error.outcome, start, detail=str(error))
            return injection, replace(
                trace, status=injection.status, detail=injection.detail, milliseconds=injection.milliseconds
            )
        if active is not None and not active.allowed:
            trace = replace(trace, active=f"skipped:{active.gate}", detail=active.reason)
        elif active is not None:
            reminder = await self._active.remind(
                turn, query, answer, min(end - self._clock.monotonic(), limits.timeout_ms / 1000)
            )
            trace = replace(trace, active=reminder.outcome, detail=reminder.detail)
            if reminder.decided:
                return self._reminded(turn, reminder, replace(trace, cached=cached), session, start)
        self.standing.erased(turn, answer.gone)
        standing = await self.standing.wait(turn, end - self._clock.monotonic() - _SPARE_SECONDS)
        now = datetime.fromtimestamp(self._clock.now(), UTC).astimezone()
        budget = self._settings.recall.max_tokens - estimate_tokens(standing.text)
        selected = select(
            answer.memories,
            settings=self._settings.recall.model_copy(update={"max_tokens": max(budget, 1)}),
            hearing=turn.hearing,
            query=turn.query,
            session=session,
            now=now,
            standing=standing.lines,
        )
        injection = self._injection(
            "ok" if selected.text else "empty", start, selected, answer, detail=trace.detail
        )
        session.echoes.injected(line.text for line in standing.lines)
        injection = replace(injection, standing=standing.text, always=standing.lines)
        return injection, replace(
            trace,
            status=injection.status,
            cached=cached,
            hits=selected.traces,
            milliseconds=injection.milliseconds,
        )

    def _reminded(
        self, turn: Turn, reminder: Reminder, trace: TurnTrace, session: Session, start: float
    ) -> tuple[Injection, TurnTrace]:
        """Return active mode's outcome."""
        session.echoes.injected([reminder.said] if reminder.said else [])
        injection = replace(
            self._injection(reminder.outcome, start, detail=reminder.detail),
            text=reminder.text,
            position=self._settings.summary_position,
            summary=reminder.said,
            active=self._settings.active.query_mode.value,
        )
        return self.with_standing(turn, session, injection), replace(
            trace, status=injection.status, milliseconds=injection.milliseconds
        )

    def gated(self, turn: Turn) -> tuple[Injection, TurnTrace] | None:
        """Return the outcome of a turn that a gate objects to, or None."""
        decision = turn.decision
        if decision.allowed:
            return None
        status = f"skipped:{decision.gate}"
        injection = Injection("", self._settings.recall.position, status, detail=decision.reason)
        return injection, TurnTrace(status, decision.reason, gates=turn.gates)

    async def _find(
        self, request: RecallRequest, identity: Identity, end: float
    ) -> tuple[RecallResponse, bool]:
        left = end - self._clock.monotonic()
        await self._sender.settled(identity.namespace, left * _SHARE_FOR_OWN_WRITES)
        shared = self._shares.beside(identity) if self._shares is not None else ()
        # Of what others write, and of a share that ends, a cache hears nothing.
        known = None if shared else self.cache.get(identity.namespace, request)
        if known is not None:
            return known, True
        self.recalls += 1
        since = self.cache.writes
        own = self._ask(request, identity, end)
        seconds = end - self._clock.monotonic()
        answer = await recall_shared(self._client, own, shared, request, seconds=seconds)
        if not answer.degraded and not shared:
            self.cache.put(identity.namespace, request, answer, since=since)
        return answer, False

    async def _ask(self, request: RecallRequest, identity: Identity, end: float) -> RecallResponse:
        """Ask with the newest position that was seen, so that a log that was set back does not answer."""
        owner = identity.ref
        seen = self._positions.of(owner)
        asked = request if seen is None else request.model_copy(update={"min_position": seen})
        try:
            answer = await self._client.recall(identity, asked, deadline=end - self._clock.monotonic())
        except RelayerRefused as error:
            if error.code != "position_unknown":
                raise
            # So much was written since that the relayer cannot compare any more: what is current is taken.
            self._positions.replace(owner, None)
            answer = await self._client.recall(identity, request, deadline=end - self._clock.monotonic())
        if answer.position is not None:
            self._positions.saw(owner, answer.position)
        elif seen is not None:
            raise RelayerRefused("rollback_detected", "the namespace does not exist any more", status=409)
        if self._positions.changed:
            self._sender.wake()
        return answer

    def _injection(
        self,
        status: str,
        start: float,
        selected: Selected | None = None,
        answer: RecallResponse | None = None,
        *,
        detail: str = "",
    ) -> Injection:
        return Injection(
            text=selected.text if selected else "",
            position=self._settings.recall.position,
            status=status,
            hits=selected.hits if selected else (),
            detail=detail,
            degraded=answer.degraded if answer else False,
            milliseconds=round((self._clock.monotonic() - start) * 1000),
        )


def ranking(settings: RecallSettings) -> dict[str, Any]:
    """Return what a request says of the order of its hits: what was not set is the relayer's to decide."""
    said: dict[str, Any] = {}
    if settings.source_penalties is not None:
        said["penalties"] = tuple(
            SourcePenalty(match=one.match, penalty=one.penalty) for one in settings.source_penalties
        )
    if settings.half_life_days is not None:
        said["half_life_days"] = settings.half_life_days
    if settings.diversity:
        said["diversity"] = settings.diversity
    return said


# Gates that object to what was said, not to the session.
_OF_THE_MESSAGE: Final = frozenset({"slash_command", "control_text", "min_length", "skip_pattern"})
# With these a person may well begin a conversation; the others are for the host.
_GREETINGS: Final = frozenset({"min_length", "skip_pattern"})
# Not what a person switched off, said to the host, or had nothing to do with.
_WONDERED_ABOUT: Final = frozenset({"agents", "session_pattern", "chat_type", "min_length", "skip_pattern"})
_ROLLED_BACK: Final = (
    "memories that this gateway has seen are gone from the store. Nothing is recalled until the store is put right, or a "
    "person accepts it as it is: memrelay-gateway acknowledge"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecall:
    """Recalls for the turns of one plugin; `last` tells of the latest.

    Attributes:
        recaller: searches.
        turns: makes them.
        sessions: what was injected before.
        settings: all of them.
        logged: whether each recall is told of.
        last: keeps the trace.
        counts: told what turns are given; None where nobody promotes memories by it.
        watchdog: counts the turns that recalled.
        notify_once: told what a person must put right.
    """

    recaller: Recaller
    turns: Turns
    sessions: Sessions
    settings: PluginSettings
    logged: bool
    last: LastTurn
    counts: RecallCounts | None
    watchdog: Watchdog
    notify_once: NotifyOnce

    async def recall(
        self,
        prompt: str,
        earlier: tuple[ChatMessage, ...],
        *,
        key: str | None,
        host: HostTurn,
        seconds: float,
    ) -> Injection:
        """Recall for a turn; whatever goes wrong is a status.

        Args:
            prompt: the user's message as the host has it, as text that can be sent.
            earlier: the conversation so far, with the message or without.
            key: the host's session key; None outside any chat session.
            host: what else the host knows.
            seconds: the deadline for all of it.
        """
        turn: Turn | None = None
        try:
            query = clean_query(prompt)
            session = parse_session_key(key or "")
            if host.among_several(session):
                query = split_senders(query)[-1][2]
                earlier = spoken_in_group(earlier)
            turn = self.turns.of(session, host, query, Purpose.RECALL)
            injection, trace = await self._recall(turn, _before(prompt, earlier), seconds)
        except GatewayError as error:
            injection, trace = self._silent(error.outcome, str(error))
        except Exception as error:  # noqa: BLE001 - a defect of ours must not cost the user an answer
            injection, trace = self._silent("failed", defect(error))
        self.last.saw(turn.namespace if turn else "", key or "", trace)
        if self.logged:
            notify(recall_line(injection, trace, turn.query if turn else "", self.settings))
        return injection

    async def _recall(
        self, turn: Turn, earlier: tuple[ChatMessage, ...], seconds: float
    ) -> tuple[Injection, TurnTrace]:
        objection = self.recaller.gated(turn)
        if objection is not None:
            return await self._stopped(turn, objection, seconds)
        identity = turn.identity
        self.watchdog.recalled(f"{identity.namespace} {turn.session.key}" if turn.session.key else "")
        session = self._session(turn)
        try:
            injection, trace = await self.recaller.recall(turn, earlier, session, seconds)
        except Exception as error:  # noqa: BLE001 - as in `recall`; whose turn it is stays known
            injection, trace = self._silent("failed", defect(error))
            injection = self.recaller.with_standing(turn, session, injection)
        if self.settings.recall.namespace_instruction:
            injection = replace(injection, instruction=namespace_instruction(identity.namespace))
        if injection.status == "refused:rollback_detected":
            self.notify_once(f"agent {identity.agent}: {injection.detail}; {_ROLLED_BACK}")
        trace = replace(trace, gates=turn.gates)
        self.last.note(identity.ref, trace)
        if self.counts is not None:
            self.counts.saw(identity.ref, injection.hits, turn.query)
        return injection, trace

    async def _stopped(
        self, turn: Turn, outcome: tuple[Injection, TurnTrace], seconds: float
    ) -> tuple[Injection, TurnTrace]:
        """Return what a turn is given that a gate stopped: where only its message is objected to, what the session begins with."""
        self._note_stopped(turn, outcome[1])
        gate = turn.decision.gate
        if isinstance(turn.whose, IdentityError) or gate not in _OF_THE_MESSAGE:
            return outcome
        session = self._session(turn)
        if session.begins and gate in _GREETINGS and turn.query:
            return await self.recaller.greeted(turn, session, outcome, seconds)
        return self.recaller.with_standing(turn, session, outcome[0]), outcome[1]

    def _session(self, turn: Turn) -> Session:
        session = self.sessions.of(turn.identity.namespace, turn.session.key)
        session.begins = session.begins or turn.host.first_turn
        return session

    def _note_stopped(self, turn: Turn, trace: TurnTrace) -> None:
        """Note a turn in which a person asked something and a setting kept memory out: that is what they will wonder about."""
        if trace.status.removeprefix("skipped:") in _WONDERED_ABOUT:
            with contextlib.suppress(GatewayError):
                self.last.note(turn.identity.ref, trace)

    def _silent(self, status: str, detail: str) -> tuple[Injection, TurnTrace]:
        injection = Injection("", self.settings.recall.position, status, detail=detail)
        return injection, TurnTrace(status, detail)


def _before(prompt: str, messages: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...]:
    """Drop the latest message from the history where the host put it there too."""
    if messages and messages[-1].role is Role.USER and messages[-1].text == prompt:
        return messages[:-1]
    return messages


_QUERY_CHARS: Final = 80


def recall_line(injection: Injection, trace: TurnTrace, query: str, settings: PluginSettings) -> str:
    """Return the line (CP-29).

    Args:
        injection: what the turn was given.
        trace: why.
        query: what the user wrote, cleaned; shown, cut and without secrets, only where ``recall.logQueries`` asks for it.
        settings: whether it does.
    """
    spent = f"{injection.milliseconds}ms"
    about = f"query of {trace.query_chars} characters"
    if settings.recall.log_queries:
        shown = redact(one_line(query), settings.capture.redaction).text
        about = f"query: {clip(shown, _QUERY_CHARS)}"
    gate = injection.status.removeprefix("skipped:")
    if gate != injection.status:
        said = f"recall skipped ({injection.detail or gate})"
    elif injection.hits:
        named = ", ".join(f"memory/{hit.id}.md({round(hit.relevance * 100)}%)" for hit in injection.hits)
        said = f"injecting {len(injection.hits)} memories into context ({spent}) [{named}]"
    elif injection.summary:
        said = f"injecting a summary of {len(injection.summary)} characters into context ({spent})"
    elif injection.status == "empty":
        said = f"recall returned 0 results ({spent}, {about})"
    else:
        said = f"recall {injection.status} ({spent}){f': {injection.detail}' if injection.detail else ''}"
    return f"memrelay: {said}"
