"""Sessions and their turns: identities, switches, and the state that is held for each session.

`SessionBook` creates the `gateway_plugin.turn.gates.Turn` of a turn: it determines agent, namespace and keys, `Toggles` says
whether memory is switched on, and the gates decide. It also holds the `Session` of each session: an `EchoFilter`, the last
injected block, and the last capture. `LastTurn` stores traces of turns, and `Watchdog` warns if a host never delivers
turns for capture. Recall and capture import this module; it imports neither of them.

`Intents` are reminders that are given to the model when a message is about their trigger: "When the launch comes up, remind me
of the rollback owner." An intent has trigger phrases and is due when all words of one of them are in a message of the person,
in the chats that it is for. No model is asked. Intents are stored sealed in the outbox of this machine, and each is given a
bounded number of times, with a pause between two.
"""

from __future__ import annotations

import json
import re
import secrets
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Final, Literal, TypeVar

from cachetools import LRUCache
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from gateway_plugin.calls.clock import Clock
from gateway_plugin.errors import GatewayError, IdentityError
from gateway_plugin.keys.identity import (
    Identity,
    KeyHolder,
    NamespaceRef,
    SessionRef,
    identify,
    identify_owner,
    parse_session_key,
)
from gateway_plugin.outbox.queue import Outbox, OutboxItem, OutboxUnavailable, RevisionConflict, ValueUpdate
from gateway_plugin.settings.model import PluginSettings, RecallMode
from gateway_plugin.turn.gates import HostTurn, Purpose, Turn, explain, gate
from gateway_plugin.turn.status import CaptureReport, TurnTrace
from relayer.wire.fields import Role
from relayer.wire.schemas import AnalyzeResponse

MAX_SESSIONS: Final = 1000


_OFF: Final = b"off"
_ON: Final = b"on"
_EVERYWHERE: Final = "everywhere"


class Toggles:
    """The switches that turn memory on or off: for a session, for an agent, and for the whole gateway.

    Every method raises `OutboxUnavailable` if the switches cannot be read or stored.
    """

    def __init__(self, outbox: Outbox, gateway: NamespaceRef) -> None:
        self._outbox = outbox
        self._gateway = gateway

    def is_on(self, owner: NamespaceRef, session: str) -> bool:
        """Return whether memory is on for a session: by its own switch, its agent's and the gateway's."""
        asked = (
            (self._gateway, _EVERYWHERE),
            (self._gateway, _of_agent(owner.agent)),
            (owner, _name(session)),
        )
        return all(found.value != _OFF for found in self._outbox.get_all(asked))

    def set_session(self, owner: NamespaceRef, session: str, *, enabled: bool) -> None:
        """Turn memory on or off for a session."""
        self._set(owner, _name(session), enabled=enabled)

    @property
    def enabled_everywhere(self) -> bool:
        """Return whether the gateway's own switch is on."""
        return self._is_on(self._gateway, _EVERYWHERE)

    def agent_enabled(self, agent: str) -> bool:
        """Return whether an agent's own switch is on; ``agent`` is the normalized name."""
        return self._is_on(self._gateway, _of_agent(agent))

    def set_agent(self, agent: str, *, enabled: bool) -> None:
        """Turn memory on or off for all sessions of an agent; ``agent`` is the normalized name."""
        self._set(self._gateway, _of_agent(agent), enabled=enabled)

    def set_everywhere(self, *, enabled: bool) -> None:
        """Turn memory on or off for all sessions of the gateway."""
        self._set(self._gateway, _EVERYWHERE, enabled=enabled)

    def _is_on(self, owner: NamespaceRef, name: str) -> bool:
        return self._outbox.get(owner, name).value != _OFF

    def _set(self, owner: NamespaceRef, name: str, *, enabled: bool) -> None:
        if self._is_on(owner, name) != enabled:
            value = _ON if enabled else _OFF
            self._outbox.compare_and_set(ValueUpdate(owner, name, value, lasting=not enabled))


def _of_agent(agent: str) -> str:
    return f"agent:{agent}"


def _name(session: str) -> str:
    return f"session:{session}"


_MAX_MEMORIES: Final = 500
_MIN_WORDS: Final = 3
_WORD: Final = re.compile(r"\w+(?:['\u2019]\w+)*")
_Gist = tuple[str, ...]
# Words that a repetition of a memory may add or leave out: articles, forms of "to be" in the present, pronouns of user and
# assistant, polite words, and words that refer to remembering. Not "was" and not "she": another tense or another person is
# another fact.
_EMPTY_WORDS: Final = frozenset(
    {
        "a", "an", "the", "that", "is", "are", "am", "i", "you", "we", "me", "us", "my", "your", "our", "mine", "yours",
        "i'm", "you're", "i've", "you've", "user", "assistant", "said", "told", "mentioned", "remember", "know", "so",
        "well", "also", "and", "just", "please", "thanks", "noted", "ok", "okay", "yes", "sure",
    }
)  # fmt: skip


class EchoFilter:
    """Removes repetitions of injected memories from what is captured in a session.

    It remembers the last 500 texts that were injected, and their lines. Texts are compared without case, punctuation and words
    such as articles.
    """

    def __init__(self) -> None:
        # The gists of the lines of each text, by the gist of the text.
        self._injected: LRUCache[_Gist, tuple[_Gist, ...]] = LRUCache(_MAX_MEMORIES)
        self._lines: LRUCache[_Gist, None] = LRUCache(_MAX_MEMORIES)
        # Texts that were injected since the last capture. They are only analysed at the next capture, when no user is
        # waiting for an answer.
        self._unread: dict[str, None] = {}

    def injected(self, texts: Iterable[str]) -> None:
        """Record texts that were put into the prompt."""
        self._unread.update(dict.fromkeys(texts))
        if len(self._unread) > _MAX_MEMORIES:
            self._read()

    def _read(self) -> None:
        for text in self._unread:
            lines = tuple(filter(None, map(_gist, text.splitlines())))
            for line in lines:
                if len(line) >= _MIN_WORDS:
                    self._lines[line] = None
            if len(whole := _gist(text)) >= _MIN_WORDS:
                self._injected[whole] = lines
        self._unread.clear()

    def without_echoes(self, text: str, *, origin: Role) -> str:
        """Return a text without what repeats an injected memory; "" if the whole text does.

        An assistant repeats single lines. A user's line may belong to another list or person than the same line of a memory,
        so a user's text only loses runs of lines that are a whole injected text of several lines.
        """
        self._read()
        if not self._injected:
            return text
        gist = _gist(text)
        if gist in self._injected or (origin is not Role.USER and gist in self._lines):
            return ""
        lines = text.split("\n")
        gists = [_gist(line) for line in lines]
        if origin is Role.USER:
            echoes = self._within_blocks(gists)
        else:
            echoes = {at for at, line in enumerate(gists) if line in self._lines}
        if not echoes:
            return text
        return "\n".join(line for at, line in enumerate(lines) if at not in echoes).strip()

    def _within_blocks(self, gists: Sequence[_Gist]) -> set[int]:
        """Return the indexes of lines that are together all lines of an injected text; blank lines may be between them."""
        blocks: dict[_Gist, list[tuple[_Gist, ...]]] = {}
        for block in self._injected.values():
            if len(block) > 1:
                blocks.setdefault(block[0], []).append(block)
        places = [at for at, gist in enumerate(gists) if gist]
        found: set[int] = set()
        for start, at in enumerate(places):
            for block in blocks.get(gists[at], ()):
                run = places[start : start + len(block)]
                if tuple(gists[place] for place in run) == block:
                    found.update(run)
        return found


def folded(text: str) -> str:
    """Return a text normalized for comparison: NFKC, case folded, with straight apostrophes."""
    return unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'")


def _gist(text: str) -> _Gist:
    return tuple(word for word in _WORD.findall(folded(text)) if word not in _EMPTY_WORDS)


@dataclass(slots=True)
class Session:
    """The state of one chat session.

    Attributes:
        echoes: removes repetitions of injected memories from captured messages.
        sticky: the ids of the memories in the last injected block, and the block. If the same memories are recalled again,
            the block is reused unchanged, whatever their order and the current date, so that the prompt can be cached.
        captured: the report of the session's last capture; None if there was none.
        begins: whether the session has yet to get the newest memories that it begins with.
    """

    echoes: EchoFilter = field(default_factory=EchoFilter)
    sticky: tuple[frozenset[str], str] = (frozenset(), "")
    captured: CaptureReport | None = None
    begins: bool = False


class SessionBook:
    """The sessions of one plugin: it determines whose each turn is, creates the turn, and holds the state of each session.

    Example:
        turn = book.turn(parse_session_key("agent:main:main"), HostTurn(), "What is my cat called?", Purpose.RECALL)
        if turn.decision.allowed:
            session = book.state(turn.identity.namespace, turn.session.key)
    """

    def __init__(
        self,
        holder: KeyHolder | None,
        settings: PluginSettings,
        outbox: Outbox,
        *,
        agent: str | None = None,
        notify_once: Callable[[str], None] = lambda _reason: None,
        max_sessions: int = MAX_SESSIONS,
    ) -> None:
        self.holder = holder
        self.switches = Toggles(outbox, self.gateway)
        self._settings = settings
        self._agent = agent
        self._notify_once = notify_once
        # All turns of a session have the same identity, so it is computed at the first of them.
        self._identified = lru_cache(max_sessions)(self._identify)
        self._states: LRUCache[tuple[str, str], Session] = LRUCache(max_sessions)

    @property
    def account(self) -> str:
        """Return the account's id; "" while memory is switched off."""
        return self.holder.account if self.holder is not None else ""

    @property
    def gateway(self) -> NamespaceRef:
        """Return the owner under which values of the gateway as a whole are stored; it belongs to no namespace."""
        agent = self.holder.only_agent if self.holder is not None else None
        return NamespaceRef(agent or "", "", 0)

    def identity(self, ref: SessionRef, host: HostTurn) -> Identity:
        """Return the identity of a turn. Raises `IdentityError`: it cannot be determined, or memory is switched off."""
        return self._identified(ref, host.agent, host.sender, host.workspace)

    def identity_of_owner(self, owner: NamespaceRef) -> Identity:
        """Return the identity that delivers the outbox items of an owner; raises `IdentityError`."""
        return identify_owner(self._held(), self._settings.namespace.renamed, owner)

    def namespace_of(self, key: str, host: HostTurn) -> str:
        """Return the namespace of a session; "" if it cannot be determined."""
        try:
            return self.identity(parse_session_key(key), host).namespace
        except IdentityError:
            return ""

    def turn(
        self, ref: SessionRef, host: HostTurn, query: str, purpose: Purpose, *, success: bool = True
    ) -> Turn:
        """Create a turn with the decisions of the gates."""
        turn = self.ungated_turn(ref, host, query, success=success)
        if turn.outbox_error:
            self._notify_once(turn.outbox_error)
        gates, active = explain(turn, self._settings, purpose), None
        if purpose is Purpose.RECALL and self._settings.recall.mode is RecallMode.ACTIVE:
            active = gate(turn, self._settings, Purpose.ACTIVE)
            # A turn that may not use active mode gets no memories at all, unless the settings give it those of direct mode
            # (AM-02).
            if not active.allowed and self._settings.active.otherwise == "silent":
                gates = (*gates, active)
        return replace(turn, gates=gates, active=active)

    def ungated_turn(self, ref: SessionRef, host: HostTurn, query: str = "", *, success: bool = True) -> Turn:
        """Create a turn without asking the gates."""
        whose: Identity | IdentityError
        enabled, unreadable = True, ""
        try:
            whose = self.identity(ref, host)
            enabled = self.switches.is_on(whose.ref, ref.key)
        except OutboxUnavailable as error:
            enabled, unreadable = False, str(error)
        except IdentityError as error:
            whose = error
        return Turn(
            session=ref,
            host=host,
            query=query,
            whose=whose,
            agent=host.agent or self._settings.agent,
            outbox_error=unreadable,
            session_enabled=enabled,
            success=success,
            owners=frozenset(self._settings.owners),
        )

    def state(self, namespace: str, key: str) -> Session:
        """Return the state of a session, creating it if necessary."""
        return self._states.setdefault((namespace, key), Session())

    def _identify(
        self, ref: SessionRef, agent: str | None, sender: str | None, workspace: str | None
    ) -> Identity:
        holder = self._held()
        fixed = agent or (self._settings.agent if self._agent is None else None)
        return identify(
            holder,
            ref if fixed is None else replace(ref, agent=fixed),
            default_agent=self._agent or None,
            default_namespace=self._settings.namespace.default,
            profile=self._settings.namespace.profile,
            scope=self._settings.namespace.scope,
            sender=sender,
            workspace=workspace,
            renamed=self._settings.namespace.renamed,
        )

    def _held(self) -> KeyHolder:
        if self.holder is None:
            raise IdentityError("memory is switched off by MEMRELAY_DISABLE")
        return self.holder


WHY_MARK: Final = "why"
"""The name under which the outbox stores the trace of the last turn of a namespace."""
WHY_CAPTURED: Final = "why_captured"
"""The name under which the outbox stores the relayer's verdicts on the last captured turn of a namespace, without text."""


class LastTurn:
    """The traces of the last turns.

    With ``noted`` false, nothing may be stored.

    Attributes:
        trace: the trace of the last turn of any session. It must not be shown in a chat, which may be another session.
    """

    def __init__(self, outbox: Outbox, *, noted: bool) -> None:
        self.trace = TurnTrace("")
        self._outbox = outbox
        self._noted = noted
        self._known: LRUCache[tuple[str, str], TurnTrace] = LRUCache(MAX_SESSIONS)
        self._owed: tuple[NamespaceRef, TurnTrace] | None = None
        self._captured: dict[NamespaceRef, dict[str, object]] = {}

    def trace_of(self, namespace: str, session: str) -> TurnTrace:
        """Return the trace of the last turn of a session; an empty trace if there is none."""
        return self._known.get((namespace, session), TurnTrace(""))

    def saw(self, namespace: str, session: str, trace: TurnTrace) -> None:
        """Record the trace of a session's turn in memory; ``namespace`` is "" if it could not be determined."""
        self.trace = self._known[namespace, session] = trace

    def note(self, owner: NamespaceRef, trace: TurnTrace) -> None:
        """Schedule a trace for storage by the next `persist`."""
        self._owed = (owner, trace)

    def captured(self, item: OutboxItem, answer: AnalyzeResponse) -> None:
        """Schedule the relayer's verdicts on a captured turn for storage by the next `persist`."""
        roles = [turn.role for turn in item.request.turns]
        self._captured[item.owner] = {
            "session": item.request.session,
            "queued_at": item.queued_at,
            "messages": roles,
            "verdicts": [verdict.model_dump() for verdict in answer.verdicts if verdict.turn < len(roles)],
        }

    def persist(self) -> None:
        """Store the scheduled traces and verdicts. Raises `OutboxUnavailable`; the trace is then discarded."""
        while self._captured and self._noted:
            owner, said = self._captured.popitem()
            self._outbox.compare_and_set(ValueUpdate(owner, WHY_CAPTURED, json.dumps(said).encode()))
        owed, self._owed = self._owed, None
        if owed is not None and self._noted:
            owner, trace = owed
            self._outbox.compare_and_set(ValueUpdate(owner, WHY_MARK, json.dumps(asdict(trace)).encode()))


TURNS: Final = 10
# Maximum number of sessions with an open turn. No gateway answers more sessions at the same time. If a host opens a
# session for each turn, the turns beyond this number are counted.
_MOST_AT_ONCE: Final = 200
_DAY: Final = 24 * 3600.0


class Watchdog:
    """Warns if turns recall memories but the host never delivers a turn for capture."""

    def __init__(self, clock: Clock, notify: Callable[[str], None], *, enabled: bool) -> None:
        self._clock = clock
        self._notify = notify
        self._enabled = enabled
        self._turns = 0
        self._open: set[str] = set()
        self._warned: float | None = None

    @property
    def warning(self) -> str:
        """Return the warning; "" unless 10 turns have recalled since the last delivery."""
        if not self._enabled or self._turns < TURNS:
            return ""
        return (
            f"{self._turns} turns recalled memories and none was handed over for capture: nothing is being remembered. "
            "The host must deliver the end of a turn (OpenClaw: "
            "plugins.entries.<id>.hooks.allowConversationAccess = true); memrelay-gateway doctor tells more"
        )

    def recalled(self, session: str = "") -> None:
        """Count a person's turn that recalled, whether it found memories or not.

        When many sessions are active, the current turn of each may not have ended yet. Therefore the first turn of a session
        after a delivery is not counted; the next ones of the same session are. Without a ``session``, the turn is counted
        immediately.
        """
        if session and session not in self._open and len(self._open) < _MOST_AT_ONCE:
            self._open.add(session)
            return
        self._turns += 1
        warning = self.warning
        now = self._clock.monotonic()
        if warning and (self._warned is None or now - self._warned >= _DAY):
            self._warned = now
            self._notify(f"memrelay: {warning}")

    def handed_over(self) -> None:
        """Reset the count: the host has delivered a turn, whether it is worth keeping or not."""
        self._turns = 0
        self._open.clear()


MAX_INTENTS: Final = 100
MAX_FIRES: Final = 3
COOLDOWN_SECONDS: Final = 24 * 3600
LIFETIME_SECONDS: Final = 90 * 24 * 3600
_NAME: Final = "intents"
_ATTEMPTS: Final = 5
_MOST_GIVEN: Final = 3
_TRIGGER_WORD: Final = re.compile(r"\w+")
# A word of at least so many letters is also found in its plural and compounds.
_STEM: Final = 4
_T = TypeVar("_T")


class TooManyIntents(GatewayError):
    """Raised when an agent has so many open intents that no further one is stored."""


class Intent(BaseModel):
    """A standing intent.

    Attributes:
        triggers: phrases; one of them has to be in a message with all of its words.
        chat: the chats that it is for: a session key, a place or ``direct``; "" for all.
        sender: the person whose messages it is for: an id, or ``owner``; "" for everyone.
        most: how often it is given at most.
        pause: seconds between two times.
        fired: when it was given last, in ms since the epoch, as ``created`` and ``expires`` are; 0 for never.
    """

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    id: str
    text: str
    triggers: tuple[str, ...]
    chat: str
    sender: str
    created: int
    expires: int
    most: int = MAX_FIRES
    pause: int = COOLDOWN_SECONDS
    fires: int = 0
    fired: int = 0
    cancelled: bool = False

    def status(self, now_ms: int) -> Literal["armed", "fired", "done", "cancelled", "expired"]:
        """Return the state of the intent at a time."""
        if self.cancelled:
            return "cancelled"
        if self.fires >= self.most:
            return "done"
        if now_ms >= self.expires:
            return "expired"
        return "fired" if self.fired and now_ms < self.fired + self.pause * 1000 else "armed"

    def is_about(self, message: str) -> bool:
        """Return whether a message has all words of one of the triggers.

        Example:
            >>> intent = Intent(
            ...     id="i1", text="Ask Mara.", triggers=("launch checklist",), chat="", sender="", created=0, expires=1
            ... )
            >>> intent.triggers, intent.is_about("Who reviews the launch checklists?")
            (('launch checklist',), True)
        """
        text = folded(message)
        words = {*_TRIGGER_WORD.findall(text)}

        def has(wanted: str) -> bool:
            # Some scripts put no spaces between words.
            if not wanted.isascii() and wanted in text:
                return True
            return wanted in words or (len(wanted) >= _STEM and any(one.startswith(wanted) for one in words))

        phrases = (_TRIGGER_WORD.findall(folded(phrase)) for phrase in self.triggers)
        return any(bool(phrase) and all(map(has, phrase)) for phrase in phrases)


_INTENTS: Final = TypeAdapter(tuple[Intent, ...])


class Intents:
    """The standing intents of all agents of this machine."""

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox

    def all(self, owner: NamespaceRef) -> tuple[Intent, ...]:
        """Return the intents of an agent, oldest first."""
        return _decoded(self.outbox.get(owner, _NAME).value)

    def add(self, owner: NamespaceRef, intent: Intent, now_ms: int) -> Intent:
        """Store an intent and return it with its id. Raises `TooManyIntents`: the agent has 100 that may still be given."""

        def added(known: tuple[Intent, ...]) -> tuple[tuple[Intent, ...], Intent]:
            open_ones = [one for one in known if one.status(now_ms) in {"armed", "fired"}]
            if len(open_ones) >= MAX_INTENTS:
                raise TooManyIntents(f"there are {MAX_INTENTS} standing intents; cancel one first")
            new = intent.model_copy(update={"id": secrets.token_hex(4)})
            closed = [one for one in known if one not in open_ones]
            return (*closed[-MAX_INTENTS:], *open_ones, new), new

        return self._changed(owner, added)

    def cancel(self, owner: NamespaceRef, name: str) -> Intent | None:
        """Cancel an intent and return it; None if there is none with this id."""

        def cancelled(known: tuple[Intent, ...]) -> tuple[tuple[Intent, ...], Intent | None]:
            found = next((one for one in known if one.id == name), None)
            if found is None:
                return known, None
            gone = found.model_copy(update={"cancelled": True})
            return tuple(gone if one is found else one for one in known), gone

        return self._changed(owner, cancelled)

    def due(
        self, owner: NamespaceRef, message: str, *, chats: Sequence[str], senders: Sequence[str], now_ms: int
    ) -> tuple[Intent, ...]:
        """Return the intents that a message triggers, at most three, and count them as given."""
        if not self.all(owner):
            return ()

        def fired(known: tuple[Intent, ...]) -> tuple[tuple[Intent, ...], tuple[Intent, ...]]:
            found = [
                one
                for one in known
                if one.status(now_ms) == "armed"
                and (not one.chat or one.chat in chats)
                and (not one.sender or one.sender in senders)
                and one.is_about(message)
            ][:_MOST_GIVEN]
            counted = {
                one.id: one.model_copy(update={"fires": one.fires + 1, "fired": now_ms}) for one in found
            }
            return tuple(counted.get(one.id, one) for one in known), tuple(found)

        return self._changed(owner, fired)

    def _changed(
        self, owner: NamespaceRef, change: Callable[[tuple[Intent, ...]], tuple[tuple[Intent, ...], _T]]
    ) -> _T:
        for _ in range(_ATTEMPTS):
            kept = self.outbox.get(owner, _NAME)
            known = _decoded(kept.value)
            after, result = change(known)
            if after == known:
                return result
            update = ValueUpdate(owner, _NAME, _INTENTS.dump_json(after), kept.revision, lasting=True)
            try:
                self.outbox.compare_and_set(update)
            except RevisionConflict:
                continue  # another process has just changed them
            return result
        raise GatewayError("another process keeps changing the standing intents; try again")


def _decoded(value: bytes) -> tuple[Intent, ...]:
    try:
        return _INTENTS.validate_json(value) if value else ()
    except ValidationError:
        return ()
