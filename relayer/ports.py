"""The ports of the relayer: narrow protocols for the services it needs, which `relayer.adapters` implements.

There are ports for an object store, an embedder, a language model, a clock, traces and randomness. A conditional write has
four outcomes, and `Unknown` is one of them. Outcomes are return values, because every caller must decide on each of them.
What no caller can decide on (a store that is down, full or misconfigured) is raised as an exception. The module also checks
object keys, prefixes and byte ranges, and has a base class for stores that wrap another store.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Found:
    """The object's bytes (or the requested range of them), its etag, and the store's time in ms since the epoch."""

    data: bytes
    etag: str
    store_time: int


@dataclass(frozen=True, slots=True)
class Absent:
    """The outcome of a read if no such object exists."""

    store_time: int


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The outcome of a read if the object still has the etag that the caller gave."""

    store_time: int


@dataclass(frozen=True, slots=True)
class Created:
    """The outcome of a create that succeeded: the object exists with these bytes, because of this call."""

    etag: str
    store_time: int


@dataclass(frozen=True, slots=True)
class Exists:
    """The outcome of a create if the key was taken; nothing was written."""

    store_time: int


@dataclass(frozen=True, slots=True)
class Swapped:
    """The outcome of a swap that succeeded: the object has these bytes, because of this call."""

    etag: str
    store_time: int


@dataclass(frozen=True, slots=True)
class Changed:
    """The outcome of a swap if the object no longer has the given etag, or is absent; nothing was written."""

    store_time: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """The outcome of a write that may or may not have happened, or may still happen: read before deciding."""

    reason: str


@dataclass(frozen=True, slots=True)
class Throttled:
    """The outcome of a write that the store refused for now; nothing was written. ``retry_after`` is in seconds."""

    retry_after: float


GetOutcome = Found | Absent | Unchanged
CreateOutcome = Created | Exists | Unknown | Throttled
SwapOutcome = Swapped | Changed | Unknown | Throttled


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One row of a listing. ``size`` is in bytes; ``modified`` is in ms since the epoch, by the store's clock."""

    key: str
    size: int
    modified: int


_KEY = re.compile(r"[a-z0-9_-]+(?:/[a-z0-9_-]+)*")
_PREFIX = re.compile(r"(?:[a-z0-9_-]+/)*[a-z0-9_-]*")
_LONGEST_SEGMENT = 255  # NAME_MAX of the common file systems
_LONGEST_KEY = 1024  # S3's limit, in bytes


# Readers request the slot after the log's head again and again.
@lru_cache(maxsize=1024)
def check_key(key: str) -> str:
    """Return ``key`` if it is ``[a-z0-9_-]`` segments joined by single slashes; raises `ValueError` if not.

    Example:
        >>> check_key("acct/0a1b/ptr")
        'acct/0a1b/ptr'
        >>> check_key("../etc")
        Traceback (most recent call last):
            ...
        ValueError: not an object key: '../etc'
    """
    if not _KEY.fullmatch(key) or len(key) > _LONGEST_KEY:
        raise ValueError(f"not an object key: {key[:80]!r}")
    if any(len(segment) > _LONGEST_SEGMENT for segment in key.split("/")):
        raise ValueError(
            f"an object key's segment is longer than {_LONGEST_SEGMENT} characters: {key[:80]!r}"
        )
    return key


def check_prefix(prefix: str) -> str:
    """Return ``prefix`` if some key can start with it, the empty one included; raises `ValueError` if not.

    Example:
        >>> check_prefix("acct/")
        'acct/'
    """
    if not _PREFIX.fullmatch(prefix) or len(prefix) > _LONGEST_KEY:
        raise ValueError(f"not a prefix of object keys: {prefix[:80]!r}")
    return prefix


def check_range(byte_range: tuple[int, int] | None) -> None:
    """Raise `ValueError` unless ``byte_range`` is None or ``[start, end)`` with at least one byte in it.

    Example:
        >>> check_range((0, 10))
        >>> check_range((10, 10))
        Traceback (most recent call last):
            ...
        ValueError: not a byte range: (10, 10)
    """
    if byte_range is not None and not 0 <= byte_range[0] < byte_range[1]:
        raise ValueError(f"not a byte range: {byte_range}")


class ObjectStore(Protocol):
    """An object store with strongly consistent reads and conditional writes.

    Keys match ``[a-z0-9/_-]+`` without empty segments. Every method may raise `StoreUnavailable`,
    `StoreThrottled` (reads only: writes return `Throttled`) and `StoreMisconfigured`; writes may raise `StoreFull`,
    and then wrote nothing.
    """

    @property
    def description(self) -> str:
        """Return the location of the objects for people to read: a path or URL without credentials."""

    async def get(
        self, key: str, *, byte_range: tuple[int, int] | None = None, if_none_match: str | None = None
    ) -> GetOutcome:
        """Read an object, or bytes ``[start, end)`` of it; `Unchanged` if its etag is ``if_none_match``.

        For a byte range the etag may be empty, because a store that computes etags would have to read the whole object.
        """

    async def create(self, key: str, data: bytes) -> CreateOutcome:
        """Write the object if, and only if, the key is free."""

    async def swap(self, key: str, data: bytes, etag: str) -> SwapOutcome:
        """Replace the object if, and only if, it still has ``etag``."""

    async def delete(self, key: str) -> None:
        """Delete the object; an absent one is no error."""

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """Yield the objects whose key starts with ``prefix``, each once, in no particular order."""

    async def versions(self, key: str) -> int:
        """Count the versions that the store still keeps of this key, older ones and delete markers included."""

    async def purge(self, key: str) -> int:
        """Delete every version of this key permanently; returns how many there were."""

    async def close(self) -> None:
        """Release connections, threads and file handles."""


T = TypeVar("T")


class WrappedStore(ABC):
    """The base class of an `ObjectStore` that passes each request to ``inner`` through `around`, which subclasses define."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner

    @abstractmethod
    async def around(self, operation: str, key: str, ask: Callable[[], Awaitable[T]], data: bytes = b"") -> T:
        """Make a request by calling ``ask``, or do not make it.

        Args:
            operation: the name of the port's method.
            key: the object's key; for a listing, the prefix.
            ask: makes the request to the inner store; for a listing, returns its rows as they arrive.
            data: the bytes to write.
        """

    @property
    def description(self) -> str:
        """Return the description of the inner store."""
        return self._inner.description

    async def get(
        self, key: str, *, byte_range: tuple[int, int] | None = None, if_none_match: str | None = None
    ) -> GetOutcome:
        """Read from the inner store through `around`; see `ObjectStore.get`."""
        return await self.around(
            "get", key, lambda: self._inner.get(key, byte_range=byte_range, if_none_match=if_none_match)
        )

    async def create(self, key: str, data: bytes) -> CreateOutcome:
        """Create in the inner store through `around`; see `ObjectStore.create`."""
        return await self.around("create", key, lambda: self._inner.create(key, data), data)

    async def swap(self, key: str, data: bytes, etag: str) -> SwapOutcome:
        """Swap in the inner store through `around`; see `ObjectStore.swap`."""
        return await self.around("swap", key, lambda: self._inner.swap(key, data, etag), data)

    async def delete(self, key: str) -> None:
        """Delete from the inner store through `around`; see `ObjectStore.delete`."""
        await self.around("delete", key, lambda: self._inner.delete(key))

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """List the inner store through `around`; see `ObjectStore.list`."""

        async def rows() -> AsyncIterator[ObjectInfo]:
            return self._inner.list(prefix)

        async for info in await self.around("list", prefix, rows):
            yield info

    async def versions(self, key: str) -> int:
        """Count versions in the inner store through `around`; see `ObjectStore.versions`."""
        return await self.around("versions", key, lambda: self._inner.versions(key))

    async def purge(self, key: str) -> int:
        """Delete all versions from the inner store through `around`; see `ObjectStore.purge`."""
        return await self.around("purge", key, lambda: self._inner.purge(key))

    async def close(self) -> None:
        """Close the inner store."""
        await self._inner.close()


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """The identity of an embedding model; part of every record, because vectors of two models cannot be compared."""

    name: str
    sha256: str
    dimension: int


class QueryVectors(NamedTuple):
    """The vectors of a query by an embedding model.

    Attributes:
        query: the vector of the query, of length 1; shape (dimension,).
        prompt: the vector towards memories that answer the query as a prompt or bear on it, of length 1; None if the model
            was not trained for prompts or the query is none.
        admission: the logit that such memories exist at all, by the prompt alone.
    """

    query: NDArray[np.float32]
    prompt: NDArray[np.float32] | None = None
    admission: float = 0.0

    @classmethod
    def split(cls, row: NDArray[np.float32], dimension: int) -> QueryVectors:
        """Split a row that `Embedder.embed` returned for a query."""
        if len(row) == dimension:
            return cls(row)
        return cls(row[:dimension], row[dimension:-1], float(row[-1]))


class Embedder(Protocol):
    """An embedding model that computes a unit vector for each text."""

    @property
    def model(self) -> EmbeddingModel:
        """Return the identity of the model in use."""

    async def embed(
        self, texts: Sequence[str], *, query: bool = False, prompt: bool = False
    ) -> NDArray[np.float32]:
        """Embed texts; the result has shape (len(texts), dimension), float32, rows of length 1.

        Args:
            texts: in any language.
            query: whether the texts are search queries and not memories: some models embed the two differently.
            prompt: whether these queries are prompts that did not ask for memories. A model that was trained for prompts
                appends to each row what `QueryVectors` splits off; other models ignore it.

        The computation never runs on the event loop's thread.

        Raises:
            EmbedderUnavailable: no embedding can be computed now.
        """

    async def close(self) -> None:
        """Release threads and memory."""


RELATIONS = ("same", "replaces", "refines", "both")
"""The relations of a newer statement to an older one: it says the same, says that the older one is over, adds to it, or leaves
it as it is."""


class RelationReader(Protocol):
    """A model that reads two statements of one person together, of which one was made after the other."""

    async def relations(self, pairs: Sequence[tuple[Sequence[str], str]]) -> list[NDArray[np.float32]]:
        """Return how likely each of `RELATIONS` is for older statements, given by their clauses, and newer ones.

        Each array has a row for the whole older statement and one for each of its clauses: shape (1 + clauses, 4). The computation
        never runs on the event loop's thread, and never in front of a query.

        Raises:
            EmbedderUnavailable: nothing can be computed now.
        """


class CrossEncoder(Protocol):
    """A model that reads a prompt together with memories, for prompts that did not ask for any."""

    async def scores(self, prompt: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return for each text the logit that it answers the prompt or bears on it; shape (len(texts),).

        The computation never runs on the event loop's thread.

        Raises:
            QueueFull: too many calls run or wait already.
            EmbedderUnavailable: nothing can be computed now.
        """


MESSAGE_LOGITS = 18
"""The number of logits of a text that `MessageReader` returns."""


class MessageReader(Protocol):
    """A model that reads a message, or a sentence of one, and says whether it is worth storing."""

    async def messages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the logits of texts, of which only the beginning is read; shape (len(texts), MESSAGE_LOGITS).

        They are those of the classes of users' messages, of the classes of assistants' messages, of the kinds of statements, and
        of the classes of essential ones, in the order of `relayer.lib.n_grams.MESSAGE_CLASSES`, `relayer.lib.n_grams.KINDS` and
        `relayer.lib.n_grams.ESSENTIALS`. The computation never runs on the event loop's thread, and never in front of a query.
        Raises `EmbedderUnavailable`: nothing can be computed now.
        """


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message to a language model."""

    role: Literal["system", "user"]
    text: str


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """The response of a language model.

    Attributes:
        tokens: number of tokens of the prompt and the response.
        model: the name of the model, empty if it is not known.
    """

    text: str
    tokens: int
    model: str = ""


class ChatModel(Protocol):
    """A language model that gives one response to one request."""

    @property
    def name(self) -> str:
        """Return the name of the model, which is recorded with what is made from its responses."""

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        schema: Mapping[str, object] | None,
        max_tokens: int,
        seconds: float,
        effort: str = "",
    ) -> ChatAnswer:
        """Request a completion; cancelling the caller ends the request.

        Args:
            messages: the messages in order.
            schema: a JSON schema that the response should follow. It is a hint: not every server can enforce it.
            max_tokens: the maximum number of tokens of the response.
            seconds: the time limit in seconds for everything, retries included.
            effort: the reasoning effort, as the model's server names it; empty leaves it to the model.

        Raises:
            ModelUnavailable: there was no response in time; a later retry may work.
            ModelAnswerUnusable: the model refused, stopped in the middle, or rejected the request.
            QueueFull: as many requests as allowed are waiting already.
        """

    async def close(self) -> None:
        """Release connections."""


class Clock(Protocol):
    """The local clock. Nothing that replicas must agree on depends on it (I11)."""

    def now_ms(self) -> int:
        """Return the time in ms since the epoch by this machine's clock."""

    def monotonic(self) -> float:
        """Return the seconds since an arbitrary start; they never go back."""

    async def sleep(self, seconds: float) -> None:
        """Wait for a number of seconds; a fake clock returns when a test advances it."""


@dataclass(frozen=True, slots=True)
class RequestSpan:
    """The trace span of a request that has ended, without any content of the request.

    Attributes:
        route: the route's template, ``-`` for none.
        status: the HTTP status of the response.
        code: ``ok``, or the code of the problem.
        parent: the header ``traceparent``; "" for none.
        ended_ns: the time at which the response was ready, in nanoseconds since the epoch.
        took_ns: the duration of the request in nanoseconds.
    """

    method: str
    route: str
    status: int
    code: str
    request_id: str
    parent: str
    ended_ns: int
    took_ns: int


class Traces(Protocol):
    """The destination of trace spans."""

    def ended(self, span: RequestSpan) -> None:
        """Accept a span; returns immediately, and raises nothing."""


class KeyProvider(Protocol):
    """Encrypts the key of a store under the relayer key: `relayer.adapters.local_key`, or a key management service."""

    @property
    def name(self) -> str:
        """The kind of provider. The store names it, so that a key of another kind gets a clear error."""

    async def wrap(self, store_key: bytes) -> bytes:
        """Encrypt the 32 bytes of a store key; raises `relayer.errors.RelayerError` if the provider refuses or is down."""

    async def unwrap(self, wrapped: bytes) -> bytes | None:
        """Decrypt what `wrap` returned; None if it was wrapped under another key. Raises as `wrap`."""


class Randomness(Protocol):
    """A source of random bytes; cryptographically strong outside of tests."""

    def bytes(self, count: int) -> bytes:
        """Return ``count`` random bytes."""
