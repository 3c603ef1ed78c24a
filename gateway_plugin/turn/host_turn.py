"""What a host tells about a turn beyond its messages; everything is optional, and nothing comes from the model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gateway_plugin.gates import TurnContext
from gateway_plugin.session_keys import Audience, SessionRef
from gateway_plugin.turn.transcript import SessionLogs

__all__ = ["HostTurn"]


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
        trigger: what started the run: ``user``, ``cron``, ``heartbeat``, ...
        run_id: the host's id of the run.
        chat_id: the platform's id of the chat.
        inter_session: the prompt came from another session, not from a person.
        interactive: a person waits in a lasting session.
        stop_reason: why the last answer ended; ``error`` and ``aborted`` are not captured.
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

    def context(
        self,
        session: SessionRef,
        query: str,
        *,
        agent: str | None,
        session_enabled: bool,
        outbox_error: str = "",
        success: bool = True,
    ) -> TurnContext:
        """Return what the gates look at."""
        return TurnContext(
            session=session,
            query=query,
            agent=agent,
            audience=self.audience,
            trigger=self.trigger,
            run_id=self.run_id,
            chat_id=self.chat_id,
            inter_session=self.inter_session,
            interactive=self.interactive,
            outbox_error=outbox_error,
            session_enabled=session_enabled,
            success=success,
            stop_reason=self.stop_reason,
        )

    def heard_by(self, session: SessionRef) -> Audience | None:
        """Return who reads the answer; None when there is no chat session at all."""
        if self.audience is not None:
            return self.audience
        return session.audience if session.key else None

    def said_to(self, session: SessionRef) -> Audience | None:
        """Return who could hear what was said; None as in `heard_by`."""
        if self.audience is not None:
            return self.audience
        return session.said_to if session.key else None
