"""Standing intents: reminders that are given to the model when a message is about their trigger.

"When the launch comes up, remind me of the rollback owner." An intent has trigger phrases and is due when all words of one of
them are in a message of the person, in the chats that it is for. No model is asked. Intents are stored sealed in the outbox of
this machine, and each is given a bounded number of times, with a pause between two.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from gateway_plugin.errors import GatewayError
from gateway_plugin.keys.identity import NamespaceRef
from gateway_plugin.outbox.queue import Outbox, RevisionConflict, ValueUpdate
from gateway_plugin.sessions.book import folded

MAX_INTENTS: Final = 100
MAX_FIRES: Final = 3
COOLDOWN_SECONDS: Final = 24 * 3600
LIFETIME_SECONDS: Final = 90 * 24 * 3600
_NAME: Final = "intents"
_ATTEMPTS: Final = 5
_MOST_GIVEN: Final = 3
_WORD: Final = re.compile(r"\w+")
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
        words = {*_WORD.findall(text)}

        def has(wanted: str) -> bool:
            # Some scripts put no spaces between words.
            if not wanted.isascii() and wanted in text:
                return True
            return wanted in words or (len(wanted) >= _STEM and any(one.startswith(wanted) for one in words))

        phrases = (_WORD.findall(folded(phrase)) for phrase in self.triggers)
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
