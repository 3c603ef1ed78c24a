"""A namespace's view as blocks of a stored index, sealed under the namespace's index key.

The view is a number of named sections: the table of records, the lexical index, the vectors, the null; cut into blocks of a size that
is sealed and opened in about a millisecond, so that others get their turn. Records are blocks of their own, which stay
sealed in memory when they are read back.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from functools import partial

import msgspec

from relayer.crypto import NamespaceKeys
from relayer.errors import CorruptNamespace
from relayer.lib.turns import Turns
from relayer.log.index_file import IndexBuilder, IndexReader, Part, block_id
from relayer.namespaces.projection import EmbeddingSpace, Journal, JournalParts, NamespaceView, PinnedView
from relayer.namespaces.records import BLOCK_RECORDS, RecordCache, RecordTable, RosterParts
from relayer.ports import Randomness
from relayer.search.baseline import NullParts
from relayer.search.dense import DenseParts
from relayer.search.index import IndexParts, MemoryIndex
from relayer.search.ranking import Baseline
from relayer.search.stored_terms import LexicalParts
from relayer.wire.errors import UnsealError
from relayer.wire.sealing import SALT_SIZE

_BLOCK_BYTES = 512 * 1024
# Arrays of the vectors of memories and of passages, and of the words of both.
_LISTS = 22
# Hashed in about a millisecond; more of it in a thread of its own.
_HASH_BYTES = 1024 * 1024
# As many records are rebuilt in about two milliseconds, for which no thread is asked.
_FEW = 2000
Buffer = bytes | bytearray | memoryview
# Pieces of blocks, in order.
_Section = list[memoryview]


class _Index(msgspec.Struct, frozen=True, array_like=True):
    """What of a `MemoryIndex` is no array: `LexicalParts.total` of texts and of passages, and `NullParts`."""

    total: float
    passages_total: float
    null: tuple[int, list[tuple[int, str, str | None]], bool, tuple[float, float] | None, int]


class _Small(msgspec.Struct, frozen=True, array_like=True):
    """The first section."""

    roster: RosterParts
    index: _Index
    past: _Index
    journal: JournalParts


def blocks_of(records: int) -> int:
    """Return how many blocks an index of so many records has, and more: of texts, of the view with passages, of the state."""
    return 64 + records // BLOCK_RECORDS + records // 8


async def write_view(
    view: PinnedView, builder: IndexBuilder, keys: NamespaceKeys, randomness: Randomness
) -> None:
    """Append a view to an index; others get their turn.

    Raises:
        UnsealError: a record in memory does not open any more.
    """
    turns = Turns()
    index, past, journal = await view.index.parts(), await view.past.parts(), await view.journal.parts()
    roster = view.table.parts(view.lacking)
    await asyncio.sleep(0)
    small = _Small(roster, _about(index), _about(past), journal)
    sections: list[Buffer] = [msgspec.msgpack.encode(small), *_arrays_of(index), *_arrays_of(past)]
    del index, past
    sizes = msgspec.msgpack.encode([len(section) for section in sections])
    sections.insert(0, len(sizes).to_bytes(4, "big") + sizes)
    for number, block in enumerate(_cut(sections)):
        name = block_id(builder.key, Part.VIEW, number)
        builder.add(Part.VIEW, keys.seal_index(name, block, salt=randomness.bytes(SALT_SIZE)))
        await turns.give()
    for number, records in enumerate(view.records.encoded_blocks(len(view.table))):
        name = block_id(builder.key, Part.TEXTS, number)
        builder.add(Part.TEXTS, keys.seal_index(name, records, salt=randomness.bytes(SALT_SIZE)))
        await turns.give()


async def read_view(reader: IndexReader, view: NamespaceView, keys: NamespaceKeys) -> None:
    """Restore a new view from an index of which the state has been read.

    Raises:
        CorruptNamespace: it is damaged, or was made under another key.
        StoreError: the store did not answer.
    """
    try:
        sections = await _sections(reader, keys)
        small = msgspec.msgpack.decode(_joined(sections[0]), type=_Small)
        half = 1 + (len(sections) - 1) // 2
        current, past_parts = _parts(small.index, sections[1:half]), _parts(small.past, sections[half:])
        rebuild = partial(_rebuilt, small.roster, current, past_parts, view.space)
        if len(small.roster.ids) <= _FEW:
            records = await _records(reader, keys, small)
            rebuilt = rebuild()
        else:
            # In a thread, because these are steps of a hundred milliseconds for a hundred thousand memories; and
            # meanwhile the texts are read.
            rebuilding = asyncio.create_task(asyncio.to_thread(rebuild))
            try:
                records = await _records(reader, keys, small)
            finally:
                # Whatever became of the texts: what runs in a thread is not left alone, nor its error.
                await asyncio.gather(rebuilding, return_exceptions=True)
            rebuilt = rebuilding.result()
    except (UnsealError, ValueError, msgspec.MsgspecError) as error:
        raise CorruptNamespace("a stored view does not open") from error
    view.records = records
    (view.table, view.space.lacking), view.index, view.past = rebuilt
    view.journal = Journal.of_parts(small.journal)


def _rebuilt(
    stored: RosterParts, current: IndexParts, past: IndexParts, space: EmbeddingSpace
) -> tuple[tuple[RecordTable, dict[bytes, None]], MemoryIndex, MemoryIndex]:
    table, lacking = RecordTable.of_parts(stored)
    indexes = [MemoryIndex.of_parts(space.model.dimension, space.calibration, one) for one in (current, past)]
    if not table.shown.issuperset(indexes[0].keys()) or not table.shown.isdisjoint(indexes[1].keys()):
        raise ValueError("the stored index finds what may not be found")
    return (table, lacking), indexes[0], indexes[1]


def _about(parts: IndexParts) -> _Index:
    null = parts.null
    quantiles = None if null.null is None else (null.null.median, null.null.high)
    total, of_passages = parts.lexical.total, parts.passage_words.total
    return _Index(total, of_passages, (null.reached, null.texts, null.known, quantiles, null.size))


def _arrays_of(parts: IndexParts) -> tuple[Buffer, ...]:
    # The last of the lexical parts is a number, and stands with what is small.
    vectors = (_vectors(parts.dense), _vectors(parts.passages))
    return (*vectors[0], *vectors[1], *parts.lexical[:-1], *parts.passage_words[:-1], parts.links)


def _vectors(parts: DenseParts) -> tuple[Buffer, Buffer, Buffer]:
    [rows] = parts.rows
    return parts.keys, parts.graph, rows


def _parts(about: _Index, sections: list[_Section]) -> IndexParts:
    *lists, links = sections
    if len(lists) != _LISTS:
        raise ValueError("a stored view has other sections")
    reached, texts, known, quantiles, size = about.null
    return IndexParts(
        DenseParts(_joined(lists[0]), _joined(lists[1]), lists[2]),
        DenseParts(_joined(lists[3]), _joined(lists[4]), lists[5]),
        _lexical([_joined(section) for section in lists[6:14]], about.total),
        _lexical([_joined(section) for section in lists[14:]], about.passages_total),
        _joined(links),
        NullParts(reached, texts, known, None if quantiles is None else Baseline(*quantiles), size),
    )


def _lexical(arrays: list[bytearray], total: float) -> LexicalParts:
    terms, counts, slots, weights, document_counts, document_terms, keys, lengths = arrays
    return LexicalParts(terms, counts, slots, weights, document_counts, document_terms, keys, lengths, total)


def _joined(section: _Section) -> bytearray:
    return bytearray().join(section)


async def _sections(reader: IndexReader, keys: NamespaceKeys) -> list[_Section]:
    """Open the blocks of the view and return the sections, which are pieces of them: what is kept must be copied."""
    stream = _opened(reader, keys)
    first = memoryview(await anext(stream, b""))
    start = 4 + int.from_bytes(first[:4], "big")
    sizes = msgspec.msgpack.decode(first[4:start], type=list[int])
    left = first[start:]
    sections = []
    for size in sizes:
        section: _Section = []
        lacking = size
        while lacking:
            if not left:
                left = memoryview(await anext(stream, b""))
            if not left:
                raise ValueError("a stored view is cut short")
            section.append(left[:lacking])
            left = left[lacking:]
            lacking -= len(section[-1])
        sections.append(section)
    return sections


async def _opened(reader: IndexReader, keys: NamespaceKeys) -> AsyncIterator[bytes]:
    number = 0
    async for sealed in reader.blocks(Part.VIEW):
        yield keys.unseal_index(block_id(reader.key, Part.VIEW, number), sealed)
        number += 1
        await asyncio.sleep(0)


async def _records(reader: IndexReader, keys: NamespaceKeys, small: _Small) -> RecordCache:
    cache = RecordCache(keys)
    hashing = _Hashing()
    number = 0
    async for piece in reader.blocks(Part.TEXTS):
        sealed = bytes(piece)
        cache.put_block(number * BLOCK_RECORDS, partial(block_id, reader.key, Part.TEXTS, number), sealed)
        await hashing.add(sealed)
        number += 1
    count = len(small.roster.ids)
    if (
        await hashing.digest() != reader.head.texts
        or not count <= number * BLOCK_RECORDS < count + BLOCK_RECORDS
    ):
        raise ValueError("the stored records are not those of the stored view")
    return cache


class _Hashing:
    """SHA-256 of many blocks, in a thread while the next ones are read."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._running: asyncio.Future[None] | None = None

    async def add(self, block: bytes) -> None:
        self._waiting.append(block)
        self._bytes += len(block)
        if self._bytes >= _HASH_BYTES:
            await self._hash()

    async def digest(self) -> bytes:
        if self._running is not None:
            await self._running
        self._update(self._waiting)
        return self._digest.digest()

    async def _hash(self) -> None:
        if self._running is not None:
            await self._running
        blocks, self._waiting, self._bytes = self._waiting, [], 0
        self._running = asyncio.ensure_future(asyncio.to_thread(self._update, blocks))

    def _update(self, blocks: list[bytes]) -> None:
        for block in blocks:
            self._digest.update(block)


def _cut(sections: list[Buffer]) -> Iterator[bytes]:
    """Yield the sections one after the other, in blocks of one size; each is let go when it is through."""
    block = bytearray()
    sections.reverse()
    while sections:
        held = memoryview(sections.pop())
        at = 0
        while at < len(held):
            part = held[at : at + _BLOCK_BYTES - len(block)]
            block += part
            at += len(part)
            if len(block) == _BLOCK_BYTES:
                yield bytes(block)
                block.clear()
    if block:
        yield bytes(block)
