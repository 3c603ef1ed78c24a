"""Turns: who speaks and who hears, and the gates that decide whether a turn may recall, use active mode, or be captured.

A `Turn` is created once, by `gateway_plugin.sessions.Turns`, from what the host says (`HostTurn`), the session key and the
settings; nothing in it comes from the model. The gates are pure functions of a turn and the settings. They are asked in the
order of ``GATES``, and the first one that objects decides (`gate`); `explain` returns the decisions of all of them. Nothing
here reads a clock, a file or the environment, so tests cover the behaviour as a truth table.

People and places are ids of the host's platform, such as ``telegram:777`` and ``telegram:-100123``. `Hearing` says which
memories the readers of a turn may see: it is sent to the relayer as audience filters, and applied again to what the
relayer returns. Display names, which people choose themselves, are shown but never decide about access.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain, combinations
from pathlib import Path
from typing import Any, Final, Protocol

from gateway_plugin.errors import IdentityError
from gateway_plugin.keys.identity import Identity, RunKind, SessionRef, TurnAudience, platform_id
from gateway_plugin.settings.model import PluginSettings
from gateway_plugin.text.patterns import compile_pattern, matches
from relayer.wire.fields import NOBODY_KNOWN, audience_filters, one_line
from relayer.wire.labels import PROJECTS
from relayer.wire.schemas import Memory
from relayer.wire.service import ProfileLine


class SessionLogs(Protocol):
    """The session logs of a host that does not keep them as files in a directory."""

    def entries(self, path: str) -> Iterator[Mapping[str, Any]]:
        """Yield the messages of a session, oldest first; raises like `gateway_plugin.files.indexed.read_transcript`."""
        ...


class HostFiles(Protocol):
    """The files of an agent that memory tools may read."""

    def read(self, path: str, *, private: bool) -> str | None:
        """Return the text of a file.

        Args:
            path: the path as the model gave it.
            private: whether the agent's owner is the only reader of the answer.

        Returns:
            The text; None if there is no such file, it is outside of the agent's files, or it must not be disclosed to
            these readers.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTurn:
    """The information that a host has about a turn besides the session key. Every field is optional.

    Attributes:
        host: the host's name, which is stored with captured memories.
        agent: the agent, if the host knows better than the session key.
        audience: the kind of chat in which the answer is read, if the host knows better than the session key. Set it if
            you can: if the key names a platform but no kind of chat, only what a group may know is recalled, and what is
            said is not disclosed in groups.
        sender: the host's id of the person who wrote, with or without the platform before it (``777``, ``telegram:777``). It
            attributes words in a group to that person, and selects the namespace if ``namespace.scope`` is ``agent+sender``.
        platform: the platform on which the person wrote; "" takes it from the session key.
        workspace: the host's id of the workspace; it selects the namespace if the scope is ``agent+workspace``.
        trigger: what started the run: ``user``, ``cron``, ``heartbeat``, ...; "" if the host does not say.
        run_id: the host's id of the run.
        chat_id: the platform's id of the chat, for allow and deny lists; None takes it from the session key.
        turn_id: the host's id of this end of a turn. A turn that is handed over twice with the same id is captured once.
        searches: False if the host's own memory switch is off; nothing is then recalled.
        inter_session: whether the prompt came from another session or an internal tool, not from a person.
        interactive: whether a person waits for the answer in a lasting session; False for a one-shot command.
        stop_reason: why the last answer ended. After ``error`` or ``aborted`` the turn counts as failed: some hosts report
            a provider's error as a success and only set this.
        first_turn: whether the session begins with this turn; it may then get the newest memories.
        model: the session's language model, as the host names it.
        transcripts: the directory of the host's session logs, the only one that tools read logs from; or an object that
            reads the host's sessions. None if the host has no logs.
        files: the agent's files; None if tools can read memories only.
        prompted: names of files whose whole text the host puts into the prompt itself, as searches cite them. Memories of
            their lines are not injected.
        by_person: whether a person called the tool, by a command in a chat, and not the model.
        keeps_secrets: whether that person asked to store the text with its secrets. It counts only with ``by_person``.
        without_groups: whether what was said in groups is left out, although the reader may see it.
        projects: the repositories in which the session works, as the host names them; None if it does not say.
        earlier: whether the host stored the turn before memory was there: how much a member of a group said then is not
            limited by the hour.
    """

    host: str = ""
    agent: str | None = None
    audience: TurnAudience | None = None
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
    prompted: frozenset[str] = frozenset()
    by_person: bool = False
    keeps_secrets: bool = False
    without_groups: bool = False
    projects: frozenset[str] | None = None
    earlier: bool = False

    def among_several(self, session: SessionRef) -> bool:
        """Return whether the chat is a group or a channel. Hosts put the author's name in front of messages there."""
        return self.heard_by(session) in {TurnAudience.GROUP, TurnAudience.CHANNEL}

    def heard_by(self, session: SessionRef) -> TurnAudience | None:
        """Return the kind of chat in which the answer is read; None outside of chat sessions."""
        return self.audience or (session.audience if session.key else None)


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of one gate, or of all gates together.

    Attributes:
        allowed: whether the turn may use memory.
        gate: the name of the gate; in the decision of all gates, the first one that objected, or "" if none did.
        reason: why it objected, as a sentence without any text of the turn; "" if it did not.
    """

    allowed: bool
    gate: str = ""
    reason: str = ""


_WORD: Final = re.compile(r"\w+")
_SHORTEST_NAME: Final = 2
_SHORTEST_PART: Final = 3
_GROUP: Final = "group"
PROJECTS_APART: Final = "; "
# The host keeps four of a session.
_MOST_PROJECTS: Final = 4


@dataclass(frozen=True, slots=True)
class Hearing:
    """The memories that may be disclosed in a turn, depending on who reads its answer.

    Attributes:
        audiences: audience filters, see `relayer.wire.fields.AudienceFilter`. A memory that passes one of them may be
            disclosed.
        named: further audience filters. A memory that passes one of them may be disclosed only if the query names its
            speaker or its place.
        own: the ids of the person who asks, whose words count as the user's own.
        owners: the ids of the agent's owner.
        private: whether the agent's owner is the only reader.
        projects: the repositories in which the session works; None if the host does not say. It decides what is told without
            being searched for.
    """

    audiences: tuple[str, ...]
    named: tuple[str, ...] = ()
    own: frozenset[str] = frozenset()
    owners: frozenset[str] = frozenset()
    private: bool = False
    projects: frozenset[str] | None = None

    @classmethod
    def of_group(cls, place: str, own: Collection[str], *, doubtful: bool = False) -> Hearing:
        """Return what may be disclosed in a group: what the agent knows, and what was said in this group.

        The user is the member who asks. Everybody else there, the owner included, is another person to them.
        If it may be a direct chat, what is said there is stored as said in one, and disclosed in this chat only.
        """
        itself = (f"direct:{place}",) if doubtful else ()
        return cls(("agent", f"{_GROUP}:", f"{_GROUP}:{place}", *itself), own=frozenset(own) - {""})

    @classmethod
    def of_peer(cls, place: str, person: str) -> Hearing:
        """Return what may be disclosed to a person other than the owner in a direct chat: what they said there and in groups."""
        said = {place, person} - {""}
        audiences = ("agent", f"direct:{place}", *(f"{_GROUP}@{one}" for one in sorted(said)))
        return cls(audiences, own=frozenset(said))

    @classmethod
    def of_owner(cls, owners: Collection[str], person: str) -> Hearing:
        """Return what may be disclosed to the agent's owner in a direct chat.

        That is everything except what other people said. What others said in groups is disclosed if the query names its
        speaker or its place.
        """
        own = {*owners, person} - {""}
        places = (f"direct:{one}" for one in ("", *sorted(own)))
        said = (f"{_GROUP}@{one}" for one in ("", *sorted(own)))
        return cls(("agent", *places, *said), (_GROUP,), frozenset(own), private=True)

    @property
    def lasting(self) -> tuple[str, ...]:
        """Return the filters for memories that are shown without a query.

        The owner's leave out words from groups that name neither a sender nor a speaker.
        """
        return tuple(one for one in self.audiences if not self.private or one != f"{_GROUP}@")

    @property
    def standing(self) -> tuple[str, ...]:
        """Return the filters for the standing block, which is in every prompt: no memories of groups."""
        return tuple(one for one in self.audiences if not one.startswith(_GROUP))

    @property
    def without_groups(self) -> Hearing:
        """Return the same without memories of groups."""
        return replace(self, audiences=self.standing, named=())

    def allows(self, memory: Memory, query: str | None = None) -> bool:
        """Return whether a memory may be disclosed.

        ``query`` is None for a memory that was requested by its id or in a list.
        """
        filters = filters_of(memory)
        asked_for = _meet(filters, self.named) and (query is None or is_named(memory, query))
        return asked_for or _meet(filters, self.audiences)

    def is_of_project(self, memory: Memory) -> bool:
        """Return whether a memory is noted for no repository, or only for such in which the session works."""
        noted = memory.metadata.get(PROJECTS)
        if self.projects is None or not isinstance(noted, str):
            return True
        return self.projects.issuperset(noted.split(PROJECTS_APART))

    @property
    def project_filter(self) -> dict[str, Any]:
        """Return a filter that memories pass of which `is_of_project` is true; {} for none."""
        if self.projects is None:
            return {}
        several = sorted(self.projects)[:_MOST_PROJECTS]
        sets = chain.from_iterable(combinations(several, count) for count in range(1, len(several) + 1))
        named = {PROJECTS: {"in": [PROJECTS_APART.join(keys) for keys in sets]}}
        return {"or": [{"not": {PROJECTS: {"gte": ""}}}, named]}

    def is_own(self, memory: Memory) -> bool:
        """Return whether a memory counts as the user's own: it is not from a group, or the user said it there.

        What the owner told the agent outside of chats is not the own of another person.
        """
        if memory.audience == _GROUP:
            return memory.source.sender in self.own
        # Whether it is known that the person who asks is not the owner.
        for_another = bool(self.owners) and self.own.isdisjoint(self.owners)
        return memory.audience != "agent" or memory.trust != "user" or not for_another


def filters_of(memory: Memory | ProfileLine) -> tuple[str, ...]:
    """Return the audience filters that a memory passes."""
    source = memory if isinstance(memory, ProfileLine) else memory.source
    return audience_filters(memory.audience, source.place, source.sender, source.speaker)


def _meet(filters: Collection[str], audiences: Collection[str]) -> bool:
    return any(one in audiences for one in filters)


def passes(memory: Memory | ProfileLine, audiences: Collection[str]) -> bool:
    """Return whether a memory passes one of the audience filters."""
    return _meet(filters_of(memory), audiences)


def is_named(memory: Memory, query: str) -> bool:
    """Return whether a query names the speaker or the place of a memory, by a word of the name or of the place's id."""
    asked = unicodedata.normalize("NFKC", query).casefold()
    words = set(_WORD.findall(asked))
    speaker = unicodedata.normalize("NFKC", memory.source.speaker).casefold().strip()
    names = {word for word in _WORD.findall(speaker) if len(word) >= _SHORTEST_NAME}
    parts = {word for word in _WORD.findall(memory.source.place.casefold()) if len(word) >= _SHORTEST_PART}
    # Some scripts put no spaces between words, so the name is looked for as a substring, too.
    written_on = bool(speaker) and not speaker.isascii() and speaker in asked
    return not words.isdisjoint(names | parts) or written_on


_USER: Final = "the user"
_OWNER: Final = "the owner"
OWN_VOICE: Final = f"said by {_USER}"
"""The label of what the user said outside of groups."""


def voice(memory: Memory, hearing: Hearing, *, noted: bool, user: str = _USER) -> str:
    """Return a label that says who said a memory and where; "" if neither a person nor an assistant said it.

    ``noted`` says that a language model wrote the memory.
    """
    own, source = hearing.is_own(memory), memory.source
    where = ""
    if memory.audience == _GROUP:
        where = f" in the group {source.place}" if source.place else " in a group"
    person = user if own else _other(memory, hearing, user)
    if noted:
        return "noted by a model" if own else f"noted by a model of what was said{where}"
    if memory.trust == "user":
        return f"said by {person}{where}"
    if memory.trust == "assistant":
        to = "" if own else f" to {'others' if source.sender in {'', NOBODY_KNOWN} else 'another person'}"
        return f"said by the assistant{to}{where}"
    return "imported" if memory.trust == "imported" else ""


def _other(memory: Memory, hearing: Hearing, user: str) -> str:
    """Return what a person other than the one who asks is called; ``user`` as `voice` has it."""
    source = memory.source
    if source.speaker and source.speaker.strip().casefold() not in _OUR_WORDS:
        return source.speaker
    if source.sender in hearing.owners:
        return _OWNER
    if memory.audience != _GROUP:
        # Outside of groups only the owner of an account tells its agent something; ``user`` says if it is another account's.
        return _OWNER if user == _USER else user
    return "a member" if source.sender in {"", NOBODY_KNOWN} else "another member"


# A person who chose such a name would be taken for another person.
_OUR_WORDS: Final = frozenset({_USER, _OWNER, "the assistant"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A turn of an agent: its identity, its message, its readers, and the decisions of the gates.

    Attributes:
        query: the *cleaned* latest user message, see `gateway_plugin.turn.query.clean_query`; its length is measured, and it is
            searched for.
        whose: the agent, its namespace and keys, or the error if they cannot be determined. The error is raised by
            `identity` only, because a turn that a gate stops does not need them.
        agent: the agent's name, if the host or the settings fix it; None takes it from the session key.
        outbox_error: why the outbox, which stores the switches, cannot be read; "" if it can.
        session_enabled: whether memory is on for the session, by its own, its agent's and the gateway's switch.
        success: whether the host says that the run succeeded; see `failed`.
        gates: the decision of every gate, in order; empty if the gates were not asked.
        active: the decision of the gates about active mode; None if the settings do not use active mode.
        owners: the ids of the agent's owner on all platforms, see `gateway_plugin.turn.gates.platform_id`.
        prompted: the ids of memories whose lines the host puts into the prompt itself.
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
    prompted: frozenset[str] = frozenset()

    @property
    def failed(self) -> bool:
        """Return whether the run failed or was stopped, so that its answer is not captured."""
        return not self.success or self.host.stop_reason in {"error", "aborted"}

    @property
    def identity(self) -> Identity:
        """Return the agent, its namespace and keys; raises `IdentityError` if they cannot be determined."""
        if isinstance(self.whose, IdentityError):
            raise self.whose
        return self.whose

    @property
    def namespace(self) -> str:
        """Return the name of the namespace; "" if it cannot be determined."""
        return "" if isinstance(self.whose, IdentityError) else self.whose.namespace

    @property
    def decision(self) -> Decision:
        """Return the decision of the first gate that objects; if none does, one that allows the turn."""
        return next((one for one in self.gates if not one.allowed), Decision(True))

    @property
    def listed_as(self) -> str:
        """Return the agent's name in the form in which settings list agents."""
        return self.agent or self.session.listed_as

    @property
    def heard_by(self) -> TurnAudience | None:
        """Return the kind of chat in which the answer is read; None outside of chat sessions."""
        return self.host.heard_by(self.session)

    @property
    def said_to(self) -> TurnAudience | None:
        """Return the kind of chat in which the user's message was said; None outside of chat sessions."""
        return self.host.audience or (self.session.said_to if self.session.key else None)

    @property
    def person(self) -> str:
        """Return the id of the person who wrote; "" if the host does not name them."""
        return platform_id(self._platform, self.host.sender) if self.host.sender else ""

    @property
    def place(self) -> str:
        """Return the id of the place that is stored with memories of this turn.

        In a group it is the group's id without a thread; in a direct chat that is kept apart, the id of the person. It is
        "" in the owner's direct chats.
        """
        if self.said_to is None:
            return ""
        if self.said_to is TurnAudience.DIRECT:
            return self._peer or (self._group if self._is_doubtful else "")
        return self._group or NOBODY_KNOWN

    @property
    def hearing(self) -> Hearing:
        """Return which memories may be disclosed in this turn."""
        heard = replace(self._heard, owners=self.owners, projects=self.host.projects)
        return heard.without_groups if self.host.without_groups else heard

    @property
    def _heard(self) -> Hearing:
        if self.host.among_several(self.session):
            own = self.owners if self.person in self.owners else {self.person}
            return Hearing.of_group(self._group, own, doubtful=self._is_doubtful)
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
        """Return whether neither the session key nor the host says if the chat is a direct chat or a group."""
        return self.host.audience is None and self.session.audience is not self.session.said_to

    @property
    def _group(self) -> str:
        # The key names this chat only if it also says that several people are in it.
        named = self.session.chat if self.session.said_to is not TurnAudience.DIRECT else None
        chat = _THREAD.sub("", named or self.host.chat_id or self.session.key)
        return platform_id(self.session.platform or self._platform, chat) if chat else ""


_THREAD: Final = re.compile(r":(?:thread|topic):.*", re.DOTALL | re.IGNORECASE)


class Purpose(StrEnum):
    """A use of memory that a turn asks the gates for."""

    RECALL = "recall"
    ACTIVE = "active"
    CAPTURE = "capture"


_Gate = Callable[[Turn, PluginSettings, Purpose], str | None]
"""A gate: returns the reason for its objection as a sentence, or None if it does not object."""

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
# In these runs no person says anything, so they are never captured, even where settings let them recall.
_NEVER_CAPTURED: Final = frozenset(_RUN_TRIGGERS.values()) | {"memory", "manual"}

_COMMANDS: Final = frozenset(
    {
        "status", "model", "models", "reset", "new", "approve", "deny", "stop", "memory", "active-memory", "verbose",
        "trace", "compact", "think", "help", "commands", "restart", "config", "debug", "usage", "context", "whoami",
        "queue", "elevated", "exec",
    }
)  # fmt: skip
_ASKING: Final = ("?", "\uff1f", "\u061f")
# In characters; "ok?" is no question.
_SHORTEST_QUESTION: Final = 4
# The fewest Chinese, Japanese or Korean characters that may be a whole sentence.
_WIDE_SENTENCE: Final = 4
_COMMAND: Final = re.compile(r"/([A-Za-z][A-Za-z0-9_-]{0,40})(?:@\w{1,64})?(?=\s|:|$)")
_CONTROL: Final = re.compile(
    r"\W*(?:NO_REPLY|HEARTBEAT_OK)\b"
    r"|[\s\S]*\b(?:reply|respond|answer)\b[^\n]{0,40}\b(?:NO_REPLY|HEARTBEAT_OK)\W*\Z"
)


def gate(turn: Turn, settings: PluginSettings, purpose: Purpose = Purpose.RECALL) -> Decision:
    """Return the decision of the gates on a turn: the objection of the first gate that has one, or permission."""
    return next((one for one in explain(turn, settings, purpose) if not one.allowed), Decision(True))


def explain(turn: Turn, settings: PluginSettings, purpose: Purpose = Purpose.RECALL) -> tuple[Decision, ...]:
    """Return the decision of every gate, in order, including those after the first that objects."""
    decisions = []
    for name, objection in GATES:
        reason = objection(turn, settings, purpose)
        decisions.append(Decision(reason is None, name, reason or ""))
    return tuple(decisions)


def is_slash_command(text: str) -> bool:
    """Return whether a cleaned message is a command to the host: a known one with arguments, or any single word ``/name``.

    A message that begins with a path, such as ``/etc/hosts is wrong``, is not a command.
    """
    match = _COMMAND.match(text)
    return match is not None and (match[1].lower() in _COMMANDS or match.end() == len(text.rstrip()))


def is_control_text(text: str) -> bool:
    """Return whether a cleaned message is one of the host's control words, or a prompt that asks for one."""
    head = text[:2000]
    return _CONTROL.match(head if len(text) <= 2000 else head + "\n" + text[-200:]) is not None


def effective_length(text: str) -> int:
    """Return the number of visible characters.

    Wide ones (Chinese, Japanese, Korean) count as two, because one of them says about as much as two others.
    """
    line = one_line(text)
    if line.isascii():
        return len(line)
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def may_ask(text: str) -> bool:
    """Return whether a short text may be more than "ok": several words, a question, or a sentence in wide characters.

    Example:
        >>> may_ask("who's Bo"), may_ask("rent?"), may_ask("thanks!"), may_ask("ok?")
        (True, True, False, False)
    """
    words = sum(any(map(str.isalpha, word)) for word in text.split())
    wide = sum(c.isalpha() and unicodedata.east_asian_width(c) in "WF" for c in text)
    asks = text.rstrip().endswith(_ASKING) and effective_length(text) >= _SHORTEST_QUESTION
    return words > 1 or wide >= _WIDE_SENTENCE or (words == 1 and asks)


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
    return f"the memory switch cannot be read, so memory stays off: {turn.outbox_error}"


def _session_toggle(turn: Turn, _settings: PluginSettings, _purpose: Purpose) -> str | None:
    if turn.outbox_error:
        return "the memory switch of this session cannot be read"
    return None if turn.session_enabled else "memory is off for this session"


def _agents(turn: Turn, settings: PluginSettings, purpose: Purpose) -> str | None:
    name = turn.listed_as.casefold()
    if purpose is Purpose.ACTIVE:
        listed = {agent.casefold() for agent in settings.active.agents}
        return None if name in listed else "active.agents does not list the agent"
    listed = {agent.casefold() for agent in settings.recall.agents}
    if purpose is Purpose.RECALL and listed and name not in listed:
        return "recall.agents does not list the agent"
    return None


def _run_kind(turn: Turn, settings: PluginSettings, purpose: Purpose) -> str | None:
    run = turn.session.run
    if run in _OWN_RUNS or turn.host.run_id.startswith("active-memory-"):
        return f"this is {_OWN_RUNS.get(run, _OWN_RUNS[RunKind.ACTIVE_MEMORY])}"
    announced = any(name.startswith("announce:") for name in (turn.host.run_id, turn.session.key))
    if turn.host.inter_session or announced:
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
    return "this run is not interactive" if left_alone else None


def _session_pattern(turn: Turn, settings: PluginSettings, _purpose: Purpose) -> str | None:
    hit = _first_match(settings.recall.skip_session_patterns, turn.session.key)
    return None if hit is None else f"recall.skipSessionPatterns[{hit}] matches the session"


def _chat_type(turn: Turn, settings: PluginSettings, purpose: Purpose) -> str | None:
    heard_by = turn.host.audience or turn.session.audience
    if purpose is Purpose.RECALL and heard_by not in settings.recall.allowed_chat_types:
        return f"recall.allowedChatTypes does not allow {heard_by}"
    if purpose is Purpose.ACTIVE and heard_by not in settings.active.allowed_chat_types:
        return f"allowedChatTypes does not allow {heard_by}"
    return None


def _chat_id(turn: Turn, settings: PluginSettings, purpose: Purpose) -> str | None:
    if purpose is not Purpose.ACTIVE:
        return None
    chat = turn.host.chat_id or turn.session.chat
    if chat in settings.active.denied_chat_ids:
        return "deniedChatIds lists this chat"
    # If there is an allow list, a chat whose id is not known is not allowed (AM-05).
    if settings.active.allowed_chat_ids and chat not in settings.active.allowed_chat_ids:
        return "allowedChatIds does not list this chat"
    return None


def _slash(turn: Turn, _settings: PluginSettings, _purpose: Purpose) -> str | None:
    return "the message is a command" if is_slash_command(turn.query) else None


def _control_text(turn: Turn, _settings: PluginSettings, _purpose: Purpose) -> str | None:
    return "the message is a control word of the host" if is_control_text(turn.query) else None


def _min_length(turn: Turn, settings: PluginSettings, purpose: Purpose) -> str | None:
    length = effective_length(turn.query)
    if length == 0:
        return "the message is empty after cleaning"
    least = settings.recall.min_prompt_length
    # Capture checks the length of each message itself.
    if purpose is Purpose.CAPTURE or length >= least:
        return None
    # The relayer decides whether a prompt asks for something; active mode would call a model for each "ok, cool".
    is_default = "min_prompt_length" not in settings.recall.model_fields_set
    if purpose is Purpose.RECALL and is_default and may_ask(turn.query):
        return None
    return f"prompt too short: {length} < {least}"


def _skip_pattern(turn: Turn, settings: PluginSettings, purpose: Purpose) -> str | None:
    if purpose is Purpose.CAPTURE:
        return None
    hit = _first_match(settings.recall.skip_patterns, turn.query)
    return None if hit is None else f"recall.skipPatterns[{hit}] matches the message"


def _first_match(sources: tuple[str, ...], text: str) -> int | None:
    # `re` caches compiled patterns, and the settings were validated when they were loaded.
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
    ("slash_command", _slash),
    ("control_text", _control_text),
    ("min_length", _min_length),
    ("skip_pattern", _skip_pattern),
)
"""The gates by name, in the order in which they are asked."""
