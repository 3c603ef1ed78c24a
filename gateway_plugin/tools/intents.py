"""The tool ``intent``, with which a model creates, lists and cancels standing intents, see `gateway_plugin.sessions`."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field

from gateway_plugin.outbox.sender import off_loop
from gateway_plugin.sessions import COOLDOWN_SECONDS, LIFETIME_SECONDS, MAX_FIRES, Intent, Intents
from gateway_plugin.settings.model import CaptureSettings
from gateway_plugin.text.wrappers import scan, strip
from gateway_plugin.tools.arguments import Arguments, ToolError, validated
from gateway_plugin.tools.toolbox import ToolAnswer
from gateway_plugin.turn.gates import Turn
from relayer.wire.fields import escape, one_line
from relayer.wire.redaction import redact

INTENT_TOOL: Final = "intent"
_OWNER: Final = "owner"
_MAX_TEXT: Final = 500
_Phrase = Annotated[str, Field(min_length=2, max_length=100)]


def _phrases(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


class IntentArguments(Arguments):
    """Create, list or cancel a reminder that is given to you when its trigger comes up in a chat. Not for clock times."""

    action: Literal["create", "list", "cancel"]
    id: str | None = Field(None, max_length=64)
    description: str | None = Field(None, min_length=3, max_length=_MAX_TEXT)
    triggers: Annotated[tuple[_Phrase, ...], BeforeValidator(_phrases)] = Field(
        (), max_length=20, validation_alias="triggerKeywords"
    )
    scope: Literal["conversation", "channel", "anywhere"] = "channel"
    sender_scope: Literal["sender", "anyone"] = Field("sender", validation_alias="senderScope")
    expires_at: datetime | None = Field(None, validation_alias="expiresAt")
    max_fires: int = Field(MAX_FIRES, ge=1, le=1000, validation_alias="maxFires")
    cooldown_seconds: int = Field(
        COOLDOWN_SECONDS, ge=0, le=LIFETIME_SECONDS, validation_alias="cooldownSeconds"
    )


async def run_intent(
    intents: Intents, arguments: object, turn: Turn, settings: CaptureSettings, now_ms: int
) -> ToolAnswer:
    """Run a call of the tool; only for the agent's owner.

    Raises:
        ToolError: an argument is missing or wrong, or the person is not the owner.
        GatewayError: the outbox cannot be used.
    """
    asked = validated(IntentArguments, arguments)
    if not is_owner(turn):
        raise ToolError("only the owner of this agent has standing intents")
    owner, outbox = turn.identity.ref, intents.outbox
    if asked.action == "list":
        known = await off_loop(outbox, intents.all, owner)
        lines = [_line(one, now_ms) for one in known if not one.cancelled]
        return ToolAnswer("\n".join(lines) or "No standing intents.", {"count": len(lines)})
    if asked.action == "cancel":
        gone = await off_loop(outbox, intents.cancel, owner, asked.id or "")
        if gone is None:
            raise ToolError("id: there is no such standing intent; action list shows the ids")
        return ToolAnswer(f"Cancelled: {gone.id}", {"id": gone.id})
    if asked.description is None or not asked.triggers:
        raise ToolError("description, triggerKeywords: say what to remind of, and which words bring it up")
    clean = redact(strip(asked.description), settings.redaction)
    if clean.blocked or scan(clean.text).blocked or not clean.text.strip():
        raise ToolError("description: it holds what may not be stored")
    expires = now_ms + LIFETIME_SECONDS * 1000
    if asked.expires_at is not None:
        at = asked.expires_at if asked.expires_at.tzinfo else asked.expires_at.replace(tzinfo=UTC)
        expires = round(at.timestamp() * 1000)
    new = Intent(
        id="",
        text=one_line(clean.text),
        triggers=asked.triggers,
        chat={"conversation": turn.session.key, "channel": _chat(turn), "anywhere": ""}[asked.scope],
        sender=_OWNER if asked.sender_scope == "sender" else "",
        created=now_ms,
        expires=expires,
        most=asked.max_fires,
        pause=asked.cooldown_seconds,
    )
    stored = await off_loop(outbox, intents.add, owner, new, now_ms)
    return ToolAnswer(f"Armed: {_line(stored, now_ms)}", {"id": stored.id})


async def due_reminders(intents: Intents, turn: Turn, now_ms: int) -> tuple[str, ...]:
    """Return the reminders that the message of a turn triggers, as escaped lines for the prompt, and count them as given."""
    chats = (turn.session.key, _chat(turn))
    senders = (_OWNER,) if is_owner(turn) else ()
    due = partial(intents.due, turn.identity.ref, turn.query, chats=chats, senders=senders, now_ms=now_ms)
    return tuple(
        f"Standing intent (created {_day(one.created)}): {escape(one.text)}"
        for one in await off_loop(intents.outbox, due)
    )


def is_owner(turn: Turn) -> bool:
    """Return whether the agent's owner wrote, in a direct chat or in a group."""
    return turn.hearing.private or turn.person in turn.owners


def _chat(turn: Turn) -> str:
    """Return the name of the chats that hear the same as this one: the owner's direct chats, or this group."""
    return "direct" if turn.hearing.private else turn.place or turn.session.key


def _line(intent: Intent, now_ms: int) -> str:
    triggers = ", ".join(intent.triggers)
    given = f"given {intent.fires} of {intent.most} times"
    until = f"until {_day(intent.expires)}"
    return escape(f"{intent.id} [{intent.status(now_ms)}] when {triggers}: {intent.text} ({given}, {until})")


def _day(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).astimezone().date().isoformat()
