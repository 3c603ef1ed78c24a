"""Writing a namespace's view to a stored index, and reading it back.

The view is a sequence of sections: the table of records, the term index, the vectors, the baseline. `write_view` joins
them and cuts them into blocks, which are sealed under the namespace's index key; a block takes about a millisecond to
seal or open, so that the event loop is not blocked. The records themselves are in blocks of their own, which
`read_view` leaves sealed in memory.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from functools import partial

import msgspec

from relayer.crypto import NamespaceKeys
from relayer.errors import CorruptNamespace
from relayer.lib.scheduler import Turns
from relayer.log.index_file import IndexBuilder, IndexReader, Part, block_id
from relayer.namespaces.projection import EmbeddingSpace, Journal, JournalParts, NamespaceView, PinnedView
from relayer.namespaces.records import BLOCK_RECORDS, RecordCache, RecordTable, RosterParts
from relayer.ports import Randomness
from relayer.search.baseline import NullParts
from relayer.search.dense import DenseParts
from relayer.search.index import IndexParts, MemoryIndex
from relayer.search.lexical import LexicalParts
from relayer.search.ranking import Baseline
from relayer.search.rows import Buffer
from relayer.wire.codec import UnsealError
from relayer.wire.sealing import SALT_SIZE

_BLOCK_BYTES = 512 * 1024
# The number of arrays of an index: keys and vectors of memories and of passages, and the terms of both. The shards of the
# graphs come in addition.
_LISTS = 20
# The number of bytes that are hashed in about a millisecond; whenever this many are waiting, a thread hashes them.
_HASH_BYTES = 1024 * 1024
# The number of records that are rebuilt in about two milliseconds, which does not need a thread.
_FEW = 2000
# A section, as slices of the blocks that contain it, in order.
_Section = list[memoryview]


class _Index(msgspec.Struct, frozen=True, array_like=True):
    """The parts of a `MemoryIndex` that are not arrays.

    Attributes:
        total: `LexicalParts.total` of the memories.
        passages_total: `LexicalParts.total` of the passages.
        null: the fields of a `NullParts`.
        graphs: how many sections are shards of the graphs of memories, and of passages.
    """

    total: float
    passages_total: float
    null: tuple[int, list[tuple[int, str, str | None]], bool, tuple[float, float] | None, int]
    graphs: tuple[int, int]


class _Small(msgspec.Struct, frozen=True, array_like=True):
    """The first section of a stored view: everything that is not an array."""

    roster: RosterParts
    index: _Index
    past: _Index
    journal: JournalParts


def blocks_of(records: int) -> int:
    """Return an upper bound of the number of blocks in an index of ``records`` records: state, view and texts."""
    return 64 + records // BLOCK_RECORDS + records // 8


async def write_view(
    view: PinnedView, builder: IndexBuilder, keys: NamespaceKeys, randomness: Randomness
) -> None:
    """Append a view to an index, yielding to the event loop in between.

    Raises:
        UnsealError: a record in memory can no longer be decrypted.
    """
    turns = Turns()
    index, past, journal = await view.index.parts(), await view.past.parts(), await view.journal.parts()
    # In a thread, because this takes twenty milliseconds for a hundred thousand memories.
    small = await asyncio.to_thread(_small, view, index, past, journal)
    sections: list[Buffer] = [small, *_arrays_of(index), *_arrays_of(past)]
    del small, index, past
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


def _small(view: PinnedView, index: IndexParts, past: IndexParts, journal: JournalParts) -> bytes:
    small = _Small(view.table.parts(view.lacking), _about(index), _about(past), journal)
    return msgspec.msgpack.encode(small)


async def read_view(reader: IndexReader, view: NamespaceView, keys: NamespaceKeys) -> None:
    """Restore a new view from an index whose state has been read.

    Raises:
        CorruptNamespace: it is damaged, or was sealed under another key.
        StoreError: the store did not respond.
    """
    try:
        sections = await _sections(reader, keys)
        small = msgspec.msgpack.decode(_joined(sections[0]), type=_Small)
        rebuild = partial(_rebuilt, small, sections[1:], view.space)
        del sections
        if len(small.roster.ids) <= _FEW:
            records = await _records(reader, keys, small)
            rebuilt = rebuild()
        else:
            # In a thread, because this takes a hundred milliseconds for a hundred thousand memories. The texts are read
            # meanwhile.
            rebuilding = asyncio.create_task(asyncio.to_thread(rebuild))
            try:
                records = await _records(reader, keys, small)
            finally:
                # Wait for the thread even if reading the texts failed, so that its own error is retrieved.
                await asyncio.gather(rebuilding, return_exceptions=True)
            rebuilt = rebuilding.result()
    except (UnsealError, ValueError, msgspec.MsgspecError) as error:
        raise CorruptNamespace("a stored view does not open") from error
    view.records = records
    (view.table, view.space.lacking), view.index, view.past = rebuilt
    view.journal = Journal.of_parts(small.journal)


def _rebuilt(
    small: _Small, sections: list[_Section], space: EmbeddingSpace
) -> tuple[tuple[RecordTable, dict[bytes, None]], MemoryIndex, MemoryIndex]:
    table, lacking = RecordTable.of_parts(small.roster)
    first = _LISTS + sum(small.index.graphs) + 1
    stored = _parts(small.index, sections[:first]), _parts(small.past, sections[first:])
    sections.clear()
    indexes = [MemoryIndex.of_parts(space.by.model.dimension, space.by.calibration, one) for one in stored]
    if not table.shown.issuperset(indexes[0].keys()) or not table.shown.isdisjoint(indexes[1].keys()):
        raise ValueError("the stored index finds what may not be found")
    return (table, lacking), indexes[0], indexes[1]


def _about(parts: IndexParts) -> _Index:
    null = parts.null
    quantiles = None if null.null is None else (null.null.median, null.null.high)
    total, of_passages = parts.lexical.total, parts.passage_words.total
    graphs = len(parts.dense.graphs), len(parts.passages.graphs)
    return _Index(total, of_passages, (null.reached, null.texts, null.known, quantiles, null.size), graphs)


def _arrays_of(parts: IndexParts) -> tuple[Buffer, ...]:
    # The last of the lexical parts is a number, which is stored in the first section.
    vectors = (_vectors(parts.dense), _vectors(parts.passages))
    return (*vectors[0], *vectors[1], *parts.lexical[:-1], *parts.passage_words[:-1], parts.links)


def _vectors(parts: DenseParts) -> tuple[Buffer, ...]:
    [rows] = parts.rows
    return parts.keys, *parts.graphs, rows


def _parts(about: _Index, sections: list[_Section]) -> IndexParts:
    *lists, links = sections
    if len(lists) != _LISTS + sum(about.graphs):
        raise ValueError("a stored view has other sections")
    whole = 2 + about.graphs[0]
    both = whole + 2 + about.graphs[1]
    words = lists[both:]
    reached, texts, known, quantiles, size = about.null
    return IndexParts(
        _dense(lists[:whole]),
        _dense(lists[whole:both]),
        LexicalParts._make((*map(_joined, words[:8]), about.total)),
        LexicalParts._make((*map(_joined, words[8:]), about.passages_total)),
        _joined(links),
        NullParts(reached, texts, known, None if quantiles is None else Baseline(*quantiles), size),
    )


def _dense(sections: list[_Section]) -> DenseParts:
    keys, *graphs, rows = sections
    return DenseParts(_joined(keys), [_joined(graph) for graph in graphs], rows)


def _joined(section: _Section) -> bytearray:
    return bytearray().join(section)


async def _sections(reader: IndexReader, keys: NamespaceKeys) -> list[_Section]:
    """Decrypt the blocks of the view and return its sections, which are slices of the blocks; copy what is to be kept."""
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
    # The blocks are hashed in a thread while the next ones are read.
    digest, waiting = hashlib.sha256(), bytearray()
    hashing: asyncio.Future[None] | None = None
    number = 0
    async for piece in reader.blocks(Part.TEXTS):
        sealed = bytes(piece)
        cache.put_block(number * BLOCK_RECORDS, partial(block_id, reader.key, Part.TEXTS, number), sealed)
        waiting += sealed
        number += 1
        if len(waiting) >= _HASH_BYTES:
            if hashing is not None:
                await hashing
            hashing = asyncio.ensure_future(asyncio.to_thread(digest.update, waiting))
            waiting = bytearray()
    if hashing is not None:
        await hashing
    digest.update(waiting)
    count = len(small.roster.ids)
    is_whole = count <= number * BLOCK_RECORDS < count + BLOCK_RECORDS
    if digest.digest() != reader.head.texts or not is_whole:
        raise ValueError("the stored records are not those of the stored view")
    return cache


def _cut(sections: list[Buffer]) -> Iterator[bytes]:
    """Yield the concatenated sections in blocks of one size; each section is released once it has been copied."""
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
