"""What is known of a turn, and whether it may recall, use active mode, or be captured.

A turn is made once, by `gateway_plugin.sessions.Turns`, and handed to whoever works for it. The host says what is in it, and the
settings; nothing comes from the model. Gates are one pure function over it: asked in the order of ``GATES``, the first that objects
decides and gives the reason. Nothing here looks at a clock, a file or an environment, so the whole behaviour is the truth table of
its tests, and ``explain`` can show it for any turn.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol

from gateway_plugin.errors import IdentityError
from gateway_plugin.identity import Audience, Identity, RunKind, SessionRef
from gateway_plugin.people import Hearing, platform_id
from gateway_plugin.settings import PluginSettings
from gateway_plugin.text.patterns import compile_pattern, matches
from relayer.wire.fields import NOBODY_KNOWN, one_line


class SessionLogs(Protocol):
    """A host's sessions where they are no folder of files."""

    def entries(self, path: str) -> Iterator[Mapping[str, Any]]:
        """Yield a session's messages, oldest first; raises as `gateway_plugin.transcript.read_transcript`."""
        ...


class HostFiles(Protocol):
    """An agent's files that tools may read."""

    def read(self, path: str, *, private: bool) -> str | None:
        """Return the text of a file; None where there is none, it lies elsewhere, or it is ``private`` and may not be told."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTurn:
    """A turn as its host sees it.

    Attributes:
        host: the host's name, kept with captured memories.
        agent: the agent, where the host knows it better than the session key says.
        audience: who reads the answer, likewise. Worth giving: a key that names a platform and no type of chat hears
            what a group may hear, and its turns are kept from groups.
        sender: the host's id of the person who wrote: whose words they are in a group, and for ``namespace.scope = agent+sender``.
        platform: the platform on which they wrote; "" takes the session key's.
        workspace: the host's id of the workspace, for ``agent+workspace``.
        trigger: what started the run: ``user``, ``cron``, ``heartbeat``, ...; "" when the host says nothing.
        run_id: the host's id of the run.
        chat_id: the platform's id of the chat, for allow and deny lists; None takes the session key's.
        turn_id: what names this end of a turn to the host; one that was captured is not captured again when it is handed over again.
        searches: False where the host's own switch of memory is off: nothing is recalled.
        inter_session: the prompt came from another session or an internal tool, not from a person.
        interactive: a person waits in a lasting session (not a one-shot command).
        stop_reason: why the last answer ended; ``error`` and ``aborted`` are not captured: some hosts call a provider's
            error a success and say it here.
        first_turn: the session begins with this turn: it may be given what was said lately.
        model: the session's language model, as the host names it.
        transcripts: the directory of the host's session logs, outside of which no tool reads; or its sessions.
        files: the agent's files; None where tools read memories alone.
    """

    host: str = ""
    agent: str | None = None
    audience: Audience | None = None
    sender: str | None = None
    workspace: str | None = None
    trigger: str = "user"
    run_id: str = ""
    chat_id: str | None = None
    turn_id: str = ""
    searches: bool = True
    inter_session: bool = False
    interactive: bool = True
    stop_reason: str = ""
    first_turn: bool = False
    model: str = ""
    transcripts: Path | SessionLogs | None = None
    files: HostFiles | None = None
    platform: str = ""

    def among_several(self, session: SessionRef) -> bool:
        """Tell whether several people speak, whose names a host puts before their words."""
        return self.heard_by(session) in {Audience.GROUP, Audience.CHANNEL}

    def heard_by(self, session: SessionRef) -> Audience | None:
        """Return who reads the answer; None when there is no chat session at all."""
        return self.audience or (session.audience if session.key else None)


@dataclass(frozen=True, slots=True)
class Decision:
    """What the gates say.

    Attributes:
        allowed: whether to go on.
        gate: the gate that objected; "" when none did.
        reason: why, in words, without any text of the turn.
    """

    allowed: bool
    gate: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What is known of a turn.

    Attributes:
        session: the parsed session key.
        host: what the host told besides.
        query: the *cleaned* latest user message, see `gateway_plugin.query.clean_query`; what is measured and searched for.
        whose: the agent, its namespace and keys, or why they cannot be told: a turn that a gate stops needs none, and
            shows no error about them.
        agent: the agent's name where settings or host fix it; None takes the session key's.
        outbox_error: why the outbox, and with it the switches, cannot be read; "" when it can.
        session_enabled: nobody switched memory off, here or everywhere.
        success: the run ended well (capture only).
        gates: every gate's decision, in order; empty where none was asked.
        active: what the gates say about active mode; None where the settings do not ask for it.
        owners: ids of the agent's owner on every platform, as `gateway_plugin.people.platform_id` has them.
    """

    session: SessionRef
    host: HostTurn = HostTurn()
    query: str = field(default="", repr=False)
    whose: Identity | IdentityError
    agent: str | None = None
    outbox_error: str = ""
    session_enabled: bool = True
    success: bool = True
    gates: tuple[Decision, ...] = ()
    active: Decision | None = None
    owners: frozenset[str] = frozenset()

    @property
    def identity(self) -> Identity:
        """Whose turn it is; raises `IdentityError`."""
        if isinstance(self.whose, IdentityError):
            raise self.whose
        return self.whose

    @property
    def namespace(self) -> str:
        """The namespace; "" where whose turn it is cannot be told."""
        return "" if isinstance(self.whose, IdentityError) else self.whose.namespace

    @property
    def decision(self) -> Decision:
        """What the first gate says that objects."""
        return next((one for one in self.gates if not one.allowed), Decision(True))

    @property
    def listed_as(self) -> str:
        """The agent's name as settings list it."""
        return self.agent or self.session.listed_as

    @property
    def heard_by(self) -> Audience | None:
        """Who reads the answer; None when there is no chat session at all."""
        return self.host.heard_by(self.session)

    @property
    def said_to(self) -> Audience | None:
        """Who could hear what was said; None as in `heard_by`."""
        return self.host.audience or (self.session.said_to if self.session.key else None)

    @property
    def person(self) -> str:
        """The id of the person who wrote; "" where the host does not name them."""
        return platform_id(self._platform, self.host.sender) if self.host.sender else ""

    @property
    def place(self) -> str:
        """The id of the group, whatever the thread, or of the person whose direct chats are kept apart; "" in the owner's."""
        if self.said_to is None:
            return ""
        if self.said_to is Audience.DIRECT:
            return self._peer or (self._group if self._is_doubtful else "")
        return self._group or NOBODY_KNOWN

    @property
    def hearing(self) -> Hearing:
        """Whose memories may be told in it."""
        if self.host.among_several(self.session):
            return Hearing.of_group(self._group, self.owners, doubtful=self._is_doubtful)
        if self._peer and self.owners.isdisjoint({self._peer, self.person}):
            return Hearing.of_peer(self._peer, self.person)
        # The host may know the owner under another id than the session key.
        return Hearing.of_owner(self.owners | {self._peer}, self.person)

    @property
    def _platform(self) -> str:
        return self.host.platform or self.session.platform or self.host.host or "host"

    @property
    def _peer(self) -> str:
        # Where the host follows a person across platforms, the key names the person and no platform.
        peer = self.session.peer
        return "" if peer is None else platform_id(self.session.platform or "peer", peer)

    @property
    def _is_doubtful(self) -> bool:
        """Whether neither the key nor the host says how many people are there."""
        return self.host.audience is None and self.session.audience is not self.session.said_to

    @property
    def _group(self) -> str:
        # The word in the key is about this chat only if it says that several people are in it.
        named = self.session.chat if self.session.said_to is not Audience.DIRECT else None
        chat = _THREAD.sub("", named or self.host.chat_id or self.session.key)
        return platform_id(self.session.platform or self._platform, chat) if chat else ""


_THREAD: Final = re.compile(r":(?:thread|topic):.*", re.DOTALL | re.IGNORECASE)


class Purpose(StrEnum):
    """What the turn wants to do with memory."""

    RECALL = "recall"
    ACTIVE = "active"
    CAPTURE = "capture"


_Gate = Callable[[Turn, PluginSettings, Purpose], str | None]
"""A gate returns its objection, or None."""

_OWN_RUNS: Final = {
    RunKind.ACTIVE_MEMORY: "the host's own recall",
    RunKind.MEMORY_CAPTURE: "the host's own memory run",
}
_RUN_TRIGGERS: Final = {
    RunKind.SUBAGENT: "subagent",
    RunKind.CRON: "cron",
    RunKind.HEARTBEAT: "heartbeat",
    RunKind.HOOK: "hook",
}
# What nobody said is not remembered, whatever may be recalled there.
_NEVER_CAPTURED: Final = frozenset(_RUN_TRIGGERS.values()) | {"memory", "manual"}

_COMMANDS: Final = frozenset(
    [
        "status",
        "model",
        "models",
        "reset",
        "new",
        "approve",
        "deny",
        "stop",
        "memory",
        "active-memory",
        "verbose",
        "trace",
        "compact",
        "think",
        "help",
        "commands",
        "restart",
        "config",
        "debug",
        "usage",
        "context",
        "whoami",
        "queue",
        "elevated",
        "exec",
    ]
)
_COMMAND: Final = re.compile(r"/([A-Za-z][A-Za-z0-9_-]{0,40})(?:@\w{1,64})?(?=\s|:|$)")
_CONTROL: Final = re.compile(
    r"\W*(?:NO_REPLY|HEARTBEAT_OK)\b"
    r"|[\s\S]*\b(?:reply|respond|answer)\b[^\n]{0,40}\b(?:NO_REPLY|HEARTBEAT_OK)\W*\Z"
)


def gate(turn: Turn, settings: PluginSettings, purpose: Purpose = Purpose.RECALL) -> Decision:
    """Decide whether a turn may use memory for a purpose."""
    for name, objection in GATES:
        reason = objection(turn, settings, purpose)
        if reason is not None:
            return Decision(False, name, reason)
    return Decision(True)


def explain(turn: Turn, settings: PluginSettings, purpose: Purpose = Purpose.RECALL) -> tuple[Decision, ...]:
    """Ask every gate, also behind the first that objects; one decision per gate, in order."""
    decisions = []
    for name, objection in GATES:
        reason = objection(turn, settings, purpose)
        decisions.append(Decision(reason is None, name, reason or ""))
    return tuple(decisions)


def is_slash_command(text: str) -> bool:
    """Tell whether a cleaned message is a host's command: a known one with arguments, or any one-word ``/name``.

    A path such as ``/etc/hosts is wrong`` is no command.
    """
    match = _COMMAND.match(text)
    return match is not None and (match[1].lower() in _COMMANDS or match.end() == len(text.rstrip()))


def is_control_text(text: str) -> bool:
    """Tell whether a cleaned message is one of the host's control words, or the prompt that asks for one."""
    head = text[:2000]
    return _CONTROL.match(head if len(text) <= 2000 else head + "\n" + text[-200:]) is not None


def effective_length(text: str) -> int:
    """Count visible characters, wide ones (Chinese, Japanese, Korean) as two: they say about twice as much."""
    line = one_line(text)
    return (
        len(line)
        if line.isascii()
        else sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)
    )


def _switch(_turn: Turn, settings: PluginSettings, _purpose: Purpose) -> str | None:
    return "MEMRELAY_DISABLE is set" if settings.disabled else None


def _enabled(_turn: Turn, settings: PluginSettings, purpose: Purpose) -> str | None:
    if purpose is Purpose.CAPTURE:
        return None if settings.capture.enabled else "capture.enabled is false"
    if not settings.recall.enabled:
        return "recall.enabled is false"
    if purpose is Purpose.ACTIVE and settings.recall.mode != "active":
        return "recall.mode is not active"
    return "active.mode is off" if purpose is Purpose.ACTIVE and settings.active.mode == "off" else None


def _host(turn: Turn, _settings: PluginSettings, purpose: Purpose) -> str | None:
    off = purpose is not Purpose.CAPTURE and not turn.host.searches
    return "the host's memory.search.enabled is false" if off else None


def _outbox(turn: Turn, _settings: PluginSettings, _purpose: Purpose) -> str | None:
    if not turn.outbox_error:
        return None
    return f"whether memory is switched off cannot be read, so it stays silent: {turn.outbox_error}"


def _session_toggle(turn: Turn, _settings: PluginSettings, _purpose: Purpose) -> str | None:
    if turn.outbox_error:
        return "whether memory is on for this session cannot be told"
    return None if turn.session_enabled else "memory is off for this session"


def _agents(turn: Turn, settings: PluginSettings, purpose: Purpose) -> str | None:
    name = turn.listed_as.casefold()
    if purpose is Purpose.ACTIVE:
        listed = {agent.casefold() for agent in settings.active.agents}
        return None if name in listed else "the agent is not listed in active.agents"
    listed = {agent.casefold() for agent in settings.recall.agents}
    if purpose is Purpose.RECALL and listed and name not in listed:
        return "the agent is not listed in recall.agents"
    return None


def _run_kind(turn: Turn, settings: PluginSettings, purpose: Purpose) -> str | None:
    run = turn.session.run
    if run in _OWN_RUNS or turn.host.run_id.startswith("active-memory-"):
        return f"this is {_OWN_RUNS.get(run, _OWN_RUNS[RunKind.ACTIVE_MEMORY])}"
    if (
        turn.host.inter_session
        or turn.host.run_id.startswith("announce:")
        or turn.session.key.startswith("announce:")
    ):
        return "the message comes from another session, not from a person"
    word = _RUN_TRIGGERS.get(run)
    skipped = word in settings.recall.skip_triggers if purpose is Purpose.RECALL else word is not None
    return f"this is a {word} run" if word and skipped else None


def _trigger(turn: Turn, settings: PluginSettings, purpose: Purpose) -> str | None:
    word = turn.host.trigger.strip().lower()
    if purpose is Purpose.ACTIVE and word not in {"", "user"}:
        return f"the trigger is {word[:32]}, not user"
    skipped = {trigger.lower() for trigger in settings.recall.skip_triggers}
    if purpose is Purpose.CAPTURE:
        skipped = skipped | _NEVER_CAPTURED
    return f"the trigger is {word[:32]}" if word in skipped else None


def _interactive(turn: Turn, settings: PluginSettings, purpose: Purpose) -> str | None:
    if turn.host.interactive or purpose is Purpose.CAPTURE:
        return None
    left_alone = purpose is Purpose.ACTIVE or not settings.recall.one_shots
    return "nobody waits in this run" if left_alone else None


def _session_pattern(turn: Turn, settings: PluginSettings, _purpose: Purpose) -> str | None:
    hit = _first_match(settings.recall.skip_session_patterns, turn.session.key)
    return None if hit is None else f"recall.skipSessionPatterns[{hit}] matches the session"


def _chat_type(turn: Turn, settings: PluginSettings, purpose: Purpose) -> str | None:
    heard_by = turn.host.audience or turn.session.audience
    if purpose is Purpose.RECALL and heard_by not in settings.recall.allowed_chat_types:
        return f"recall.allowedChatTypes leaves out {heard_by}"
    if purpose is Purpose.ACTIVE and heard_by not in settings.active.allowed_chat_types:
        return f"allowedChatTypes leaves out {heard_by}"
    return None


def _chat_id(turn: Turn, settings: PluginSettings, purpose: Purpose) -> str | None:
    if purpose is not Purpose.ACTIVE:
        return None
    chat = turn.host.chat_id or turn.session.chat
    if chat in settings.active.denied_chat_ids:
        return "deniedChatIds lists this chat"
    # An allow list with a chat we cannot name stays closed (AM-05).
    if settings.active.allowed_chat_ids and chat not in settings.active.allowed_chat_ids:
        return "allowedChatIds does not list this chat"
    return None


def _outcome(turn: Turn, _settings: PluginSettings, purpose: Purpose) -> str | None:
    if purpose is not Purpose.CAPTURE:
        return None
    if not turn.success:
        return "the run failed"
    return "the answer ended in an error" if turn.host.stop_reason in {"error", "aborted"} else None


def _slash(turn: Turn, _settings: PluginSettings, _purpose: Purpose) -> str | None:
    return "the message is a command" if is_slash_command(turn.query) else None


def _control_text(turn: Turn, _settings: PluginSettings, _purpose: Purpose) -> str | None:
    return "the message is a control word of the host" if is_control_text(turn.query) else None


def _min_length(turn: Turn, settings: PluginSettings, purpose: Purpose) -> str | None:
    length = effective_length(turn.query)
    if length == 0:
        return "the message is empty once cleaned"
    least = settings.recall.min_prompt_length
    # Messages are measured one by one when they are captured.
    return None if purpose is Purpose.CAPTURE or length >= least else f"prompt too short: {length} < {least}"


def _skip_pattern(turn: Turn, settings: PluginSettings, purpose: Purpose) -> str | None:
    if purpose is Purpose.CAPTURE:
        return None
    hit = _first_match(settings.recall.skip_patterns, turn.query)
    return None if hit is None else f"recall.skipPatterns[{hit}] matches the message"


def _first_match(sources: tuple[str, ...], text: str) -> int | None:
    # ``re`` caches what it compiled; settings were validated when they were read.
    return next(
        (index for index, source in enumerate(sources) if matches(compile_pattern(source), text)), None
    )


GATES: Final[tuple[tuple[str, _Gate], ...]] = (
    ("switch", _switch),
    ("enabled", _enabled),
    ("host", _host),
    ("outbox", _outbox),
    ("session_toggle", _session_toggle),
    ("agents", _agents),
    ("run", _run_kind),
    ("trigger", _trigger),
    ("interactive", _interactive),
    ("session_pattern", _session_pattern),
    ("chat_type", _chat_type),
    ("chat_id", _chat_id),
    ("outcome", _outcome),
    ("slash_command", _slash),
    ("control_text", _control_text),
    ("min_length", _min_length),
    ("skip_pattern", _skip_pattern),
)
"""The gates in the order in which they are asked."""
