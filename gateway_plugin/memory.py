"""Memories of an agent and of each of its users, for programs: `Memory`, and `AsyncMemory` for asynchronous code.

Example:
    memory = Memory(agent="support", user="ana")
    memory.add("I'm allergic to peanuts.", tags=["health"], metadata={"ticket": 4711})
    for hit in memory.search("What must I not cook?", where={"tags": "health"}):
        print(hit.text, hit.score, hit.id)

If no relayer is named, neither by the argument ``url`` nor by the settings, the local relayer of this machine is used, and
started if it does not run (`gateway_plugin.calls.local_relayer`). In contrast to `gateway_plugin.plugin.AsyncMemoryPlugin`,
which serves the turns of a conversation, every call does its work before it returns, and raises a `MemrelayError` if it cannot.
"""

from __future__ import annotations

import asyncio
import atexit
import base64
import binascii
import os
import re
import secrets
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Literal, Self, TypeVar
from weakref import WeakKeyDictionary, finalize

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gateway_plugin.calls.clock import SystemClock
from gateway_plugin.calls.local_relayer import LocalRelayer, is_wanted
from gateway_plugin.calls.trust import RelayerAddress
from gateway_plugin.capture.filters import fitting
from gateway_plugin.client import (
    LoopClosed,
    LoopThread,
    OnThread,
    RelayerClient,
    iterated,
    takes_arguments_of,
    waited,
)
from gateway_plugin.errors import IdentityError, InvalidInput, RelayerRefused
from gateway_plugin.keys.identity import (
    Identity,
    NamespaceRef,
    RootHolder,
    identify,
    identify_owner,
    parse_session_key,
)
from gateway_plugin.outbox.queue import Outbox, OutboxFull, OutboxItem, OutboxUnavailable, other_outboxes
from gateway_plugin.outbox.sender import Sender, erase_texts, forget_namespace, off_loop
from gateway_plugin.recall.formatting import select, standing_block
from gateway_plugin.recall.recaller import SEARCH_FLOOR, STANDING_TOKENS, turn_request
from gateway_plugin.sessions import Session
from gateway_plugin.settings.model import PluginSettings, load_settings
from gateway_plugin.setup import connect, holder_for, open_outbox, settings_from
from gateway_plugin.turn.gates import Hearing
from gateway_plugin.turn.query import MAX_QUERY_CHARS, clean_query, clip_middle, parse_messages, readable
from gateway_plugin.turn.status import notify
from relayer.wire import names, schemas, service
from relayer.wire.fields import SourceInfo, is_visible

__all__ = [
    "Added",
    "AskAnswer",
    "AsyncMemory",
    "ErasureReport",
    "ImportReport",
    "Memory",
    "MemoryChange",
    "MemoryChanges",
    "MemoryProfile",
    "SearchHit",
    "StoredMemory",
]

_TIMEOUT: Final = 60.0
_PAGE: Final = 100
_MODEL_WAIT_MS: Final = 20_000
_CURSOR: Final = r"^[0-9]{1,18}(\.[0-9]{1,9})?$"
# A program that calls again wants to know whether the relayer is back, in contrast to a turn, which must not wait for it.
_PAUSE_SECONDS: Final = 1.0
# A namespace has at most four names of 64 characters; the first one is the agent's.
_NAMES: Final = 4
_NAME: Final = 64
_SENDER, _USER = "sender-", "user-"

# The memories of a namespace are disclosed to the program that has its key.
_HEARING: Final = Hearing.of_owner((), "")


class _Arguments(BaseModel):
    """Arguments of a call that has no request with the same fields."""

    model_config = ConfigDict(strict=True)


class _Options(_Arguments):
    agent: str | None
    session: str | None
    url: str | None
    secret: str | None
    timeout: float = Field(gt=0, allow_inf_nan=False)


class _ChangesArguments(_Arguments):
    cursor: str = Field(pattern=_CURSOR)
    wait: float = Field(ge=0, le=schemas.MAX_WAIT_MS / 1000, allow_inf_nan=False)


class _ProfileArguments(_Arguments):
    max_tokens: int = Field(ge=1, le=20_000)


_RequestT = TypeVar("_RequestT", bound=BaseModel)
_R = TypeVar("_R")
Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMemory:
    """A memory as it is stored.

    Attributes:
        id: the id of this version; an update creates a new version with another id.
        text: what is remembered.
        kind: ``statement``, ``fact``, ``preference``, ``decision``, ``event``, ``task``, ``summary``, ``profile`` or ``imported``.
        state: ``live``; ``superseded`` by a newer version; or ``forgotten``, which `AsyncMemory.restore` reverses.
        tags: its tags.
        metadata: its metadata, a JSON object.
        session: the session in which it was added; "" if none was given.
        created_at: when it was stored.
        occurred_at: when it was said, if that is known.
        supersedes: the ids of the versions that it replaced.
        superseded_by: the id of the version that replaced it, if there is one.
    """

    id: str
    text: str
    kind: str
    state: str
    tags: tuple[str, ...]
    metadata: dict[str, Any]
    session: str
    created_at: datetime
    occurred_at: datetime | None
    supersedes: tuple[str, ...]
    superseded_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit(StoredMemory):
    """A memory that a search found.

    Attributes:
        score: its calibrated relevance, from 0 to 1.
        passage: of a long text, the part that matches best; "" otherwise.
    """

    score: float
    passage: str


@dataclass(frozen=True, slots=True)
class Added:
    """The result of adding a memory.

    Attributes:
        id: the id of the first memory; "" if there is none.
        ids: the ids of the memories; of a text there is exactly one, of messages any number.
        status: ``stored``; ``duplicate`` (the same memories were stored before, and have these ids); ``empty`` (nothing in the
            messages is worth keeping); or ``pending`` (the messages are stored, and a language model still extracts facts).
    """

    id: str
    ids: tuple[str, ...]
    status: Literal["stored", "duplicate", "empty", "pending"]


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """The report of a final deletion.

    Attributes:
        id: the id of the erasure.
        state: ``erased`` (in no response any more), ``destroyed`` (deleted from the store) or ``confirmed`` (a later check
            found nothing of it in the store).
        memories: the ids of the memories that were deleted with all of their versions; empty for all memories of a user.
        derived: the ids of memories that were derived from them and deleted, too.
        waiting_turns: captured turns that were deleted before they were delivered to the relayer.
    """

    id: str
    state: str
    memories: tuple[str, ...]
    derived: tuple[str, ...]
    waiting_turns: int


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """The last change of a memory.

    Attributes:
        change: ``remembered``, ``superseded``, ``forgotten``, ``restored`` or ``erased``.
        id: the id of the memory.
        memory: the memory as it is now; None if it was erased.
    """

    change: str
    id: str
    memory: StoredMemory | None


@dataclass(frozen=True, slots=True)
class MemoryChanges:
    """Changes since a cursor, oldest first.

    Attributes:
        changes: at most 100 changes.
        cursor: the cursor for the next call.
        more: whether there are more changes now.
    """

    changes: tuple[MemoryChange, ...]
    cursor: str
    more: bool


@dataclass(frozen=True, slots=True)
class AskAnswer:
    """An answer from memories alone.

    Attributes:
        status: ``answered`` or ``unknown``.
        text: the answer; "" if it is unknown.
        sources: the memories that the answer is based on.
    """

    status: Literal["answered", "unknown"]
    text: str
    sources: tuple[SearchHit, ...]


@dataclass(frozen=True, slots=True)
class MemoryProfile:
    """A document in Markdown about what is known of a user.

    Attributes:
        text: the document, which cites the ids of its memories; "" if there are none.
        shown: the number of memories in it.
        total: the number of memories that it was chosen from.
    """

    text: str
    shown: int
    total: int


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The result of an import: how many memories were stored, known before, skipped (not live any more) or refused."""

    stored: int = 0
    duplicates: int = 0
    skipped: int = 0
    refused: int = 0


def user_names(user: object) -> tuple[str, ...]:
    """Return the names below an agent's that form the namespace of a user; two users never have the same.

    A lower-case name has the namespace that the plugin uses for a sender of that name (scope ``agent+sender``). Other names
    are encoded, so that they can be listed again.

    Raises:
        InvalidInput: the name is empty, too long or not valid Unicode.

    Example:
        >>> user_names("ana"), user_names("Ana")
        (('sender-ana',), ('user-85n62',))
    """
    if not isinstance(user, str) or not user.strip():
        raise InvalidInput("user", "must be a name with at least one visible character")
    plain = f"{_SENDER}{user}"
    if len(plain) <= _NAME and names.is_normal(plain):
        return (plain,)
    try:
        encoded = base64.b32hexencode(user.encode()).decode().rstrip("=").lower()
    except UnicodeEncodeError as error:
        raise InvalidInput("user", "must be valid Unicode: it contains a lone surrogate") from error
    whole = _USER + encoded
    return tuple(whole[at : at + _NAME] for at in range(0, len(whole), _NAME))


def _user_of(parts: Sequence[str]) -> str | None:
    """Return the user whose namespace has these names below the agent's; None if it is not the namespace of a user."""
    whole = "".join(parts)
    if len(parts) == 1 and whole.startswith(_SENDER):
        return whole.removeprefix(_SENDER)
    if not whole.startswith(_USER):
        return None
    encoded = whole.removeprefix(_USER).upper()
    with suppress(binascii.Error, UnicodeDecodeError, InvalidInput):
        user = base64.b32hexdecode(encoded + "=" * (-len(encoded) % 8)).decode()
        if user_names(user) == tuple(parts):
            return user
    return None


class _Connection:
    """The connection of one event loop: a client, and a claim on the local relayer if that is used."""

    def __init__(self) -> None:
        self.opening = asyncio.Lock()
        self.client: RelayerClient | None = None
        self._sender: Sender | None = None
        self._process = os.getpid()
        self._parts = AsyncExitStack()
        self._guard: AsyncGenerator[None, None] | None = None

    async def open(
        self, settings: PluginSettings, environ: Mapping[str, str], *, local: bool
    ) -> RelayerClient:
        """Return the client; the first call creates it, and starts or finds the local relayer if ``local``."""
        async with self.opening:
            if self.client is None:
                relayer = LocalRelayer(environ)
                if local:
                    settings = settings.model_copy(update={"url": await relayer.ensure()})
                self.client = connect(settings, environ, clock=SystemClock(), pause=_PAUSE_SECONDS)
                self._parts.callback(relayer.release)
                self._parts.push_async_callback(self.client.aclose)
                self._guard = self._until_the_loop_ends(self._parts)
                await anext(self._guard)
            return self.client

    def sender(
        self,
        client: RelayerClient,
        outbox: Callable[[], Outbox],
        identity_of: Callable[[NamespaceRef], Identity],
    ) -> Sender:
        """Return the delivery of captured turns; the first call creates it, and opens the outbox for it."""
        if self._sender is None:
            opened = outbox()
            self._sender = Sender(client, opened, identity_of, notify=notify)
            self._parts.callback(opened.close)
            self._parts.push_async_callback(self._sender.aclose)
        return self._sender

    async def aclose(self) -> None:
        guard, self._guard, self.client, self._sender = self._guard, None, None, None
        if guard is not None:
            await guard.aclose()

    def close_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start to close on its own event loop, if that runs in this process, and do not wait for it."""
        if loop.is_running() and self._process == os.getpid():
            # The loop may end in the meantime; it closes the connection then.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(lambda: loop.create_task(self.aclose()))

    # An event loop closes its unfinished asynchronous generators before it ends, so `asyncio.run` closes the connection too.
    @staticmethod
    async def _until_the_loop_ends(parts: AsyncExitStack) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            await parts.aclose()


_Connections = WeakKeyDictionary[asyncio.AbstractEventLoop, _Connection]


def _close_soon(connections: _Connections) -> None:
    for loop, connection in tuple(connections.items()):
        connection.close_soon(loop)


class AsyncMemory:
    """Memories of an agent and of each of its users, for asynchronous code.

    The memories of a user are encrypted under a key of their own, and no call for another user returns them. An object can be
    used from any event loop, and in a child process after a fork. Close it with `aclose`, or use it as an asynchronous
    context manager. Every method takes ``user``, which replaces the user of the object for this call.

    Example:
        async with AsyncMemory(agent="support", user="ana") as memory:
            await memory.add("I'm allergic to peanuts.")
            hits = await memory.search("What must I not cook?")

    Args:
        agent: the agent; None takes it from the settings, or is the default agent.
        user: the user of the agent whose memories are meant, compared character by character; None for the agent's own.
        session: the session that memories are added in, as a label.
        url: the URL of the relayer; None takes it from the settings, or starts or finds the local relayer.
        secret: the secret of the account, 64 hexadecimal digits or base64. None looks for it and creates one if there is
            none, see `gateway_plugin.keys.gateway_secret`.
        settings: the settings of the plugin; None reads the environment.
        environ: the environment variables; secrets are removed from it.
        timeout: the maximum duration of a call in seconds. Starting the local relayer takes longer and does not count.

    Raises:
        InvalidInput: an argument is invalid.
        SettingsError: a setting is invalid.
        IdentityError: the secret is malformed, unreadable, or readable by other users; or memory is switched off.
    """

    def __init__(
        self,
        *,
        agent: str | None = None,
        user: str | None = None,
        session: str | None = None,
        url: str | None = None,
        secret: str | None = None,
        settings: PluginSettings | Mapping[str, object] | None = None,
        environ: MutableMapping[str, str] | None = None,
        timeout: float = _TIMEOUT,
    ) -> None:
        self._environ = os.environ if environ is None else environ
        _checked(_Options, {}, agent=agent, session=session, url=url, secret=secret, timeout=timeout)
        given = settings if isinstance(settings, PluginSettings) else load_settings(settings, self._environ)
        if given.disabled:
            raise IdentityError("memory is switched off by MEMRELAY_DISABLE")
        self._local = url is None and is_wanted(given)
        self._settings = settings_from(given, self._environ, url=url)
        self._holder = holder_for(self._settings, self._environ, secret=secret)
        self._agent = identify(
            self._holder,
            parse_session_key(""),
            default_agent=self._settings.agent if agent is None else agent,
            default_namespace=self._settings.namespace.default,
            profile=self._settings.namespace.profile,
            renamed=self._settings.namespace.renamed,
        )
        self._user = user
        self._session = session or ""
        self._timeout = timeout
        self._closed = False
        self._durable = self._settings.capture.durable
        self._connections: _Connections = WeakKeyDictionary()
        # Without it, garbage collection would find open sessions, which print a warning then.
        finalize(self, _close_soon, self._connections).atexit = False
        self._whose(None)
        # A malformed URL is reported here and not by the first call.
        self._origin = RelayerAddress.parse(self._settings.url).origin

    async def add(
        self,
        content: str | Iterable[Message],
        *,
        tags: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        user: str | None = None,
        session: str | None = None,
        occurred_at: datetime | None = None,
        keep_secrets: bool = False,
    ) -> Added:
        """Add a text, or what is worth keeping of the messages of a conversation.

        When the call returns, the memories are durable and can be found.

        Args:
            content: a text, which is stored as it is but for the secrets in it; or messages with ``role`` and ``content``, from
                which the relayer extracts.
            tags: up to 32 texts of up to 64 characters.
            metadata: a JSON object of up to 4 KiB. The keys ``and``, ``or``, ``not``, ``tags`` and ``session`` are reserved.
            user: see the class.
            session: the session; None for that of the object.
            occurred_at: when it was said; None for now.
            keep_secrets: whether passwords, card numbers and other secrets stay in a text. Otherwise ``[password removed]`` or the
                like is in their place.

        Raises:
            InvalidInput: an argument is invalid; nothing was stored.
            RelayerRefused: the relayer did not store it.
        """
        if isinstance(content, str):
            item = self._item(
                "content", content, tags=tags, metadata=metadata, session=session, occurred_at=occurred_at
            )
            return (await self._remember([item], user, keep_secrets=keep_secrets))[0]
        if keep_secrets:
            raise InvalidInput("keep_secrets", "is for a text; secrets are always removed from messages")
        wait_ms = int(min(self._timeout * 500, _MODEL_WAIT_MS))
        turns = _checked_turns(_turns_of(content, occurred_at))
        request = self._analysis(turns, tags=tags, metadata=metadata, session=session, wait_ms=wait_ms)
        answer = await (await self._client()).analyze(self._whose(user), request, deadline=self._timeout)
        stored = [one for one in answer.memories if one.status != "refused"]
        ids = tuple(dict.fromkeys((*(one.id for one in stored), *answer.facts)))
        first = next(iter(ids), "")
        if answer.state == "pending":
            return Added(first, ids, "pending")
        if not ids:
            return Added("", (), "empty")
        is_new = bool(answer.facts) or any(one.status == "stored" for one in stored)
        return Added(first, ids, "stored" if is_new else "duplicate")

    async def capture(
        self,
        content: Iterable[Message],
        *,
        metadata: Mapping[str, Any] | None = None,
        user: str | None = None,
        session: str | None = None,
    ) -> bool:
        """Store what is worth keeping of the messages of a turn: now, or when the relayer answers again.

        There may be any number of messages; of one above 64 KiB the beginning and the end are read.

        The messages are encrypted into the outbox on disk before they are sent. What waits there is delivered in the background,
        also by later processes with the same secret and relayer, from their first capture on. If the outbox cannot be used, or
        ``capture.durable`` is false, the messages are only sent.

        Args:
            content: messages with ``role`` and ``content``.
            metadata: as in `add`.
            user: see the class.
            session: the session; None for that of the object.

        Returns:
            Whether the relayer has stored it. If not, it waits in the outbox.

        Raises:
            InvalidInput: an argument is invalid; nothing was stored.
            MemrelayError: the outbox cannot be used, and the relayer did not store the turn either.
        """
        whose, now = self._whose(user), datetime.now(UTC)
        turns = _checked_turns(turn | {"text": fitting(turn["text"])} for turn in _turns_of(content, now))
        requests = [
            self._analysis(
                turns[first : first + _PAGE],
                metadata=metadata,
                session=session,
                idempotency_key=secrets.token_hex(16),
            )
            for first in range(0, len(turns), _PAGE)
        ]
        unqueued = [
            request
            for request in requests
            if not (self._durable and await self._queued(OutboxItem(whose.ref, request, _ms(now) or 0)))
        ]
        client = await self._client()
        for request in unqueued:
            await client.analyze(whose, request, deadline=self._timeout)
        if len(unqueued) == len(requests):
            return True
        connection = self._connections[asyncio.get_running_loop()]
        # Both refer to no connection: a connection that delivers does not keep its object from being collected.
        queue = partial(open_outbox, self._settings, self._environ, self._holder, self._origin)
        identity_of = partial(identify_owner, self._holder, self._settings.namespace.renamed)
        return await connection.sender(client, queue, identity_of).settled(whose.namespace, self._timeout)

    async def _queued(self, item: OutboxItem) -> bool:
        """Put a captured turn into the outbox on disk; False if there is none, or it takes no more."""
        with self._outbox() as outbox:
            self._durable = outbox.durable
            with suppress(OutboxFull, OutboxUnavailable):
                if outbox.durable:
                    await off_loop(outbox, outbox.put, item)
                    return True
        return False

    def _analysis(
        self,
        turns: Sequence[schemas.TurnItem],
        *,
        metadata: Mapping[str, Any] | None,
        session: str | None,
        **more: object,
    ) -> schemas.AnalyzeRequest:
        return _checked(
            schemas.AnalyzeRequest,
            {},
            turns=turns,
            session=self._session if session is None else session,
            metadata={} if metadata is None else metadata,
            **more,
        )

    async def add_many(
        self,
        texts: Iterable[str],
        *,
        tags: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        user: str | None = None,
        session: str | None = None,
        occurred_at: datetime | None = None,
        keep_secrets: bool = False,
    ) -> tuple[Added, ...]:
        """Add texts, in requests of up to a hundred; all are checked before the first one is stored.

        Args:
            texts: the texts, each of which becomes a memory.
            tags: as in `add`, for all texts.
            metadata: as in `add`, for all texts.
            user: see the class.
            session: the session; None for that of the object.
            occurred_at: when they were said; None for now.
            keep_secrets: as in `add`, for all texts.

        Returns:
            The results in the order of the texts.

        Raises:
            InvalidInput: an argument is invalid; nothing was stored.
            RelayerRefused: the relayer did not store a text; texts before it may be stored.
        """
        if isinstance(texts, str) or not isinstance(texts, Iterable):
            raise InvalidInput("texts", "must be a list of texts; give a single text to add")
        items = [
            self._item(
                f"texts[{number}]",
                text,
                tags=tags,
                metadata=metadata,
                session=session,
                occurred_at=occurred_at,
            )
            for number, text in enumerate(texts)
        ]
        return await self._remember(items, user, keep_secrets=keep_secrets)

    def _item(
        self,
        place: str,
        text: str,
        *,
        tags: Sequence[str],
        metadata: Mapping[str, Any] | None,
        session: str | None,
        occurred_at: datetime | None,
    ) -> schemas.MemoryItem:
        source = _checked(SourceInfo, {}, session=self._session if session is None else session)
        return _checked(
            schemas.MemoryItem,
            {"text": place},
            text=text,
            tags=tags,
            metadata={} if metadata is None else metadata,
            occurred_at=_ms(occurred_at),
            source=source,
        )

    async def _remember(
        self, items: Sequence[schemas.MemoryItem], user: str | None, *, keep_secrets: bool
    ) -> tuple[Added, ...]:
        client, whose = await self._client(), self._whose(user)
        added: list[Added] = []
        for first in range(0, len(items), _PAGE):
            page = tuple(items[first : first + _PAGE])
            request = schemas.RememberRequest(items=page, keep_secrets=keep_secrets)
            answer = await client.remember(whose, request, deadline=self._timeout)
            for one in answer.memories:
                if one.status == "refused":
                    raise RelayerRefused(one.code or "refused", "the memory was not stored", status=409)
                added.append(Added(one.id, (one.id,), one.status))
        return tuple(added)

    async def search(
        self,
        query: str,
        *,
        limit: int = 5,
        min_score: float = SEARCH_FLOOR,
        where: Mapping[str, Any] | None = None,
        user: str | None = None,
    ) -> tuple[SearchHit, ...]:
        """Search for memories that are relevant to a query, best first; the result is empty if none is.

        Args:
            query: a question or any other text.
            limit: the maximum number of hits, from 1 to 100.
            min_score: the minimum score of a hit, from 0 to 1.
            where: a filter on tags and metadata, e.g. ``{"tags": "health", "ticket": {"gte": 4000}}``. The operators are ``eq``,
                ``in``, ``not``, ``gt``, ``gte``, ``lt`` and ``lte``, and ``and``, ``or`` and ``not`` combine filters. A memory
                without the key equals nothing and is in no range.
            user: see the class.

        Raises:
            InvalidInput: an argument is invalid.
        """
        request = _checked(
            schemas.RecallRequest,
            {"floor": "min_score"},
            query=_text("query", query),
            limit=limit,
            floor=min_score,
            where=where,
            rerank=True,
        )
        answer = await (await self._client()).recall(self._whose(user), request, deadline=self._timeout)
        return tuple(map(_hit, answer.memories))

    async def recall(self, message: str, *, user: str | None = None) -> str:
        """Return the memories that belong in the prompt of a turn, as one block of text; "" if nothing relevant is known.

        The block has the memories that are relevant to the message, and those that belong in every prompt: what could harm the
        user, how to answer, and who the user is. It frames them as untrusted history. Threshold, number and length are those of
        the settings ``recall``.

        Example:
            system_prompt = f"You are a helpful assistant. {await memory.recall(message)}"

        Raises:
            InvalidInput: the message is not a text.
        """
        query = clip_middle(clean_query(readable(_text("message", message))), MAX_QUERY_CHARS)
        if not is_visible(query):
            return ""
        settings, hearing = self._settings.recall, _HEARING
        client, whose = await self._client(), self._whose(user)
        known, found = await asyncio.gather(
            client.standing(whose, audiences=hearing.standing, deadline=self._timeout),
            client.recall(whose, turn_request(settings, query, hearing), deadline=self._timeout),
        )
        limit = min(STANDING_TOKENS, settings.max_tokens // 2)
        block = standing_block(known.lines, limit, hearing.standing)
        selected = select(
            found.memories,
            settings=settings,
            hearing=hearing,
            session=Session(),
            now=datetime.now().astimezone(),
            standing=block.lines,
            query=query,
            former=found.former,
        )
        return "\n\n".join(text for text in (block.text, selected.text) if text)

    async def get(self, memory_id: str, *, user: str | None = None) -> StoredMemory:
        """Return one memory.

        Raises:
            RelayerRefused: with code ``not_found``: there is no such memory.
        """
        client, whose = await self._client(), self._whose(user)
        answer = await client.get_memory(whose, _text("memory_id", memory_id), deadline=self._timeout)
        return _stored(answer.memory)

    async def list(
        self,
        *,
        where: Mapping[str, Any] | None = None,
        states: Sequence[str] = ("live",),
        user: str | None = None,
    ) -> AsyncGenerator[StoredMemory, None]:
        """Iterate over the memories, newest first. Pages are requested as the iteration proceeds.

        Args:
            where: a filter, as in `search`.
            states: the states of the memories, see `StoredMemory`.
            user: see the class.

        Raises:
            InvalidInput: the filter is invalid, or there is no such state.
        """
        _checked(schemas.ListRequest, {}, where=where, states=states)
        client, whose = await self._client(), self._whose(user)
        async for memory in client.all_memories(whose, states=states, where=where, deadline=self._timeout):
            yield _stored(memory)

    async def update(
        self,
        memory_id: str,
        text: str | None = None,
        *,
        tags: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        user: str | None = None,
    ) -> StoredMemory:
        """Replace a memory by a new version, which is returned; the old one stays in its history.

        Arguments that are None are not changed.

        Raises:
            InvalidInput: an argument is invalid.
            RelayerRefused: with code ``not_found``, or ``stale_head`` if the memory has a newer version.
        """
        given = {"text": text, "tags": tags, "metadata": metadata}
        changes = {name: value for name, value in given.items() if value is not None}
        if not changes:
            raise InvalidInput("text", "give at least one of text, tags and metadata")
        request = _checked(schemas.SupersedeRequest, {}, **changes)
        client, whose = await self._client(), self._whose(user)
        answer = await client.supersede(whose, _text("memory_id", memory_id), request, deadline=self._timeout)
        return await self.get(answer.id, user=user)

    async def delete(self, memory_id: str, *, user: str | None = None) -> None:
        """Hide a memory from every search; `restore` brings it back.

        Raises:
            RelayerRefused: with code ``not_found``, or ``stale_head`` if the memory has a newer version.
        """
        client, whose = await self._client(), self._whose(user)
        await client.forget(whose, _text("memory_id", memory_id), deadline=self._timeout)

    async def delete_all(self, *, where: Mapping[str, Any] | None = None, user: str | None = None) -> int:
        """Hide all memories of a user from every search, and return their number.

        Raises:
            InvalidInput: the filter is invalid.
        """
        client, whose, count = await self._client(), self._whose(user), 0
        request = _checked(schemas.DeleteRequest, {}, everything=where is None, where=where)
        while True:
            answer = await client.delete(whose, request, deadline=self._timeout)
            count += answer.forgotten
            if not answer.remaining:
                return count

    async def restore(self, memory_id: str, *, user: str | None = None) -> None:
        """Restore a deleted memory, or an old version of one.

        Raises:
            RelayerRefused: with code ``not_found``.
        """
        client, whose = await self._client(), self._whose(user)
        await client.restore(whose, _text("memory_id", memory_id), deadline=self._timeout)

    async def erase(self, memory_id: str, *, user: str | None = None) -> ErasureReport:
        """Delete a memory permanently, with its versions, every memory of the same text, and everything derived from these.

        A person who erases a memory sees its text, so the text goes with all of its memories of the user, whatever their tags and
        metadata, and with their other versions. Case, spaces and punctuation at the end make no difference. `delete` only hides
        the one memory.

        Returns:
            The state of the deletion. The memory is no longer recalled; its stored copies are deleted later.

        Raises:
            InvalidInput: the id is not a text.
            IdentityError: this process holds the keys of one agent only, and not the account's secret.
            RelayerRefused: no memory has this id (code ``not_found``).
        """
        client, whose = await self._client(), self._whose(user)
        known = await client.get_memory(whose, _text("memory_id", memory_id), deadline=self._timeout)
        texts = {one.text for one in (known.memory, *known.history)}
        # Before the relayer erases them, so that none is delivered afterwards.
        waiting = self._erase_waiting(lambda outbox: erase_texts(outbox, whose.namespace, texts))
        answer = await client.erase(self._person(whose), memory_id, deadline=self._timeout)
        return _report(answer.erasure, waiting)

    async def erase_all(self, *, user: str | None = None) -> ErasureReport:
        """Delete all memories of a user permanently.

        Raises:
            InvalidInput: the agent has no user of this name.
            IdentityError: this process holds the keys of one agent only, and not the account's secret.
        """
        client, whose = await self._client(), self._whose(user)
        await self._check_is_known(user)
        person = self._person(whose)
        counted = await client.erase_namespace(person, deadline=self._timeout)
        owner = NamespaceRef(whose.agent, whose.namespace, whose.generation)
        waiting = self._erase_waiting(lambda outbox: forget_namespace(outbox, owner))
        answer = await client.erase_namespace(person, confirm=counted.confirm, deadline=self._timeout)
        return _report(answer.erasure, waiting)

    def _erase_waiting(self, erase: Callable[[Outbox], int]) -> int:
        """Erase what waits on this machine, also for a former address of the relayer; return the number of turns."""
        with self._outbox() as outbox:
            return erase(outbox) + sum(map(erase, other_outboxes(outbox.path, self._holder)))

    async def history(self, memory_id: str, *, user: str | None = None) -> tuple[StoredMemory, ...]:
        """Return all versions of a memory, oldest first.

        Raises:
            RelayerRefused: with code ``not_found``.
        """
        client, whose = await self._client(), self._whose(user)
        answer = await client.get_memory(whose, _text("memory_id", memory_id), deadline=self._timeout)
        return tuple(map(_stored, answer.history))

    async def changes(
        self, cursor: str = "0", *, wait: float = 0.0, user: str | None = None
    ) -> MemoryChanges:
        """Return the changes after a cursor, oldest first.

        Args:
            cursor: ``MemoryChanges.cursor`` of the previous call; "0" for all changes.
            wait: the seconds to wait for the first change, up to 30.
            user: see the class.

        Raises:
            InvalidInput: an argument is invalid.
        """
        _checked(_ChangesArguments, {}, cursor=cursor, wait=wait)
        client, whose, wait_ms = await self._client(), self._whose(user), int(wait * 1000)
        answer = await client.changes(whose, after=cursor, wait_ms=wait_ms, deadline=self._timeout + wait)
        changed = (
            MemoryChange(one.change, one.id, None if one.memory is None else _stored(one.memory))
            for one in answer.changes
        )
        return MemoryChanges(tuple(changed), answer.next, answer.more)

    async def ask(self, question: str, *, user: str | None = None) -> AskAnswer:
        """Have the relayer's language model answer a question from memories alone.

        Raises:
            InvalidInput: the question is empty.
            RelayerRefused: with code ``no_model``: the relayer has no language model.
        """
        request = _checked(schemas.AskRequest, {}, question=_text("question", question))
        answer = await (await self._client()).ask(self._whose(user), request, deadline=self._timeout)
        return AskAnswer(answer.status, answer.answer, tuple(map(_hit, answer.citations)))

    async def profile(self, *, max_tokens: int = 1000, user: str | None = None) -> MemoryProfile:
        """Return what is known of a user as one document of at most ``max_tokens``, from 1 to 20,000.

        Raises:
            InvalidInput: an argument is invalid.
        """
        _checked(_ProfileArguments, {}, max_tokens=max_tokens)
        client, whose = await self._client(), self._whose(user)
        answer = await client.profile(whose, max_tokens=max_tokens, deadline=self._timeout)
        return MemoryProfile(answer.document, answer.shown, answer.total)

    async def export(self, *, user: str | None = None) -> AsyncGenerator[dict[str, Any], None]:
        """Iterate over the memories, oldest first, each as a JSON object that `import_` accepts.

        Raises:
            InvalidInput: the agent has no user of this name.
        """
        client, whose = await self._client(), self._whose(user)
        await self._check_is_known(user)
        async for one in client.export(whose, service.ExportRequest()):
            if isinstance(one, schemas.Memory):
                yield one.model_dump(mode="json")

    async def import_(
        self, exported: Iterable[Mapping[str, Any]], *, user: str | None = None
    ) -> ImportReport:
        """Store memories that `export` returned. Importing them again stores nothing twice.

        All are checked before the first one is stored.

        Raises:
            InvalidInput: a memory is malformed; nothing was stored.
        """
        if not isinstance(exported, Iterable):
            raise InvalidInput("exported", "must be a list of memories as export returns them")
        items = []
        for number, memory in enumerate(exported):
            if not isinstance(memory, Mapping):
                raise InvalidInput(f"exported[{number}]", "must be a mapping as export returns it")
            items.append(_checked(service.ImportItem, {"": f"exported[{number}]."}, **memory))
        client, whose = await self._client(), self._whose(user)
        counts = {"stored": 0, "duplicate": 0, "skipped": 0, "refused": 0}
        for first in range(0, len(items), _PAGE):
            page = service.ImportRequest(memories=tuple(items[first : first + _PAGE]), as_backup=True)
            answer = await client.import_memories(whose, page, deadline=self._timeout)
            for one in answer.memories:
                counts[one.status] += 1
        return ImportReport(counts["stored"], counts["duplicate"], counts["skipped"], counts["refused"])

    async def users(self) -> tuple[str, ...]:
        """Return the names of the agent's users that have memories, in alphabetical order."""
        client, cursor = await self._client(), None
        above, found = f"{self._agent.namespace}/", set()
        while True:
            page = await client.namespaces(self._agent, cursor=cursor, deadline=self._timeout)
            for one in page.namespaces:
                if one.state == "live" and one.name.startswith(above):
                    found.add(_user_of(one.name.removeprefix(above).split("/")))
            cursor = page.next_cursor
            if cursor is None:
                return tuple(sorted(user for user in found if user is not None))

    async def aclose(self) -> None:
        """Close the connections to the relayer, without waiting for those of other event loops. A second call does nothing."""
        self._closed = True
        connection = self._connections.pop(asyncio.get_running_loop(), None)
        _close_soon(self._connections)
        self._connections.clear()
        if connection is not None:
            await connection.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()

    async def _client(self) -> RelayerClient:
        if self._closed:
            raise LoopClosed
        connection = self._connections.setdefault(asyncio.get_running_loop(), _Connection())
        return await connection.open(self._settings, self._environ, local=self._local)

    def _whose(self, user: str | None) -> Identity:
        """Return the identity of a call for a user; None is the user of the object."""
        user = self._user if user is None else user
        if user is None:
            return self._agent
        whole = "/".join((self._agent.namespace, *user_names(user)))
        if whole.count("/") >= _NAMES:
            raise InvalidInput(
                "user",
                "is too long: at most 116 bytes of UTF-8, 40 fewer with each of namespace.default and namespace.profile",
            )
        return replace(self._agent, namespace=whole)

    def _person(self, whose: Identity) -> Identity:
        if not isinstance(self._holder, RootHolder):
            raise IdentityError(
                "erasing needs the account's secret; this process holds the keys of one agent"
            )
        return self._holder.person(whose.agent, whose.namespace)

    def _outbox(self) -> AbstractContextManager[Outbox]:
        """Open the outbox, which processes and plugins of this account share for each relayer."""
        return closing(open_outbox(self._settings, self._environ, self._holder, self._origin))

    async def _check_is_known(self, user: str | None) -> None:
        user = self._user if user is None else user
        if user is not None and user not in await self.users():
            raise InvalidInput("user", "this agent has no memories of a user of this name; see users()")


_THREAD: Final = "memrelay-memory"


class _ForkableLoop(LoopThread):
    """An event loop in a thread of its own; a child process gets another one when it needs it."""

    @property
    def is_of_this_process(self) -> bool:
        return os.getpid() == self._process

    def call(self, work: Coroutine[Any, Any, _R]) -> _R:
        """Run a coroutine as `LoopThread.call` does, on a new loop if this process was forked since the last call."""
        if not self.is_of_this_process:
            super().__init__(_THREAD)
        return super().call(work)


class Memory(OnThread[AsyncMemory]):
    """Memories of an agent and of each of its users, for synchronous code.

    Its methods are those of `AsyncMemory`, and so are its arguments. They can be called from any thread, also where an event
    loop runs, as in Jupyter. Close it with `close`, or use it as a context manager.

    Example:
        memory = Memory(agent="support", user="ana")
        memory.add("I'm allergic to peanuts.")
        for hit in memory.search("What must I not cook?"):
            print(hit.text, hit.score, hit.id)

    Raises:
        InvalidInput: an argument is invalid.
        SettingsError: a setting is invalid.
        IdentityError: the secret is malformed, unreadable, or readable by other users; or memory is switched off.
    """

    @takes_arguments_of(AsyncMemory)
    def __init__(self, **kwargs: Any) -> None:
        self._here = _ForkableLoop(_THREAD)
        self._ended = False
        super().__init__(AsyncMemory(**kwargs), self._here)
        # A program that ends without closing the object must not leave an open connection, which would print a warning.
        atexit.register(self.close)

    def close(self) -> None:
        """Close the connection to the relayer. A second call does nothing."""
        if not self._ended:
            self._ended = True
            atexit.unregister(self.close)
            if self._here.is_of_this_process:
                super().close()

    add = waited(AsyncMemory.add)
    capture = waited(AsyncMemory.capture)
    add_many = waited(AsyncMemory.add_many)
    search = waited(AsyncMemory.search)
    recall = waited(AsyncMemory.recall)
    get = waited(AsyncMemory.get)
    list = iterated(AsyncMemory.list)
    update = waited(AsyncMemory.update)
    delete = waited(AsyncMemory.delete)
    delete_all = waited(AsyncMemory.delete_all)
    restore = waited(AsyncMemory.restore)
    erase = waited(AsyncMemory.erase)
    erase_all = waited(AsyncMemory.erase_all)
    history = waited(AsyncMemory.history)
    changes = waited(AsyncMemory.changes)
    ask = waited(AsyncMemory.ask)
    profile = waited(AsyncMemory.profile)
    export = iterated(AsyncMemory.export)
    import_ = waited(AsyncMemory.import_)
    users = waited(AsyncMemory.users)


_ROLES: Final = ("user", "assistant", "system", "tool")
_JSON_FIELDS: Final = ("metadata", "where")
# The place in a JSON object that a message begins with, see `relayer.wire.labels`. Its keys may have any characters.
_PLACE: Final = re.compile(r"(.+): (?=(?:must|is|has) )", re.DOTALL)


def _text(field: str, value: object) -> str:
    """Return an argument that must be a text. Raises `InvalidInput` if it is something else."""
    if not isinstance(value, str):
        raise InvalidInput(field, "must be a text")
    return value


def _checked(schema: type[_RequestT], renamed: Mapping[str, str], /, **values: Any) -> _RequestT:
    """Return a request. Raises `InvalidInput`, which names the first invalid field."""
    try:
        return schema(**values)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        name, *inside = map(str, first["loc"] or ("",))
        field = ".".join((renamed.get(name, name), *inside))
        problem = first["msg"].removeprefix("Value error, ")
        if name in _JSON_FIELDS and (place := _PLACE.match(problem)):
            field, problem = f"{field}.{place[1]}", problem[place.end() :]
        raise InvalidInput(renamed.get("", "") + field, problem) from None


def _turns_of(messages: object, occurred_at: datetime | None) -> Iterable[dict[str, Any]]:
    """Return the fields of the turns that messages are sent as; messages of tools and systems are left out."""
    given = (
        tuple(messages)
        if isinstance(messages, Iterable) and not isinstance(messages, Mapping | bytes)
        else (None,)
    )
    for number, message in enumerate(given):
        if not isinstance(message, Mapping):
            raise InvalidInput(f"content[{number}]", "must be a mapping with role and content")
        if message.get("role") not in _ROLES:
            raise InvalidInput(f"content[{number}].role", f"must be one of {', '.join(_ROLES)}")
        if not isinstance(message.get("content"), str | Sequence):
            raise InvalidInput(f"content[{number}].content", "must be a string or a list of content parts")
    for one in parse_messages(given):
        at = _ms(occurred_at) if one.at is None else one.at
        yield {"role": one.role.value, "text": one.text, "occurred_at": at, "speaker": one.speaker or None}


def _checked_turns(turns: Iterable[dict[str, Any]]) -> tuple[schemas.TurnItem, ...]:
    """Return turns. Raises `InvalidInput`: one is invalid, or there is none."""
    checked = tuple(
        _checked(schemas.TurnItem, {"": f"content[{number}]."}, **turn) for number, turn in enumerate(turns)
    )
    if not checked:
        raise InvalidInput("content", "must have a message of a user or an assistant")
    return checked


def _ms(moment: object) -> int | None:
    if moment is None:
        return None
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise InvalidInput("occurred_at", "must be a datetime with a time zone")
    return int(moment.timestamp() * 1000)


def _moment(at: int | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at / 1000, UTC)


def _fields(memory: schemas.Memory) -> dict[str, Any]:
    return {
        "id": memory.id,
        "text": memory.text,
        "kind": memory.kind.value,
        "state": memory.state.value,
        "tags": memory.tags,
        "metadata": memory.metadata,
        "session": memory.source.session,
        "created_at": _moment(memory.created_at),
        "occurred_at": _moment(memory.occurred_at),
        "supersedes": memory.supersedes,
        "superseded_by": memory.superseded_by,
    }


def _stored(memory: schemas.Memory) -> StoredMemory:
    return StoredMemory(**_fields(memory))


def _hit(memory: schemas.RecallHit) -> SearchHit:
    return SearchHit(**_fields(memory), score=memory.relevance, passage=memory.passage)


def _report(view: schemas.ErasureView | None, waiting: int) -> ErasureReport:
    if view is None:
        raise RelayerRefused(
            "no_report", "the relayer gave no report: it is older than this client", status=200
        )
    return ErasureReport(view.id, view.state, view.memories, view.derived, waiting)
