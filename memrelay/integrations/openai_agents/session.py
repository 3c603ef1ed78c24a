"""A session of the OpenAI Agents SDK whose history is encrypted, durable, and shared by all processes of an account."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from agents import SessionSettings, TResponseInputItem

from memrelay import AsyncMemory, InvalidInput
from memrelay.integrations.turns import TurnMemory

_TAG: Final = "openai-session"


class MemrelaySession:
    """The history of one conversation; an implementation of the SDK's ``Session``.

    The items are sealed under a key of their own: they are in no search of the user's memories. While the relayer does not respond, the
    history is empty and new items are not stored. An item has at most 64 KiB.

    Example:
        await Runner.run(agent, "Hello", session=MemrelaySession("chat-1", AsyncMemory(agent="support"), user="ana"))

    Args:
        session_id: the id of the conversation.
        memory: the memories to use; None opens `AsyncMemory` at its default settings.
        user: the user; two users with the same session id have two histories.
        deadline: the maximum time in seconds of a call.

    Attributes:
        session_id: the id of the conversation.
        session_settings: settings of the SDK, e.g. the default number of items that are read.
    """

    def __init__(
        self,
        session_id: str,
        memory: AsyncMemory | None = None,
        *,
        user: str | None = None,
        deadline: float = 5.0,
    ) -> None:
        self.session_id = session_id
        self.session_settings: SessionSettings | None = SessionSettings()
        self._turns = TurnMemory(memory, deadline=deadline)
        self._memory = self._turns.memory
        self._owner = f"{_prefix(user)}{_digest(session_id)}"

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the last items, oldest first; all if there is no limit."""
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        newest = await self._turns.attempt(self._newest(limit), [])
        return [json.loads(text)["item"] for _, text in reversed(newest)]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Store items in their order.

        Raises:
            InvalidInput: an item has more than 64 KiB; none of the items was stored.
        """
        await self._turns.attempt(self._add(items), None, raises=(InvalidInput,))

    async def pop_item(self) -> TResponseInputItem | None:
        """Delete the last item permanently and return it; None if there is none."""
        return await self._turns.attempt(self._pop(), None)

    async def clear_session(self) -> None:
        """Delete the history permanently."""
        await self._turns.attempt(self._clear(), None)

    async def _newest(self, limit: int | None) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        if limit is not None and limit <= 0:
            return found
        async for one in self._memory.list(user=self._owner):
            found.append((one.id, one.text))
            if len(found) == limit:
                break
        return found

    async def _add(self, items: list[TResponseInputItem]) -> None:
        last = await self._newest(1)
        # The number keeps two items with the same content apart.
        number = json.loads(last[0][1])["n"] if last else 0
        texts = [
            json.dumps({"n": number + offset, "item": item}, ensure_ascii=False, separators=(",", ":"))
            for offset, item in enumerate(items, 1)
        ]
        await self._memory.add_many(texts, user=self._owner)

    async def _pop(self) -> Any:
        last = await self._newest(1)
        if not last:
            return None
        await self._memory.erase(last[0][0], user=self._owner)
        return json.loads(last[0][1])["item"]

    async def _clear(self) -> None:
        if self._owner in await self._memory.users():
            await self._memory.erase_all(user=self._owner)

    @staticmethod
    async def erase_sessions(memory: AsyncMemory, user: str | None = None) -> int:
        """Delete the histories of all conversations of a user permanently, and return their number.

        ``AsyncMemory.erase_all`` deletes the memories of a user, which are kept apart from the histories.
        """
        owners = [one for one in await memory.users() if one.startswith(_prefix(user))]
        for owner in owners:
            await memory.erase_all(user=owner)
        return len(owners)


def _prefix(user: str | None) -> str:
    return f"{_TAG}-{_digest(json.dumps(user))}-"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]
