"""Memory for LangGraph: a store of items over memrelay, and nodes that recall before the model and capture after it.

Example:
    graph.compile(store=MemrelayStore(AsyncMemory(agent="support")))
"""

from __future__ import annotations

import json
import unicodedata
from asyncio import gather
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from langchain_core.messages import AnyMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.store.base import (
    BaseStore,
    GetOp,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    get_text_at_path,
    validate_op_namespace,
)

from memrelay import AsyncMemory, InvalidInput, RelayerRefused, SearchHit, StoredMemory
from memrelay.integrations.turns import TurnMemory, asked_last, last_turn, run_blocking

__all__ = ["MemoryNodes", "MemrelayStore"]


class MemoryNodes:
    """The nodes ``recall`` and ``capture``, for graphs with ``messages`` and ``memories`` in their state.

    The user is ``config["configurable"]["user_id"]``, the session ``thread_id``. The nodes neither fail nor delay a run for more than
    the deadline if the relayer does not respond.

    Example:
        nodes = MemoryNodes(AsyncMemory(agent="support"))
        graph.add_node("recall", nodes.recall)
        graph.add_node("capture", nodes.capture)

    Args:
        memory: the memories to use; None opens `AsyncMemory` at its default settings.
        deadline: the maximum time in seconds that a node takes.

    Attributes:
        turns: the memory around a turn; ``await nodes.turns.flush()`` waits for captures.
    """

    def __init__(self, memory: AsyncMemory | None = None, *, deadline: float = 2.0) -> None:
        self.turns = TurnMemory(memory, deadline=deadline)

    async def recall(self, state: Any, config: RunnableConfig) -> dict[str, str]:
        """Return ``memories``: the block for the prompt, which is empty if nothing relevant is known."""
        asked = asked_last(_said(state["messages"]))
        return {"memories": await self.turns.recall(asked, user=_user(config)) if asked else ""}

    async def capture(self, state: Any, config: RunnableConfig) -> dict[str, Any]:
        """Store what is worth keeping of the last turn, which begins with the last messages of the user."""
        session = config.get("configurable", {}).get("thread_id")
        await self.turns.capture(last_turn(_said(state["messages"])), user=_user(config), session=session)
        return {}

    def tools(self, user: str | None = None) -> list[BaseTool]:
        """Return tools to search, remember and forget memories of a user."""
        return [StructuredTool.from_function(coroutine=tool) for tool in self.turns.tools(user)]


def _said(messages: Sequence[AnyMessage]) -> list[tuple[str, str]]:
    roles = {"human": "user", "ai": "assistant"}
    return [(roles[one.type], one.text) for one in messages if one.type in roles]


def _user(config: RunnableConfig) -> str | None:
    user: str | None = config.get("configurable", {}).get("user_id")
    return user


_FIELD: Final = "langgraph"
_MAX_HITS: Final = 100
# A read moves the end of an item's time to live when this share of it has passed, because each move stores a new version.
_REFRESHED_AFTER: Final = 0.1


class MemrelayStore(BaseStore):
    """A store of items for LangGraph.

    ``put`` with a new value keeps the old one in the history, and ``delete`` is final; an item of which another one has a text is
    only hidden until that is deleted, too. Deleted and expired items are returned by no operation. ``search`` with a query returns relevant items only, best first; without a query it returns the newest first.

    Example:
        store = MemrelayStore(AsyncMemory(agent="support"))
        await store.aput(("memories", "ana"), "food", {"text": "I'm allergic to peanuts."})
        await store.asearch(("memories", "ana"), query="What must I not cook?")

    Args:
        memory: the memories to use; None opens `AsyncMemory` at its default settings.
        ttl: the default time to live, and whether a read prolongs it.
        deadline: the maximum time in seconds of an operation.
        fail_open: whether an operation of which the relayer does not respond is logged and finds or changes nothing, so that
            the run continues; False raises `MemrelayError`.
    """

    supports_ttl = True
    __slots__ = ("_fail_open", "_memory", "_turns", "ttl_config")

    def __init__(
        self,
        memory: AsyncMemory | None = None,
        *,
        ttl: TTLConfig | None = None,
        deadline: float = 10.0,
        fail_open: bool = True,
    ) -> None:
        self._turns = TurnMemory(memory, deadline=deadline)
        self._memory = self._turns.memory
        self._fail_open = fail_open
        self.ttl_config = ttl

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations, as `abatch` does, from synchronous code."""
        return run_blocking(self.abatch(ops))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations: first all reads, then of several writes of an item the last one.

        Raises:
            InvalidInput: a value is not JSON, or has more than 4 KiB besides its text; it was not stored.
        """
        given = list(ops)
        for op in given:
            validate_op_namespace(op)
        puts = {(op.namespace, op.key): op for op in given if isinstance(op, PutOp)}
        reads = (
            self._safely(self._read(op), [] if isinstance(op, SearchOp | ListNamespacesOp) else None)
            for op in given
        )
        results = list(await gather(*reads))
        await gather(*(self._safely(self._put(op), None) for op in puts.values()))
        return results

    async def _safely(self, work: Any, default: Any) -> Any:
        if not self._fail_open:
            return await work
        return await self._turns.attempt(work, default, raises=(InvalidInput,))

    async def _read(self, op: Op) -> Result:
        if isinstance(op, GetOp):
            found = await self._memories(op.namespace, op.key)
            kept = await self._kept(op.namespace, found[:1], refresh=op.refresh_ttl)
            return _item(op.namespace, kept[0]) if kept else None
        if isinstance(op, SearchOp):
            return await self._search(op)
        if isinstance(op, ListNamespacesOp):
            known = [
                one
                for one in await self._namespaces()
                if all(_matches(one, wanted) for wanted in op.match_conditions or ())
            ]
            cut = sorted({one[: op.max_depth] for one in known})
            return cut[op.offset : op.offset + op.limit]
        return None

    async def _search(self, op: SearchOp) -> list[SearchItem]:
        prefix, where = op.namespace_prefix, _where(op)
        spaces = [one for one in await self._namespaces() if one[: len(prefix)] == prefix]
        found = await gather(*(self._search_in(space, op, where) for space in spaces))
        # The ids of memories rise with time.
        by = (lambda pair: pair[1].score) if op.query else (lambda pair: pair[1].id)
        ranked = sorted((pair for pairs in found for pair in pairs), key=by, reverse=True)
        page: list[SearchItem] = []
        for space, one in ranked[op.offset : op.offset + op.limit]:
            page += [_item(space, each) for each in await self._kept(space, [one], refresh=op.refresh_ttl)]
        return page

    async def _search_in(self, space: tuple[str, ...], op: SearchOp, where: dict[str, Any]) -> list[Any]:
        user, count = ".".join(space), op.offset + op.limit
        if op.query:
            hits = await self._memory.search(op.query, limit=min(count, _MAX_HITS), where=where, user=user)
            return [(space, hit) for hit in hits]
        found: list[Any] = []
        async for one in self._memory.list(where=where, user=user):
            if len(found) == count:
                break
            found.append((space, one))
        return found

    async def _put(self, op: PutOp) -> None:
        user = ".".join(op.namespace)
        known = await self._memories(op.namespace, op.key)
        for old in known if op.value is None else known[1:]:
            await self._remove(op.namespace, old)
        if op.value is None:
            return
        now = datetime.now(UTC)
        text, fields = _fields(op)
        fields["created"] = known[0].metadata[_FIELD]["created"] if known else now.isoformat()
        if op.ttl is not None:
            fields |= {"ttl": op.ttl, "expires": (now + timedelta(minutes=op.ttl)).timestamp()}
        if known:
            await self._memory.update(known[0].id, text, metadata={_FIELD: fields}, user=user)
        else:
            await self._memory.add(text, metadata={_FIELD: fields}, user=user)

    async def _kept(self, space: tuple[str, ...], found: list[Any], *, refresh: bool) -> list[Any]:
        """Return the memories that have not expired; the others are removed."""
        now, kept, user = datetime.now(UTC).timestamp(), [], ".".join(space)
        for one in found:
            fields = one.metadata[_FIELD]
            if now >= fields.get("expires", now + 1):
                await self._remove(space, one)
                continue
            kept.append(one)
            ttl = fields.get("ttl", 0) * 60
            if refresh and ttl and fields["expires"] - now < ttl * (1 - _REFRESHED_AFTER):
                longer = {_FIELD: fields | {"expires": now + ttl}}
                await self._memory.update(one.id, metadata=longer, user=user)
        return kept

    async def _remove(self, space: tuple[str, ...], one: StoredMemory) -> None:
        """Erase an item; it is only hidden if another item has one of its texts, because an erasure takes every memory of a text."""
        user = ".".join(space)
        try:
            texts = {_folded(each.text) for each in await self._memory.history(one.id, user=user)}
            # It is hidden first, so that of two items that are removed at the same time the later one sees no other.
            await self._memory.delete(one.id, user=user)
            versions = {
                each.id: each async for each in self._memory.list(states=("live", "superseded"), user=user)
            }
            alike = (each for each in versions.values() if _folded(each.text) in texts)
            if not any(_is_current(each, versions) for each in alike):
                await self._memory.erase(one.id, user=user)
        except RelayerRefused as error:
            # Another call has erased it, or has just put a new value, which stays.
            if error.code not in {"not_found", "stale_head"}:
                raise

    async def _memories(self, space: tuple[str, ...], key: str) -> list[StoredMemory]:
        where = {f"{_FIELD}.key": key}
        return [one async for one in self._memory.list(where=where, user=".".join(space))]

    async def _namespaces(self) -> list[tuple[str, ...]]:
        return [space for user in await self._memory.users() if all(space := tuple(user.split(".")))]


def _folded(text: str) -> str:
    """Return the letters and digits of a text: two memories that are the same text for the relayer are equal in them."""
    return "".join(
        filter(str.isalnum, unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()))
    )


def _is_current(one: StoredMemory | None, versions: Mapping[str, StoredMemory]) -> bool:
    """Return whether a version is live, or an old one of an item that is."""
    while one is not None and one.state != "live":
        one = versions.get(one.superseded_by or "")
    return one is not None


def _item(space: tuple[str, ...], one: StoredMemory) -> SearchItem:
    fields = one.metadata[_FIELD]
    value = fields["value"] | dict.fromkeys(fields["texts"], one.text)
    return SearchItem(
        space,
        fields["key"],
        value,
        datetime.fromisoformat(fields["created"]),
        one.created_at,
        one.score if isinstance(one, SearchHit) else None,
    )


def _fields(op: PutOp) -> tuple[str, dict[str, Any]]:
    """Return the text of an item, and the metadata of the rest: the fields with this very text are left out."""
    value = dict(op.value or {})
    found = (
        (text for path in op.index for text in get_text_at_path(value, path)) if op.index else _strings(value)
    )
    text = "\n".join(found) or json.dumps(value, ensure_ascii=False, default=dict)
    texts = [name for name, each in value.items() if each == text]
    rest = {name: each for name, each in value.items() if name not in texts}
    return text, {"key": op.key, "value": rest, "texts": texts, "indexed": op.index is not False}


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(each)


def _where(op: SearchOp) -> dict[str, Any]:
    conditions: dict[str, Any] = (
        {f"{_FIELD}.indexed": True} if op.query else {f"{_FIELD}.indexed": {"in": [True, False]}}
    )
    for name, wanted in (op.filter or {}).items():
        operators = isinstance(wanted, Mapping) and any(each.startswith("$") for each in wanted)
        given = wanted if operators else {"$eq": wanted}
        unknown = given.keys() - {"$eq", "$ne", "$gt", "$gte", "$lt", "$lte"}
        if unknown:
            raise InvalidInput(f"filter.{name}", f"has an unknown operator {min(unknown)}")
        conditions[f"{_FIELD}.value.{name}"] = {
            **({"not": {"eq": given["$ne"]}} if "$ne" in given else {}),
            **{each[1:]: operand for each, operand in given.items() if each != "$ne"},
        }
    return conditions


def _matches(space: tuple[str, ...], wanted: MatchCondition) -> bool:
    parts = space[: len(wanted.path)] if wanted.match_type == "prefix" else space[-len(wanted.path) :]
    return len(parts) == len(wanted.path) and all(
        each in {part, "*"} for part, each in zip(parts, wanted.path, strict=True)
    )
