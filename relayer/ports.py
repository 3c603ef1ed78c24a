"""What the relayer needs from outside, as narrow protocols; `relayer.adapters` fulfils them. Beside a store: what its keys are.

A conditional write has four honest outcomes, and "I do not know" is one of them: they are values, because every
caller must decide on each. What no caller can decide on (a store that is down, full or misconfigured) is raised.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Absent",
    "Changed",
    "ChatAnswer",
    "ChatMessage",
    "ChatModel",
    "Clock",
    "CreateOutcome",
    "Created",
    "Embedder",
    "EmbeddingModel",
    "Exists",
    "Found",
    "GetOutcome",
    "ObjectInfo",
    "ObjectStore",
    "Randomness",
    "RequestSpan",
    "SwapOutcome",
    "Swapped",
    "Throttled",
    "Traces",
    "Unchanged",
    "Unknown",
]


@dataclass(frozen=True, slots=True)
class Found:
    """The object's bytes (the asked range of them), its etag, and the store's time in ms since the epoch."""

    data: bytes
    etag: str
    store_time: int


@dataclass(frozen=True, slots=True)
class Absent:
    """The store says that no such object exists."""

    store_time: int


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The object still has the etag that the caller knows."""

    store_time: int


@dataclass(frozen=True, slots=True)
class Created:
    """The object exists now, with these bytes, because of this call."""

    etag: str
    store_time: int


@dataclass(frozen=True, slots=True)
class Exists:
    """The name was taken; nothing was written."""

    store_time: int


@dataclass(frozen=True, slots=True)
class Swapped:
    """The object has these bytes now, because of this call."""

    etag: str
    store_time: int


@dataclass(frozen=True, slots=True)
class Changed:
    """The object no longer has the given etag, or is absent; nothing was written."""

    store_time: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """The write may or may not have happened, now or later: read before deciding."""

    reason: str


@dataclass(frozen=True, slots=True)
class Throttled:
    """The store refused for now; nothing was written. ``retry_after`` is in seconds."""

    retry_after: float


GetOutcome = Found | Absent | Unchanged
CreateOutcome = Created | Exists | Unknown | Throttled
SwapOutcome = Swapped | Changed | Unknown | Throttled


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One row of a listing; ``modified`` is in ms since the epoch, by the store's clock."""

    key: str
    size: int
    modified: int


_KEY = re.compile(r"[a-z0-9_-]+(?:/[a-z0-9_-]+)*")
_PREFIX = re.compile(r"(?:[a-z0-9_-]+/)*[a-z0-9_-]*")
_LONGEST_SEGMENT = 255  # NAME_MAX of the common file systems
_LONGEST_KEY = 1024  # S3's limit, in bytes


# A reader asks for the slot behind the log's head again and again.
@lru_cache(maxsize=1024)
def check_key(key: str) -> str:
    """Return ``key`` if it is ``[a-z0-9_-]`` segments joined by single slashes; raises `ValueError` if not."""
    if not _KEY.fullmatch(key) or len(key) > _LONGEST_KEY:
        raise ValueError(f"not an object key: {key[:80]!r}")
    if any(len(segment) > _LONGEST_SEGMENT for segment in key.split("/")):
        raise ValueError(
            f"an object key's segment is longer than {_LONGEST_SEGMENT} characters: {key[:80]!r}"
        )
    return key


def check_prefix(prefix: str) -> str:
    """Return ``prefix`` if some key can start with it, the empty one included; raises `ValueError` if not."""
    if not _PREFIX.fullmatch(prefix) or len(prefix) > _LONGEST_KEY:
        raise ValueError(f"not a prefix of object keys: {prefix[:80]!r}")
    return prefix


def check_range(byte_range: tuple[int, int] | None) -> None:
    """Raise `ValueError` unless ``byte_range`` is None or ``[start, end)`` with at least one byte in it."""
    if byte_range is not None and not 0 <= byte_range[0] < byte_range[1]:
        raise ValueError(f"not a byte range: {byte_range}")


class ObjectStore(Protocol):
    """A store with strong reads and conditional writes.

    Keys match ``[a-z0-9/_-]+`` without empty segments. Every method may raise `StoreUnavailable`,
    `StoreThrottled` (reads only: writes return `Throttled`) and `StoreMisconfigured`; writes may raise `StoreFull`,
    and then wrote nothing.
    """

    @property
    def description(self) -> str:
        """Where the objects are, for people: a path or URL without credentials."""
        ...

    async def get(
        self, key: str, *, byte_range: tuple[int, int] | None = None, if_none_match: str | None = None
    ) -> GetOutcome:
        """Read an object, or bytes ``[start, end)`` of it; `Unchanged` if its etag is ``if_none_match``.

        Of a part the etag may be empty: a store that computes it would have to read all of the object.
        """
        ...

    async def create(self, key: str, data: bytes) -> CreateOutcome:
        """Write the object if, and only if, the name is free."""
        ...

    async def swap(self, key: str, data: bytes, etag: str) -> SwapOutcome:
        """Replace the object if, and only if, it still has ``etag``."""
        ...

    async def delete(self, key: str) -> None:
        """Remove the object; absent is fine."""
        ...

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """Yield the objects whose key starts with ``prefix``, each once, in no order."""
        ...

    async def versions(self, key: str) -> int:
        """Count what the store still keeps of this name, older versions and delete markers included."""
        ...

    async def purge(self, key: str) -> int:
        """Destroy every version of this name; returns how many there were."""
        ...

    async def close(self) -> None:
        """Release connections, threads and file handles."""
        ...


T = TypeVar("T")


class WrappedStore(ABC):
    """An `ObjectStore` that makes each request of ``inner`` through `around`, which is for others to say."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner

    @abstractmethod
    async def around(self, operation: str, key: str, ask: Callable[[], Awaitable[T]], data: bytes = b"") -> T:
        """Make a request by calling ``ask``, or do not.

        Args:
            operation: the port's method.
            key: what it is asked about; of a listing, the prefix.
            ask: asks the inner store; of a listing, returns its rows as they come.
            data: what it is to write.
        """

    @property
    def description(self) -> str:
        """The inner store's."""
        return self._inner.description

    async def get(
        self, key: str, *, byte_range: tuple[int, int] | None = None, if_none_match: str | None = None
    ) -> GetOutcome:
        """As the port says, through `around`."""
        return await self.around(
            "get", key, lambda: self._inner.get(key, byte_range=byte_range, if_none_match=if_none_match)
        )

    async def create(self, key: str, data: bytes) -> CreateOutcome:
        """As the port says, through `around`."""
        return await self.around("create", key, lambda: self._inner.create(key, data), data)

    async def swap(self, key: str, data: bytes, etag: str) -> SwapOutcome:
        """As the port says, through `around`."""
        return await self.around("swap", key, lambda: self._inner.swap(key, data, etag), data)

    async def delete(self, key: str) -> None:
        """As the port says, through `around`."""
        await self.around("delete", key, lambda: self._inner.delete(key))

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """As the port says, through `around`."""

        async def rows() -> AsyncIterator[ObjectInfo]:
            return self._inner.list(prefix)

        async for info in await self.around("list", prefix, rows):
            yield info

    async def versions(self, key: str) -> int:
        """As the port says, through `around`."""
        return await self.around("versions", key, lambda: self._inner.versions(key))

    async def purge(self, key: str) -> int:
        """As the port says, through `around`."""
        return await self.around("purge", key, lambda: self._inner.purge(key))

    async def close(self) -> None:
        """Close the inner store."""
        await self._inner.close()


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """What a vector was made with; part of every record, because vectors of two models do not compare."""

    name: str
    sha256: str
    dimension: int


class Embedder(Protocol):
    """Turns texts into unit vectors."""

    @property
    def model(self) -> EmbeddingModel:
        """Identity of the model in use."""
        ...

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """Embed texts; the result has shape (len(texts), dimension), float32, rows of length 1.

        Args:
            texts: in any language.
            query: whether they ask for memories, rather than being some: there are models that read the two apart.

        Never runs on the event loop's thread. Raises `EmbedderUnavailable`.
        """
        ...

    async def close(self) -> None:
        """Release threads and memory."""
        ...


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message to a language model."""

    role: Literal["system", "user"]
    text: str


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """What a language model answered, and the tokens that question and answer took; ``model`` is its name, if it is known."""

    text: str
    tokens: int
    model: str = ""


class ChatModel(Protocol):
    """A language model that is asked once and answers once."""

    @property
    def name(self) -> str:
        """Name of the model, recorded with what is made of its answers."""
        ...

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        schema: Mapping[str, object] | None,
        max_tokens: int,
        seconds: float,
        effort: str = "",
    ) -> ChatAnswer:
        """Ask the model; cancelling the caller ends the request.

        Args:
            messages: in order.
            schema: a JSON schema that the answer should follow. A hint: not every server can hold a model to it.
            max_tokens: of the answer.
            seconds: for everything, retries included.
            effort: how much a model that reasons should, in its server's words; empty leaves it to the model.

        Raises:
            ModelUnavailable: no answer in time; trying again later may work.
            ModelAnswerUnusable: it refused, stopped in the middle, or does not take the request.
            QueueFull: as many requests as allowed are waiting already.
        """
        ...

    async def close(self) -> None:
        """Release connections."""
        ...


class Clock(Protocol):
    """Local time. It decides nothing that replicas must agree on (I11)."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch by this machine's clock."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never going back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait; a fake clock returns when a test advances it."""
        ...


@dataclass(frozen=True, slots=True)
class RequestSpan:
    """A request that was answered, without a word of it.

    Attributes:
        method: of HTTP.
        route: its template, ``-`` for none.
        status: of the answer.
        code: ``ok``, or the problem's.
        request_id: as in the answer and the log.
        parent: the header ``traceparent``; "" for none.
        ended_ns: when the answer was there, in nanoseconds since the epoch.
        took_ns: how long that took.
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
    """Where spans go."""

    def ended(self, span: RequestSpan) -> None:
        """Take a span; returns at once, and raises nothing."""
        ...


class Randomness(Protocol):
    """Random bytes; cryptographically strong outside of tests."""

    def bytes(self, count: int) -> bytes:
        """Return ``count`` random bytes."""
        ...
