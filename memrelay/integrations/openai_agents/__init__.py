"""Memory for the OpenAI Agents SDK: hooks that recall and capture, function tools, and a session with an encrypted history.

Example:
    memory = MemrelayHooks(AsyncMemory(agent="support"), user="ana")
    agent = Agent("support", tools=memory.tools())
    await Runner.run(agent, "What must I not cook?", hooks=memory, run_config=memory.run_config())
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

from agents import (
    Agent,
    AgentHookContext,
    RunConfig,
    RunHooks,
    SessionSettings,
    Tool,
    TResponseInputItem,
    function_tool,
)
from agents.run import CallModelData, ModelInputData

from memrelay import AsyncMemory, InvalidInput
from memrelay.integrations.turns import TurnMemory, asked_last, last_turn

__all__ = ["MemrelayHooks", "MemrelaySession"]


class MemrelayHooks(RunHooks[Any]):
    """Recall before each model call and capture when an agent has answered.

    A relayer that does not respond neither fails a run nor delays it for more than the deadline.

    Args:
        memory: the memories to use; None opens `AsyncMemory` at its default settings.
        user: the user; or a function that returns the user of a run from its context.
        deadline: the maximum time in seconds of a recall, a capture or a tool.

    Attributes:
        turns: the memory around a turn; ``await hooks.turns.flush()`` waits for captures.
    """

    def __init__(
        self,
        memory: AsyncMemory | None = None,
        *,
        user: str | Callable[[Any], str | None] | None = None,
        deadline: float = 2.0,
    ) -> None:
        self.turns = TurnMemory(memory, deadline=deadline)
        self._user = user

    def run_config(self, **settings: Any) -> RunConfig:
        """Return the configuration of a run that recalls, with other settings of ``RunConfig``."""
        return RunConfig(call_model_input_filter=self.recall, **settings)

    async def recall(self, data: CallModelData[Any]) -> ModelInputData:
        """Add what is known for the last messages of the user to the instructions; a ``call_model_input_filter``."""
        asked = asked_last(_said(data.model_data.input))
        known = await self.turns.recall(asked, user=self._of(data.context)) if asked else ""
        texts = (data.model_data.instructions, known)
        return ModelInputData(data.model_data.input, "\n\n".join(text for text in texts if text) or None)

    async def on_agent_end(self, context: AgentHookContext[Any], agent: Agent[Any], output: Any) -> None:
        """Store what is worth keeping of the last messages of the user and of the answer."""
        said = [one for one in last_turn(_said(context.turn_input)) if one["role"] == "user"]
        if isinstance(output, str):
            said.append({"role": "assistant", "content": output})
        await self.turns.capture(said, user=self._of(context.context))

    def tools(self, user: str | None = None) -> list[Tool]:
        """Return tools to search, remember and forget memories of a user; None for that of the object."""
        fixed = self._user if user is None and not callable(self._user) else user
        return [function_tool(tool) for tool in self.turns.tools(fixed)]

    def _of(self, context: Any) -> str | None:
        return self._user(context) if callable(self._user) else self._user


def _said(items: Iterable[Any]) -> Iterable[tuple[str, str]]:
    """Yield the role and the text of input items; what is not the user's counts as the assistant's, and its text is not needed."""
    for item in items:
        if item.get("role") != "user":
            yield "assistant", ""
            continue
        content = item.get("content")
        parts = (content,) if isinstance(content, str) else (part.get("text") or "" for part in content or ())
        yield "user", "\n".join(parts)


_TAG: Final = "openai-session"


class MemrelaySession:
    """The history of one conversation; an implementation of the SDK's ``Session``.

    The items are sealed under a key of their own: they are in no search of the user's memories. They are stored word for word, with
    the secrets in them, so that a tool's call is as it was. While the relayer does not respond, the history is empty and new items
    are not stored. An item has at most 64 KiB.

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
        return [stored["item"] for _, stored in reversed(newest)]

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

    async def _newest(self, limit: int | None) -> list[tuple[str, dict[str, Any]]]:
        found: list[tuple[str, dict[str, Any]]] = []
        if limit is not None and limit <= 0:
            return found
        async for one in self._memory.list(user=self._owner):
            # Earlier versions had secrets removed from the JSON, after which it may be none.
            with suppress(ValueError):
                found.append((one.id, json.loads(one.text)))
            if len(found) == limit:
                break
        return found

    async def _add(self, items: list[TResponseInputItem]) -> None:
        last = await self._newest(1)
        # The number keeps two items with the same content apart.
        number = last[0][1]["n"] if last else 0
        texts = [
            json.dumps({"n": number + offset, "item": item}, ensure_ascii=False, separators=(",", ":"))
            for offset, item in enumerate(items, 1)
        ]
        await self._memory.add_many(texts, user=self._owner, keep_secrets=True)

    async def _pop(self) -> Any:
        last = await self._newest(1)
        if not last:
            return None
        await self._memory.erase(last[0][0], user=self._owner)
        return last[0][1]["item"]

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
