"""Sessions and their turns: whose they are, whether memory is on, and what is noted of them while they live.

Here the one `gateway_plugin.turn.Turn` of a turn is made. Of a session are kept echoes, the block last injected, the last
turn's trace. Imports neither recall nor capture, the two halves of a turn, which import it.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Final

from cachetools import LRUCache

from gateway_plugin.clock import Clock
from gateway_plugin.errors import IdentityError
from gateway_plugin.identity import Identity, KeyHolder, NamespaceRef, SessionRef, identify, parse_session_key
from gateway_plugin.outbox.queue import Outbox, OutboxItem, OutboxUnavailable, ValueUpdate
from gateway_plugin.settings import PluginSettings, RecallMode
from gateway_plugin.status import CaptureReport, NotifyOnce, TurnTrace
from gateway_plugin.turn import HostTurn, Purpose, Turn, explain, gate
from relayer.wire.schemas import AnalyzeResponse

MAX_SESSIONS: Final = 1000


class Identities:
    """Finds identities for one plugin.

    Args:
        holder: the keys at hand; None while memory is switched off.
        settings: scope, fixed agent, default, and agents whose keys were rotated.
        agent: who speaks when a session key names nobody; None takes the settings'.
    """

    def __init__(self, holder: KeyHolder | None, settings: PluginSettings, agent: str | None = None) -> None:
        self.holder = holder
        self._settings = settings
        self._agent = agent
        # What a session's turns have in common is told at the first of them.
        self._identified = lru_cache(MAX_SESSIONS)(self._identify)

    @property
    def account(self) -> str:
        """The account's id; "" while memory is switched off."""
        return self.holder.account if self.holder is not None else ""

    @property
    def gateway(self) -> NamespaceRef:
        """An owner of no namespace, for what is the whole gateway's."""
        agent = self.holder.only_agent if self.holder is not None else None
        return NamespaceRef(agent or "", "", 0)

    def of_turn(self, ref: SessionRef, host: HostTurn) -> Identity:
        """Tell whose turn it is; raises `IdentityError`."""
        return self._identified(ref, host.agent, host.sender, host.workspace)

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
            scope=self._settings.namespace.scope,
            sender=sender,
            workspace=workspace,
            renamed=self._settings.namespace.renamed,
        )

    def of_owner(self, owner: NamespaceRef) -> Identity:
        """Return the identity that delivers an item; raises `IdentityError`."""
        holder = self._held()
        # What was captured before an agent's keys were rotated goes where its memories are now.
        agent = self._settings.namespace.renamed.get(owner.agent, owner.agent)
        _, slash, below = owner.namespace.partition("/")
        return Identity(
            agent=agent,
            account=holder.account,
            namespace=f"{agent}{slash}{below}",
            generation=owner.generation,
            keys=holder.agent(agent),
            credential=holder.credential(agent),
        )

    def _held(self) -> KeyHolder:
        if self.holder is None:
            raise IdentityError("memory is switched off by MEMRELAY_DISABLE")
        return self.holder


_OFF: Final = b"off"
_ON: Final = b"on"
_EVERYWHERE: Final = "everywhere"


class Toggles:
    """The switches of one gateway; all of it raises `OutboxUnavailable` where they cannot be read or kept.

    Args:
        outbox: where they are kept.
        gateway: an owner of no namespace, under which the gateway's own switch is kept.
    """

    def __init__(self, outbox: Outbox, gateway: NamespaceRef) -> None:
        self._outbox = outbox
        self._gateway = gateway

    def is_on(self, owner: NamespaceRef, session: str) -> bool:
        """Whether memory is on for a session of a namespace, by its own switch, its agent's and the gateway's."""
        asked = (
            (self._gateway, _EVERYWHERE),
            (self._gateway, _of_agent(owner.agent)),
            (owner, _name(session)),
        )
        return all(found.value != _OFF for found in self._outbox.get_all(asked))

    def set_session(self, owner: NamespaceRef, session: str, *, enabled: bool) -> None:
        """Switch a session."""
        self._set(owner, _name(session), enabled=enabled)

    @property
    def enabled_everywhere(self) -> bool:
        """Whether memory is on at all."""
        return self._is_on(self._gateway, _EVERYWHERE)

    def agent_enabled(self, agent: str) -> bool:
        """Whether memory is on for an agent, by its normal name, as far as its own switch goes."""
        return self._is_on(self._gateway, _of_agent(agent))

    def set_agent(self, agent: str, *, enabled: bool) -> None:
        """Switch every session of an agent, by its normal name."""
        self._set(self._gateway, _of_agent(agent), enabled=enabled)

    def set_everywhere(self, *, enabled: bool) -> None:
        """Switch the whole gateway."""
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


class Turns:
    """Makes the turns of one plugin.

    Args:
        toggles: the gateway's switches.
        identities: whose turns they are.
        settings: a fixed agent, if there is one, and what the gates go by.
        notify_once: told why the switches cannot be read.
    """

    def __init__(
        self, toggles: Toggles, identities: Identities, settings: PluginSettings, notify_once: NotifyOnce
    ) -> None:
        self._toggles = toggles
        self._identities = identities
        self._settings = settings
        self._notify_once = notify_once

    def of(
        self, session: SessionRef, host: HostTurn, query: str, purpose: Purpose, *, success: bool = True
    ) -> Turn:
        """Make a turn and ask the gates about it.

        Args:
            session: what the host's session key says.
            host: what else the host knows.
            query: the cleaned latest user message.
            purpose: what the turn wants of memory.
            success: the run ended well.
        """
        turn = self._made(session, host, query, success=success)
        if turn.outbox_error:
            self._notify_once(turn.outbox_error)
        gates, active = explain(turn, self._settings, purpose), None
        if purpose is Purpose.RECALL and self._settings.recall.mode is RecallMode.ACTIVE:
            active = gate(turn, self._settings, Purpose.ACTIVE)
            # Whom active mode is not for is left alone, unless the settings give them the direct hits (AM-02).
            if not active.allowed and self._settings.active.otherwise == "silent":
                gates = (*gates, active)
        return replace(turn, gates=gates, active=active)

    def known(self, key: str | None, host: HostTurn, query: str = "", *, success: bool = True) -> Turn:
        """Make a turn about which no gate is asked; raises `IdentityError` for a session key that is none."""
        return self._made(parse_session_key(key or ""), host, query, success=success)

    def _made(self, ref: SessionRef, host: HostTurn, query: str, *, success: bool) -> Turn:
        whose, enabled, unreadable = self._identified(ref, host), True, ""
        if isinstance(whose, Identity):
            try:
                enabled = self._toggles.is_on(whose.ref, ref.key)
            except OutboxUnavailable as error:
                enabled, unreadable = False, str(error)
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

    def namespace_of(self, key: str, host: HostTurn) -> str:
        """Return the namespace of a session; "" where whose it is cannot be told."""
        try:
            return self._identities.of_turn(parse_session_key(key), host).namespace
        except IdentityError:
            return ""

    def _identified(self, ref: SessionRef, host: HostTurn) -> Identity | IdentityError:
        try:
            return self._identities.of_turn(ref, host)
        except IdentityError as error:
            return error


_MAX_MEMORIES: Final = 500
_MIN_WORDS: Final = 3
_WORD: Final = re.compile(r"\w+(?:['\u2019]\w+)*")
# Articles, present copulas, the two who talk, politeness, and how an answer refers to what it remembers. Not "was" and not
# "she": another tense or another person is another fact.
_EMPTY_WORDS: Final = frozenset(
    {
        "a", "an", "the", "that", "is", "are", "am", "i", "you", "we", "me", "us", "my", "your", "our", "mine", "yours",
        "i'm", "you're", "i've", "you've", "user", "assistant", "said", "told", "mentioned", "remember", "know", "so",
        "well", "also", "and", "just", "please", "thanks", "noted", "ok", "okay", "yes", "sure",
    }
)  # fmt: skip


class EchoFilter:
    """The memories injected into one session; the oldest are let go beyond 500."""

    def __init__(self) -> None:
        self._injected: LRUCache[tuple[str, ...], None] = LRUCache(_MAX_MEMORIES)
        # What was injected since a turn was captured: nobody waits for an answer while it is read then.
        self._unread: dict[str, None] = {}

    def injected(self, texts: Iterable[str]) -> None:
        """Note memories that entered the prompt."""
        self._unread.update(dict.fromkeys(texts))
        if len(self._unread) > _MAX_MEMORIES:
            self._read()

    def _read(self) -> None:
        for text in self._unread:
            for part in (text, *text.splitlines()):
                gist = _gist(part)
                if len(gist) >= _MIN_WORDS:
                    self._injected[gist] = None
        self._unread.clear()

    def without_echoes(self, text: str) -> str:
        """Return a text without the lines that are echoes; "" when all of it is."""
        self._read()
        if not self._injected:
            return text
        if self._is_echo(text):
            return ""
        lines = text.split("\n")
        kept = [line for line in lines if not self._is_echo(line)]
        return text if len(kept) == len(lines) else "\n".join(kept).strip()

    def _is_echo(self, text: str) -> bool:
        return _gist(text) in self._injected


def folded(text: str) -> str:
    """Return a text for comparison: compatibility forms and case make no difference, nor does how an apostrophe is written."""
    return unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'")


def _gist(text: str) -> tuple[str, ...]:
    return tuple(word for word in _WORD.findall(folded(text)) if word not in _EMPTY_WORDS)


@dataclass(slots=True)
class Session:
    """One chat session of one namespace.

    ``sticky`` is the block last injected, by the memories in it: the same memories give the same bytes, whatever order
    they were found in and whatever day it has become. ``captured`` tells of the turn that was captured last. ``begins`` says
    that it has not been told yet what was said lately.
    """

    echoes: EchoFilter = field(default_factory=EchoFilter)
    sticky: tuple[frozenset[str], str] = (frozenset(), "")
    captured: CaptureReport | None = None
    begins: bool = False


class Sessions:
    """Sessions by namespace and key; the least recently used are forgotten."""

    def __init__(self, limit: int = MAX_SESSIONS) -> None:
        self._known: LRUCache[tuple[str, str], Session] = LRUCache(limit)

    def of(self, namespace: str, key: str) -> Session:
        """Return a session, a new one if it is not known."""
        return self._known.setdefault((namespace, key), Session())


WHY_MARK: Final = "why"
"""Under this name the outbox keeps the trace of an agent's last turn."""
WHY_CAPTURED: Final = "why_captured"
"""Under this name, what the relayer kept of an agent's last captured turn, and why not of the rest; no text."""


class LastTurn:
    """The traces of the last turns: ``trace`` is the latest of all, which is no chat's to see.

    Args:
        outbox: where it is noted.
        noted: whether it may be: where capture is switched off, nothing is written.
    """

    def __init__(self, outbox: Outbox, *, noted: bool) -> None:
        self.trace = TurnTrace("")
        self._outbox = outbox
        self._noted = noted
        self._known: LRUCache[tuple[str, str], TurnTrace] = LRUCache(MAX_SESSIONS)
        self._owed: tuple[NamespaceRef, TurnTrace] | None = None
        self._captured: dict[NamespaceRef, dict[str, object]] = {}

    def of(self, namespace: str, session: str) -> TurnTrace:
        """Return the trace of a session of a namespace; an empty one if none is known."""
        return self._known.get((namespace, session), TurnTrace(""))

    def saw(self, namespace: str, session: str, trace: TurnTrace) -> None:
        """Take the trace of a session's turn, "" being the namespace where it could not be told."""
        self.trace = self._known[namespace, session] = trace

    def note(self, owner: NamespaceRef, trace: TurnTrace) -> None:
        """Have a trace written with the next `persist`."""
        self._owed = (owner, trace)

    def captured(self, item: OutboxItem, answer: AnalyzeResponse) -> None:
        """Have what the relayer said of a captured turn written with the next `persist`."""
        roles = [turn.role for turn in item.request.turns]
        self._captured[item.owner] = {
            "session": item.request.session,
            "queued_at": item.queued_at,
            "messages": roles,
            "verdicts": [verdict.model_dump() for verdict in answer.verdicts if verdict.turn < len(roles)],
        }

    def persist(self) -> None:
        """Write what was noted since.

        Raises:
            OutboxUnavailable: the file cannot be written; the trace is not tried again.
        """
        while self._captured and self._noted:
            owner, said = self._captured.popitem()
            self._outbox.compare_and_set(ValueUpdate(owner, WHY_CAPTURED, json.dumps(said).encode()))
        owed, self._owed = self._owed, None
        if owed is not None and self._noted:
            owner, trace = owed
            self._outbox.compare_and_set(ValueUpdate(owner, WHY_MARK, json.dumps(asdict(trace)).encode()))


TURNS: Final = 10
# No gateway answers more sessions at once; one that opens a session for each turn has them counted from here on.
_MOST_AT_ONCE: Final = 200
_DAY: Final = 24 * 3600.0


class Watchdog:
    """Counts turns that recalled since the last one whose messages were handed over.

    Args:
        clock: the time.
        notify: told the warning, once a day at most.
        enabled: False where capture is switched off on purpose.
    """

    def __init__(self, clock: Clock, notify: Callable[[str], None], *, enabled: bool) -> None:
        self._clock = clock
        self._notify = notify
        self._enabled = enabled
        self._turns = 0
        self._open: set[str] = set()
        self._warned: float | None = None

    @property
    def warning(self) -> str:
        """The warning while it holds, else ""."""
        if not self._enabled or self._turns < TURNS:
            return ""
        return (
            f"{self._turns} turns recalled memories and none was handed over for capture: nothing is being remembered. "
            "The host must deliver the end of a turn (OpenClaw: "
            "plugins.entries.<id>.hooks.allowConversationAccess = true); memrelay-gateway doctor tells more"
        )

    def recalled(self, session: str = "") -> None:
        """Note a turn of a person that recalled, found something or not.

        Of many sessions at once, each may have one whose end is still to come: counted is the next one of the same session.
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
        """Note a turn whose messages arrived, worth keeping or not."""
        self._turns = 0
        self._open.clear()
