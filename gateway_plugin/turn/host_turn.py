"""What a host tells about a turn beyond its messages, and whose turn it is; nothing comes from the model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from gateway_plugin.errors import GatewayError, IdentityError
from gateway_plugin.gates import TurnContext
from gateway_plugin.identity import Identity, KeyHolder, identify
from gateway_plugin.outbox import Waiting
from gateway_plugin.session_keys import Audience, SessionRef, parse_session_key
from gateway_plugin.settings import PluginSettings
from gateway_plugin.turn.transcript import SessionLogs


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


def owner_of(identity: Identity) -> Waiting:
    """Return whose items an identity's are."""
    return Waiting(identity.agent, identity.namespace, identity.generation)


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

    @property
    def account(self) -> str:
        """The account's id; "" while memory is switched off."""
        return self.holder.account if self.holder is not None else ""

    @property
    def gateway(self) -> Waiting:
        """An owner of no namespace, for what is the whole gateway's."""
        agent = self.holder.only_agent if self.holder is not None else None
        return Waiting(agent or "", "", 0)

    def of_turn(self, ref: SessionRef, host: HostTurn) -> Identity:
        """Tell whose turn it is; raises `IdentityError`."""
        holder = self._held()
        fixed = host.agent or (self._settings.agent if self._agent is None else None)
        return identify(
            holder,
            ref if fixed is None else replace(ref, agent=fixed),
            default_agent=self._agent or None,
            default_namespace=self._settings.namespace.default,
            scope=self._settings.namespace.scope,
            sender=host.sender,
            workspace=host.workspace,
            renamed=self._settings.namespace.renamed,
        )

    def namespace_of(self, key: str | None, host: HostTurn) -> str:
        """Return the namespace of a session; "" where whose it is cannot be told."""
        try:
            return self.of_turn(parse_session_key(key or ""), host).namespace
        except GatewayError:
            return ""

    def of_owner(self, owner: Waiting) -> Identity:
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
