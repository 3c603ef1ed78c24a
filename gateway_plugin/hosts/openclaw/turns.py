"""Translate the host's events to the plugin's terms: who speaks and where, and which messages belong to this turn."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from gateway_plugin.errors import IdentityError
from gateway_plugin.hosting import DEFAULT_AGENT, HostTurn, TurnAudience, parse_session_key

HOST: Final = "openclaw"

_MAX_RUNS: Final = 512
_CHAT_TYPES: Final = {
    "direct": TurnAudience.DIRECT,
    "dm": TurnAudience.DIRECT,
    "group": TurnAudience.GROUP,
    "channel": TurnAudience.CHANNEL,
}

Json = Mapping[str, Any]


def as_object(value: object) -> Json:
    """Return a value if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def session_key_of(context: Json) -> str | None:
    """Return the session key, or None outside of a session."""
    return _text(context, "sessionKey")


def host_turn(
    context: Json,
    *,
    inter_session: bool = False,
    stop_reason: str = "",
    first_turn: bool = False,
    interactive: bool = True,
    turn_id: str = "",
    searches: bool = True,
    prompted: frozenset[str] = frozenset(),
) -> HostTurn:
    """Build a `HostTurn` from the context of a hook."""
    kind = as_object(context.get("inputProvenance")).get("kind")
    named = context.get("activeProjectKeys")
    agent = _text(context, "agentId")
    # It is needed only if no session key contains one. The host's default agent is not a name.
    if (session_key_of(context) or "").startswith("agent:") or (agent or "").casefold() == DEFAULT_AGENT:
        agent = None
    return HostTurn(
        host=HOST,
        agent=agent,
        audience=_CHAT_TYPES.get(_text(context, "chatType") or ""),
        sender=_text(context, "senderId") or _text(context, "requesterSenderId"),
        workspace=_text(context, "workspaceDir"),
        trigger=_text(context, "trigger") or "user",
        run_id=_text(context, "runId") or "",
        chat_id=_text(context, "chatId") or _text(context, "channelId"),
        turn_id=turn_id,
        searches=searches,
        prompted=prompted,
        inter_session=inter_session or kind == "inter_session",
        stop_reason=stop_reason,
        first_turn=first_turn,
        interactive=interactive,
        model=_text(context, "modelId") or "",
        platform=_text(context, "channel") or _text(context, "messageChannel") or "",
        # The host recalls on behalf of a direct chat, from direct chats alone.
        projects=frozenset(map(str, named)) if isinstance(named, list) else None,
        without_groups=isinstance(context.get("conversationRecall"), Mapping),
    )


def somebody_waits(context: Json) -> bool:
    """Return whether a person waits in a chat for the turn; a one-shot command has no channel (AM-03)."""
    return _text(context, "channel") is not None or _text(context, "channelId") is not None


def messages_of(params: Json) -> tuple[Json, ...]:
    """Return the messages of a call, without entries that are no messages."""
    given = params.get("messages")
    if not isinstance(given, Sequence) or isinstance(given, str):
        return ()
    return tuple(message for message in given if isinstance(message, Mapping))


def with_speaker(messages: Sequence[Json], context: Json) -> tuple[Json, ...]:
    """Return the messages of a turn, in a group with the name of the person who wrote the last one of the user.

    The host tells the name next to the text, which is bare.
    """
    name, last = _text(context, "senderName"), max(_questions(messages), default=None)
    if name is not None and last is not None:
        with suppress(IdentityError):
            if host_turn(context).among_several(parse_session_key(session_key_of(context) or "")):
                return (*messages[:last], {**messages[last], "name": name}, *messages[last + 1 :])
    return tuple(messages)


@dataclass(frozen=True, slots=True)
class _Run:
    before: int
    inter_session: bool
    prompt: str = field(default="", repr=False)


class Runs:
    """Remembers facts about the start of each run that its end does not contain: its position in the history, and its author.

    At the end of a run the host passes the whole history. Only messages that the run added are captured, since older ones were
    captured when they were new, perhaps by an earlier process.
    """

    def __init__(self, limit: int = _MAX_RUNS) -> None:
        self._limit = limit
        self._known: OrderedDict[str, _Run] = OrderedDict()

    def began(self, context: Json, *, before: int, prompt: str = "") -> None:
        """Record the start of a run, with the number of messages in its session and the prompt."""
        run = _text(context, "runId")
        if run is not None:
            inter_session = host_turn(context).inter_session
            self._known[run] = _Run(before, inter_session, prompt)
            self._known.move_to_end(run)
        while len(self._known) > self._limit:
            self._known.popitem(last=False)

    def asked(self, context: Json) -> tuple[str, bool] | None:
        """Return the prompt of a run, and whether another session wrote it; None if it ended, or its start was not observed."""
        run = self._known.get(_text(context, "runId") or "")
        return None if run is None else (run.prompt, run.inter_session)

    def ended(
        self,
        context: Json,
        messages: Sequence[Json],
        *,
        total: int,
        began_at: int | None = None,
        inter_session: bool = False,
    ) -> tuple[tuple[Json, ...], bool]:
        """Return the messages that a run added, and whether another session wrote to it.

        ``messages`` are the end of the history, which has ``total`` ones. ``began_at`` is its length at the start of the run,
        as the host's plugin observed it: the bridge may have been restarted since.
        """
        run = self._known.pop(_text(context, "runId") or "", None)
        missing = total - len(messages)
        before = began_at if began_at is not None or run is None else run.before
        start = before - missing if before is not None else -1
        # A history that became shorter was compacted during the run, which then starts at the latest prompt.
        if not 0 <= start < len(messages):
            start = max(_questions(messages), default=0)
        return tuple(messages[start:]), inter_session or (run is not None and run.inter_session)


def _questions(messages: Sequence[Json]) -> Iterator[int]:
    return (index for index, message in enumerate(messages) if message.get("role") == "user")


def _text(context: Json, name: str) -> str | None:
    value = context.get(name)
    return value if isinstance(value, str) and value.strip() else None
