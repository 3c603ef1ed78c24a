"""What is known of a turn: made once, by `gateway_plugin.sessions.Turns`, and handed to whoever works for the turn.

The host says it, and the settings; nothing comes from the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from gateway_plugin.errors import IdentityError
from gateway_plugin.identity import Audience, Identity, SessionRef


class SessionLogs(Protocol):
    """A host's sessions where they are no folder of files."""

    def entries(self, path: str) -> Iterator[Mapping[str, Any]]:
        """Yield a session's messages, oldest first; raises as `gateway_plugin.transcript.read_transcript`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTurn:
    """A turn as its host sees it.

    Attributes:
        host: the host's name, kept with captured memories.
        agent: the agent, where the host knows it better than the session key says.
        audience: who reads the answer, likewise. Worth giving: a key that names a platform and no type of chat hears
            what a group may hear, and its turns are kept from groups.
        sender: the host's id of the person who wrote, for ``namespace.scope = agent+sender``.
        workspace: the host's id of the workspace, for ``agent+workspace``.
        trigger: what started the run: ``user``, ``cron``, ``heartbeat``, ...; "" when the host says nothing.
        run_id: the host's id of the run.
        chat_id: the platform's id of the chat, for allow and deny lists; None takes the session key's.
        inter_session: the prompt came from another session or an internal tool, not from a person.
        interactive: a person waits in a lasting session (not a one-shot command).
        stop_reason: why the last answer ended; ``error`` and ``aborted`` are not captured: some hosts call a provider's
            error a success and say it here.
        first_turn: the session begins with this turn: it may be given what was said lately.
        model: the session's language model, as the host names it.
        transcripts: the directory of the host's session logs, outside of which no tool reads; or its sessions.
    """

    host: str = ""
    agent: str | None = None
    audience: Audience | None = None
    sender: str | None = None
    workspace: str | None = None
    trigger: str = "user"
    run_id: str = ""
    chat_id: str | None = None
    inter_session: bool = False
    interactive: bool = True
    stop_reason: str = ""
    first_turn: bool = False
    model: str = ""
    transcripts: Path | SessionLogs | None = None

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
