"""Recall before a turn: from the user's prompt to the block of memories that is put into it, under one deadline.

`Recaller` creates the turn, asks the gates, searches, through a cache, in the agent's own and its shared namespaces, asks
active mode's model if the settings want that, and selects the memories that fit the token budget. Every failure becomes a
status. `StandingBlocks` fetches the block that is in every prompt of a session. Every outcome is explained by a
`gateway_plugin.turn.status.TurnTrace`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from cachetools import LRUCache

from gateway_plugin.calls.clock import Clock
from gateway_plugin.client import RecallCache, RelayerClient
from gateway_plugin.errors import GatewayError, IdentityError, RelayerRefused
from gateway_plugin.host_model import LentModel
from gateway_plugin.keys.identity import Identity, TurnAudience, parse_session_key
from gateway_plugin.outbox.sender import Positions, Sender
from gateway_plugin.recall.active import ActiveRecaller, ActiveTraces, Reminder
from gateway_plugin.recall.consolidation import RecallCounts
from gateway_plugin.recall.formatting import (
    TRUSTED,
    Selected,
    ShownMemories,
    StandingBlock,
    estimate_tokens,
    format_days,
    namespace_instruction,
    select,
    standing_block,
)
from gateway_plugin.recall.sharing import MergedResponse, Shares, recall_shared
from gateway_plugin.sessions import MAX_SESSIONS, LastTurn, Session, SessionBook, Watchdog
from gateway_plugin.settings.model import PluginSettings, RecallSettings
from gateway_plugin.text.wrappers import split_senders
from gateway_plugin.turn.gates import Hearing, HostTurn, Purpose, Turn
from gateway_plugin.turn.query import ChatMessage, build_query, clean_query, spoken_in_group
from gateway_plugin.turn.status import HitTrace, Injection, NotifyOnce, TurnTrace, defect, notify
from relayer.wire.fields import Role, clip, one_line
from relayer.wire.redaction import redact
from relayer.wire.schemas import RecallRequest, RecallResponse, SourcePenalty

# Seconds after its last use at which a block is fetched again. No provider caches an unused prompt for longer, so a new
# block costs nothing then.
_LIVES_SECONDS: Final = 3600.0
_FETCH_SECONDS: Final = 10.0
# A session begins with up to 15 memories of each of the two newest days: recent topics, but not a whole archive (MS-01).
_NEWEST_DAYS: Final = 2
_LINES_OF_A_DAY: Final = 15
STANDING_TOKENS: Final = 200
"""Maximum size of the standing block in estimated tokens: about ten lines, which are part of every request of a session."""
# Seconds to wait after a failed fetch before the next one.
_PAUSE_SECONDS: Final = 60.0


@dataclass(slots=True)
class _KeptBlock:
    """The standing block of one session.

    Attributes:
        used_at: when a turn last asked for it, in seconds of the monotonic clock.
        failed_at: when the last fetch failed, in seconds of the monotonic clock; None if it succeeded.
    """

    block: StandingBlock | None = None
    fetching: asyncio.Task[None] | None = None
    used_at: float = 0.0
    failed_at: float | None = None


class StandingBlocks:
    """The standing blocks of one plugin's sessions: what could harm the person, how to answer them, and who they are.

    A block is fetched concurrently with the first recall of a session, or earlier if the host announces the session. A turn
    for which it does not arrive in time goes without it, and the next turn gets it. The bytes of a block stay the same
    while the session lasts, so that a provider can cache the prompt; only memories that were erased are removed
    immediately. Groups have no standing block, because it is about one person.
    """

    def __init__(self, client: RelayerClient, settings: RecallSettings, clock: Clock) -> None:
        self._client = client
        self._settings = settings.standing
        # The standing block shares the turn's token budget with the recalled memories, which get at least half of it.
        self._max_tokens = min(STANDING_TOKENS, settings.max_tokens // 2)
        self._clock = clock
        self._known: LRUCache[tuple[str, str], _KeptBlock] = LRUCache(MAX_SESSIONS)

    def begin(self, turn: Turn) -> None:
        """Start fetching the block of a turn's session, unless it is there already or the session has none."""
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
        """Return the block of a turn's session, after waiting up to ``seconds`` for a running fetch."""
        fetching = self._of(turn).fetching
        if fetching is not None:
            await asyncio.wait({fetching}, timeout=max(seconds, 0.0))
        return self.now(turn)

    def now(self, turn: Turn) -> StandingBlock:
        """Return the block of a turn's session without waiting; an empty block if there is none."""
        block = (self._of(turn).block if self._wanted(turn) else None) or StandingBlock()
        return block.without(turn.prompted) if turn.prompted else block

    def erased(self, turn: Turn, gone: Collection[str]) -> None:
        """Remove memories that no longer exist from the block of a turn's session; ``gone`` are their ids."""
        kept = self._of(turn)
        if gone and kept.block is not None:
            kept.block = kept.block.without(gone)

    def forget(self, turn: Turn) -> None:
        """Discard the block of a turn's session, because the session ended. The next turn fetches a new one."""
        self._of(turn).block = None

    def drop(self, namespace: str) -> None:
        """Discard the blocks of all sessions of a namespace, and cancel their fetches."""
        for key in [key for key in self._known if key[0] == namespace]:
            kept = self._known.pop(key)
            if kept.fetching is not None:
                kept.fetching.cancel()

    async def aclose(self) -> None:
        """Cancel the running fetches."""
        tasks = [kept.fetching for kept in self._known.values() if kept.fetching is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _wanted(self, turn: Turn) -> bool:
        person = turn.host.interactive and turn.heard_by in {None, TurnAudience.DIRECT}
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
            # The turn goes without the block and gets only the memories that it recalls.
            kept.failed_at = self._clock.monotonic()
        finally:
            kept.fetching = None


# Share of the remaining time to wait for the delivery of earlier turns, so that they are found. The rest is for searching.
_SHARE_FOR_OWN_WRITES: Final = 0.75
_SPARE: Final = 4
_MOST_SPARE: Final = 20
# Statuses that show that the relayer answers requests.
_ANSWERED: Final = frozenset({"ok", "empty"})
_LEAST_SECONDS: Final = 0.001
# Seconds of a turn's time that waiting for the standing block must leave.
_SPARE_SECONDS: Final = 0.05


def turn_request(
    recall: RecallSettings,
    query: str,
    hearing: Hearing,
    standing: tuple[str, ...] = (),
    *,
    spare: int = _SPARE,
) -> RecallRequest:
    """Build the recall request of one turn, for at most 100 hits.

    ``standing`` are ids of memories in the session's standing block; ``spare`` hits more are requested, because the plugin's
    own filters may remove some.
    """
    return RecallRequest(
        query=query,
        limit=min(recall.max_results + spare + len(standing), 100),
        floor=recall.min_score,
        audiences=hearing.audiences,
        trusts=TRUSTED,
        prompt=True,
        former=True,
        **ranking(recall),
        # Unset fields are left out, so that a relayer that does not know them accepts the request.
        **({"standing": standing} if standing else {}),
        **({"named": hearing.named} if hearing.named else {}),
    )


# Gates that object to the message and not to the session.
_OF_THE_MESSAGE: Final = frozenset({"slash_command", "control_text", "min_length", "skip_pattern"})
# Gates that stop messages with which people begin conversations. The other messages are meant for the host.
_GREETINGS: Final = frozenset({"min_length", "skip_pattern"})
# Gates whose objections are stored for ``why``, because a person may wonder about them. The other gates stop turns for which
# a person switched memory off, messages to the host, and runs without a person.
_WONDERED_ABOUT: Final = frozenset({"agents", "session_pattern", "chat_type", "min_length", "skip_pattern"})
_ROLLED_BACK: Final = "memories that this gateway has seen are missing from the store. Recall is paused until the store is repaired, or until its state is accepted with: memrelay-gateway doctor --accept-rollback"


class Recaller:
    """Recalls memories for the turns of one plugin, and turns every failure into a status.

    Attributes:
        cache: responses of recent recalls; a write to a namespace drops its entries.
        recalls: number of turns for which a recall was sent to the relayer.
        standing: the standing blocks of the sessions.
    """

    def __init__(
        self,
        client: RelayerClient,
        sender: Sender,
        settings: PluginSettings,
        clock: Clock,
        positions: Positions,
        *,
        book: SessionBook,
        last: LastTurn,
        watchdog: Watchdog,
        notify_once: NotifyOnce,
        cited: Callable[[Identity], Awaitable[Mapping[str, str]]],
        counts: RecallCounts | None = None,
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
        self._book = book
        self._last = last
        self._watchdog = watchdog
        self._notify_once = notify_once
        self._cited = cited
        self._counts = counts
        self._logged = settings.logs_recalls and not settings.disabled

    def begin(self, turn: Turn) -> None:
        """Prepare the first recall of a session: fetch its standing block."""
        self._forget_if_reset(turn.identity)
        self.standing.begin(turn)

    async def recall(
        self,
        prompt: str,
        earlier: tuple[ChatMessage, ...],
        *,
        key: str | None,
        host: HostTurn,
        seconds: float,
    ) -> Injection:
        """Recall memories for a turn. It never raises: every failure is a status."""
        turn: Turn | None = None
        try:
            query = clean_query(prompt)
            session = parse_session_key(key or "")
            if host.among_several(session):
                query = split_senders(query, host.sender or "")[-1][2]
                earlier = spoken_in_group(earlier, sender=host.sender or "")
            turn = await self._with_prompted(self._book.turn(session, host, query, Purpose.RECALL))
            if not isinstance(turn.whose, IdentityError):
                self._forget_if_reset(turn.identity)
            if turn.decision.allowed:
                # Some hosts include the latest message in the history.
                if earlier and earlier[-1].role is Role.USER and earlier[-1].text == prompt:
                    earlier = earlier[:-1]
                injection, trace = await self._recall_for_turn(turn, earlier, seconds)
            else:
                injection, trace = await self._outcome_of_stopped_turn(turn, seconds)
        except GatewayError as error:
            injection, trace = self._silent(error.outcome, str(error))
        except Exception as error:  # noqa: BLE001 - a defect of ours must not cost the user an answer
            injection, trace = self._silent("failed", defect(error))
        self._last.saw(turn.namespace if turn else "", key or "", trace)
        if self._logged:
            notify(recall_line(injection, trace, turn.query if turn else "", self._settings))
        return injection

    def _forget_if_reset(self, identity: Identity) -> bool:
        """Return whether the owner erased a namespace, or accepted its state, and forget what was recalled from it then."""
        if not self._positions.was_reset(identity.ref):
            return False
        self._client.note_write(identity.namespace)
        self.standing.drop(identity.namespace)
        return True

    async def _with_prompted(self, turn: Turn) -> Turn:
        if not turn.host.prompted or isinstance(turn.whose, IdentityError):
            return turn
        places = (await self._cited(turn.identity)).items()
        ids = frozenset(memory for memory, place in places if place.partition("#")[0] in turn.host.prompted)
        return replace(turn, prompted=ids)

    async def _recall_for_turn(
        self, turn: Turn, earlier: Sequence[ChatMessage], seconds: float
    ) -> tuple[Injection, TurnTrace]:
        """Recall memories for a turn that the gates allow. A session that begins gets the newest memories, too (MS-01).

        Everything together fits ``recall.max_tokens``, and no memory is included twice.
        """
        identity, session = turn.identity, self._session(turn)
        self._watchdog.recalled(f"{identity.namespace} {turn.session.key}" if turn.session.key else "")
        start = self._clock.monotonic()
        try:
            self.standing.begin(turn)
            injection, trace = await self._search_and_select(turn, earlier, session, seconds)
            if injection.status in _ANSWERED:
                injection, trace = await self._add_newest(
                    turn, session, (injection, trace), (start, start + seconds)
                )
            else:
                injection = self._with_standing(turn, session, injection)
        except Exception as error:  # noqa: BLE001 - as in `recall`; whose turn it is stays known
            injection, trace = self._silent("failed", defect(error))
            injection = self._with_standing(turn, session, injection)
        if self._settings.recall.namespace_instruction:
            injection = replace(injection, instruction=namespace_instruction(identity.namespace))
        if injection.status == "refused:rollback_detected":
            # Without the detail, which has the id of the request and would make each notice a new one.
            self._notify_once(f"agent {identity.agent}: {_ROLLED_BACK}")
        trace = replace(trace, gates=turn.gates)
        self._last.note(identity.ref, trace)
        if self._counts is not None:
            self._counts.saw(identity.ref, injection.hits, turn.query)
        return injection, trace

    async def _outcome_of_stopped_turn(self, turn: Turn, seconds: float) -> tuple[Injection, TurnTrace]:
        """Return the injection and the trace of a turn that a gate stopped.

        If the gate objects to the message only, the turn still gets the standing block, and a session that begins gets the
        newest memories: "hi" begins a session, too.
        """
        gate, reason = turn.decision.gate, turn.decision.reason
        injection, trace = self._silent(f"skipped:{gate}", reason)
        trace = replace(trace, gates=turn.gates)
        if gate in _WONDERED_ABOUT:
            with contextlib.suppress(GatewayError):
                self._last.note(turn.identity.ref, trace)
        if isinstance(turn.whose, IdentityError) or gate not in _OF_THE_MESSAGE:
            return injection, trace
        session = self._session(turn)
        if not (session.begins and gate in _GREETINGS and turn.query):
            return self._with_standing(turn, session, injection), trace
        start = self._clock.monotonic()
        self.standing.begin(turn)
        await self.standing.wait(turn, seconds - _SPARE_SECONDS)
        injection = self._with_standing(turn, session, injection)
        return await self._add_newest(turn, session, (injection, trace), (start, start + seconds))

    def _session(self, turn: Turn) -> Session:
        session = self._book.state(turn.identity.namespace, turn.session.key)
        session.begins = session.begins or turn.host.first_turn
        return session

    def _silent(self, status: str, detail: str) -> tuple[Injection, TurnTrace]:
        injection = Injection("", self._settings.recall.position, status, detail=detail)
        return injection, TurnTrace(status, detail)

    def _with_standing(self, turn: Turn, session: Session, injection: Injection) -> Injection:
        """Return an injection with the session's standing block, which is in every prompt whatever the message says."""
        standing = self.standing.now(turn)
        session.echoes.injected(line.text for line in standing.lines)
        return replace(injection, standing=standing.text, always=standing.lines)

    async def _add_newest(
        self, turn: Turn, session: Session, outcome: tuple[Injection, TurnTrace], times: tuple[float, float]
    ) -> tuple[Injection, TurnTrace]:
        """Put the newest memories in front of a turn's injection, if its session has not got them yet."""
        (injection, trace), (start, end) = outcome, times
        if not session.begins or not self._settings.recall.cold_start.enabled:
            return outcome
        try:
            shown = ShownMemories.from_injection(injection)
            shown = replace(shown, ids=shown.ids | turn.prompted)
            recall = self._settings.recall
            offset = datetime.fromtimestamp(self._clock.now(), UTC).astimezone().utcoffset()
            answer = await self._client.context(
                turn.identity,
                days=_NEWEST_DAYS,
                items=_LINES_OF_A_DAY,
                offset_minutes=0 if offset is None else int(offset.total_seconds() // 60),
                audiences=turn.hearing.lasting,
                trusts=TRUSTED,
                deadline=max(end - self._clock.monotonic(), _LEAST_SECONDS),
            )
            begun = format_days(answer, recall, turn.hearing, shown)
        except RelayerRefused:
            # The relayer does not know this request, or the namespace does not exist. Asking again would change nothing.
            session.begins = False
            return outcome
        except GatewayError:
            # The turn has its recalled memories. The next turn asks for the newest memories again.
            return outcome
        session.begins = False
        session.echoes.injected(begun.said)
        text = "\n\n".join(filter(None, (begun.text, injection.text)))
        milliseconds = round((self._clock.monotonic() - start) * 1000)
        begun_with = replace(injection, text=text, milliseconds=milliseconds)
        return begun_with, replace(trace, cold_start=len(begun.said), milliseconds=milliseconds)

    async def _search_and_select(
        self, turn: Turn, earlier: Sequence[ChatMessage], session: Session, seconds: float
    ) -> tuple[Injection, TurnTrace]:
        start = self._clock.monotonic()
        identity, active = turn.identity, turn.active
        query = build_query(turn.query, earlier, self._settings)
        # A query may contain a secret, which helps no search and must not be sent.
        query = replace(query, search=redact(query.search, self._settings.capture.redaction).text)
        trace = TurnTrace(
            "", agent=identity.agent, namespace=identity.namespace, query_chars=len(query.search)
        )
        end = start + seconds
        # In active mode, the search gets the time of direct mode, and the setup grace if the model is asked; the model gets
        # the rest.
        limits = self._settings.active
        grace = limits.setup_grace_timeout_ms / 1000 if active is not None and active.allowed else 0.0
        soon = min(end, start + self._settings.recall.deadline_ms / 1000 + grace) if active else end
        try:
            request = turn_request(
                self._settings.recall,
                query.search,
                turn.hearing,
                self.standing.now(turn).ids,
                spare=_SPARE + min(len(turn.prompted), _MOST_SPARE),
            )
            answer, cached = await self._find(request, identity, soon)
        except GatewayError as error:
            injection = self._injection(error.outcome, start, detail=str(error))
            return injection, replace(
                trace, status=injection.status, detail=injection.detail, milliseconds=injection.milliseconds
            )
        self.standing.erased(turn, answer.gone)
        missing = "; ".join(answer.unavailable) if isinstance(answer, MergedResponse) else ""
        trace = replace(trace, detail=missing)
        if active is not None and not active.allowed:
            detail = "; ".join(filter(None, (active.reason, missing)))
            trace = replace(trace, active=f"skipped:{active.gate}", detail=detail)
        elif active is not None:
            reminder = await self._active.remind(
                turn, query, answer, min(end - self._clock.monotonic(), limits.timeout_ms / 1000)
            )
            trace = replace(trace, active=reminder.outcome, detail=reminder.detail)
            if reminder.decided:
                return self._reminded(turn, reminder, replace(trace, cached=cached), session, start)
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
            prompted=turn.prompted,
            former=answer.former,
        )
        injection = self._injection(
            "ok" if selected.text else "empty", start, selected, answer, detail=trace.detail
        )
        injection = self._with_standing(turn, session, injection)
        kept_out = (HitTrace(one.id, one.relevance, "unmentioned", wish=one.by) for one in answer.unmentioned)
        return injection, replace(
            trace,
            status=injection.status,
            cached=cached,
            hits=(*selected.traces, *kept_out),
            milliseconds=injection.milliseconds,
        )

    def _reminded(
        self, turn: Turn, reminder: Reminder, trace: TurnTrace, session: Session, start: float
    ) -> tuple[Injection, TurnTrace]:
        session.echoes.injected([reminder.said] if reminder.said else [])
        injection = replace(
            self._injection(reminder.outcome, start, detail=reminder.detail),
            text=reminder.text,
            position=self._settings.summary_position,
            summary=reminder.said,
            active=self._settings.active.query_mode.value,
        )
        return self._with_standing(turn, session, injection), replace(
            trace, status=injection.status, milliseconds=injection.milliseconds
        )

    async def _find(
        self, request: RecallRequest, identity: Identity, end: float
    ) -> tuple[RecallResponse, bool]:
        left = end - self._clock.monotonic()
        await self._sender.settled(identity.namespace, left * _SHARE_FOR_OWN_WRITES)
        shared = self._shares.also_read(identity) if self._shares is not None else ()
        # A recall from shared namespaces is not cached: the cache is not notified of other agents' writes, nor of the end
        # of a share.
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
        """Recall from the agent's own namespace, as `_ask_once` does.

        If the relayer reports a rollback, but the owner erased the namespace meanwhile, ask once more.
        """
        try:
            return await self._ask_once(request, identity, end)
        except RelayerRefused as error:
            if error.code != "rollback_detected" or not self._forget_if_reset(identity):
                raise
            return await self._ask_once(request, identity, end)

    async def _ask_once(self, request: RecallRequest, identity: Identity, end: float) -> RecallResponse:
        """Recall from the agent's own namespace.

        The request carries the newest position of the log that this gateway has seen, so that the relayer refuses to
        answer from a log that was set back.
        """
        owner = identity.ref
        seen = self._positions.newest(owner)
        asked = request if seen is None else request.model_copy(update={"min_position": seen})
        try:
            answer = await self._client.recall(identity, asked, deadline=end - self._clock.monotonic())
        except RelayerRefused as error:
            if error.code != "position_unknown":
                raise
            # So much was written since then that the relayer cannot compare the position any more. Accept the current one.
            self._positions.replace(owner, None)
            answer = await self._client.recall(identity, request, deadline=end - self._clock.monotonic())
        if answer.position is not None:
            self._positions.saw(owner, answer.position)
        elif seen is not None:
            raise RelayerRefused("rollback_detected", "the namespace no longer exists", status=409)
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


SEARCH_FLOOR: Final = 0.005
"""The default floor of relevance of a search by the tool or the command line: it asked for memories, unlike a prompt, and a few
key words are related to a memory with less relevance than a whole question."""


def ranking(settings: RecallSettings) -> dict[str, Any]:
    """Return the fields of a request that change the order of hits. Unset ones are left out: the relayer has defaults."""
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


_QUERY_CHARS: Final = 80


def recall_line(injection: Injection, trace: TurnTrace, query: str, settings: PluginSettings) -> str:
    """Return the log line of a recall (CP-29).

    The query is logged only if ``recall.logQueries`` is on: its first 80 characters, without secrets.
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
