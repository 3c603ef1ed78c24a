"""Vectors from the route ``/embeddings``.

`OpenAIEmbedder` sends texts in batches and validates every vector of a response: its index, dimension and numbers. A text that
the server rejects is shortened and sent again, so that it does not fail the other texts of its batch.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from relayer.adapters.openai_compatible.endpoint import Endpoint, EndpointFault, Fault, advice
from relayer.errors import ConfigurationError, EmbedderUnavailable
from relayer.ports import EmbeddingModel

_PATH = "/embeddings"
Vectors = NDArray[np.float32]
T = TypeVar("T")

_BATCH = 64
_MAX_CHARACTERS = 16_384
# A rejected text is halved until it has no more than this many characters, which every model accepts.
_SHORTEST = 256
_MAX_DIMENSION = 16_384
_TINY = 1e-12


def endpoint_model(name: str, dimension: int) -> EmbeddingModel:
    """Return the identity of a model whose weights only the server has: its name and dimension, independent of the server."""
    digest = hashlib.sha256(f"openai-compatible\0{name}\0{dimension}".encode()).hexdigest()
    return EmbeddingModel(name, digest, dimension)


class OpenAIEmbedder:
    """An implementation of the `Embedder` port by an endpoint; call `start` first.

    Args:
        endpoint: of the server; `close` closes it.
        model: its name, as the server knows it.
        dimension: of the vectors; None to take that of the server's vectors.
    """

    def __init__(self, endpoint: Endpoint, model: str, dimension: int | None = None) -> None:
        self._endpoint = endpoint
        self._name = model
        self._model = None if dimension is None else endpoint_model(model, dimension)
        self._formats = ["base64", "float"]

    @property
    def model(self) -> EmbeddingModel:
        """The identity of the model; before `start` it is known only if the dimension was given."""
        if self._model is None:
            raise EmbedderUnavailable("the embeddings endpoint was not asked for its dimension yet")
        return self._model

    @property
    def trouble(self) -> str:
        """The error of the last request; empty if it succeeded or there was none."""
        return self._endpoint.trouble

    async def start(self) -> None:
        """Request one vector, to check the URL, the key, the model and the dimension.

        Raises:
            ConfigurationError: one of them is wrong, or the dimension cannot be found out; the message says which.
            EmbedderUnavailable: the endpoint does not respond, and the dimension was given; a later attempt may succeed.
        """
        try:
            rows = await self._ask(["memrelay"], lambda document: _rows(document, 1))
        except EndpointFault as fault:
            if fault.fault is not Fault.TRANSIENT:
                model, url = f"model {self._name}", self._endpoint.url
                told = advice(fault, setting="embeddings", url=url, path=_PATH, model=model)
                raise ConfigurationError(told) from None
            if self._model is None:
                raise ConfigurationError(
                    f"--embeddings-url: {self._endpoint.url} gives no usable answer now ({fault.what}), so the dimension "
                    "is not known: start it first, or give --embeddings-dimension to start without it"
                ) from None
            raise EmbedderUnavailable(f"the embeddings endpoint: {fault.what}") from None
        dimension = rows[0].size
        if self._model is not None and self._model.dimension != dimension:
            raise ConfigurationError(
                f"--embeddings-dimension: is {self._model.dimension}, and {self._name} answers with {dimension} numbers: "
                "give that, or another --embeddings-model"
            )
        self._model = endpoint_model(self._name, dimension)

    async def embed(
        self,
        texts: Sequence[str],
        *,
        query: bool = False,  # noqa: ARG002 - servers know no queries
        prompt: bool = False,  # noqa: ARG002 - and no prompts
    ) -> Vectors:
        """Embed texts.

        Returns:
            Rows of length 1 in the order of the texts; shape (len(texts), dimension), float32.

        Raises:
            EmbedderUnavailable: there was no usable response to one of the batches.
            QueueFull: too many calls wait.
        """
        dimension = self.model.dimension
        if not texts:
            return np.empty((0, dimension), dtype=np.float32)
        # Lone surrogates cannot be encoded, and most servers reject an empty input.
        cut = [text[:_MAX_CHARACTERS].encode("utf-8", "replace").decode("utf-8") or " " for text in texts]
        batches = [cut[start : start + _BATCH] for start in range(0, len(cut), _BATCH)]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._batch(batch)) for batch in batches]
        except BaseExceptionGroup as errors:
            first = errors.exceptions[0]
            if isinstance(first, EndpointFault):
                raise EmbedderUnavailable(f"the embeddings endpoint: {first.what}") from None
            raise first from None
        return np.concatenate([task.result() for task in tasks])

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()

    async def _batch(self, texts: list[str]) -> Vectors:
        """Embed one batch. If the server rejects a text, it is halved, and the other texts are embedded as they are."""
        dimension = self.model.dimension
        try:
            return await self._ask(texts, lambda document: _unit(_rows(document, len(texts)), dimension))
        except EndpointFault as fault:
            if fault.fault is not Fault.REJECTED:
                raise
            if len(texts) > 1:
                middle = len(texts) // 2
                halves = [await self._batch(texts[:middle]), await self._batch(texts[middle:])]
                return np.concatenate(halves)
            if len(texts[0]) <= _SHORTEST:
                raise
            return await self._batch([texts[0][: len(texts[0]) // 2]])

    async def _ask(self, texts: Sequence[str], read: Callable[[object], T]) -> T:
        """Send a request in the encoding that the server accepts. Base64 has a third of the size of decimal numbers."""
        for form in list(self._formats):
            body = {"model": self._name, "input": list(texts), "encoding_format": form}
            try:
                found = await self._endpoint.post(_PATH, body, read)
            except EndpointFault as fault:
                if fault.fault is Fault.REJECTED and form != self._formats[-1]:
                    continue
                raise
            self._formats = [form]
            return found
        raise EndpointFault(Fault.REJECTED, "no form of request is accepted")


def _rows(document: object, count: int) -> list[NDArray[np.float64]]:
    """Parse the vectors of a response, in the order of their index; each is finite, not zero, and scaled to length 1."""
    data = document.get("data") if isinstance(document, dict) else None
    if not isinstance(data, list):
        raise EndpointFault(Fault.TRANSIENT, "the answer holds no vectors")
    if len(data) != count:
        raise EndpointFault(Fault.TRANSIENT, f"{len(data)} vectors for {count} texts")
    rows: dict[int, NDArray[np.float64]] = {}
    for place, item in enumerate(data):
        number = item.get("index", place) if isinstance(item, dict) else None
        row = _numbers(item.get("embedding")) if isinstance(item, dict) else None
        if row is None or not isinstance(number, int):
            raise EndpointFault(Fault.TRANSIENT, "the answer holds no vectors")
        rows[number] = row
    if sorted(rows) != list(range(count)):
        raise EndpointFault(Fault.TRANSIENT, "the vectors are not numbered as the texts")
    return [_directed(rows[number]) for number in range(count)]


def _directed(row: NDArray[np.float64]) -> NDArray[np.float64]:
    norm = float(np.linalg.norm(row))
    if not np.isfinite(norm):
        raise EndpointFault(Fault.TRANSIENT, "a vector holds what is no number")
    if norm < _TINY:
        raise EndpointFault(Fault.TRANSIENT, "a vector is zero: it has no direction")
    return row / norm


def _unit(rows: Sequence[NDArray[np.float64]], dimension: int) -> Vectors:
    """Return the rows as one matrix. If one row has another dimension, the whole response is rejected."""
    for row in rows:
        if row.size != dimension:
            raise EndpointFault(Fault.TRANSIENT, f"vectors of {row.size} numbers instead of {dimension}")
    return np.stack(rows).astype(np.float32)


def _numbers(raw: object) -> NDArray[np.float64] | None:
    """Parse a vector that is a list of numbers or base64; return None if it is neither."""
    if isinstance(raw, str):
        return _unpacked(raw)
    if not isinstance(raw, list) or not 0 < len(raw) <= _MAX_DIMENSION:
        return None
    if not all(isinstance(number, int | float) and not isinstance(number, bool) for number in raw):
        return None
    try:
        return np.asarray(raw, np.float64)
    except (OverflowError, ValueError):
        return None


def _unpacked(raw: str) -> NDArray[np.float64] | None:
    """Parse base64 of little-endian 32-bit floats; return None if it is invalid."""
    try:
        data = base64.b64decode(raw, validate=True)
    except (binascii.Error, ValueError):
        return None
    if not data or len(data) % 4 or len(data) > 4 * _MAX_DIMENSION:
        return None
    return np.frombuffer(data, np.dtype("<f4")).astype(np.float64)
