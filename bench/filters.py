"""CPU time of a filtered search by size of the namespace, next to the same search without filters; `make bench` runs it.

The filters are those of the plugin's own request for a turn. One memory in twenty is a tool's output, one in a hundred suspect, one in
fifty expired, one in five was said to other audiences: no filter passes everything. Filters on tags and metadata are measured by
themselves: a tag of one memory in ten, a range of a field with a value of its own in each memory, and both.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.recall_latency import DIMENSION, SIZES, memories, questions
from bench.report import Lab, Section
from bench.stats import percentile, ratio
from gateway_plugin.recall.recaller import turn_request
from gateway_plugin.settings.model import RecallSettings
from gateway_plugin.turn.gates import Hearing
from relayer.domain.operations import Record, Source
from relayer.namespaces.labels import LabelColumns, Labels
from relayer.namespaces.records import RecordTable
from relayer.search.baseline import PRIORS, Calibration
from relayer.search.index import MemoryIndex
from relayer.search.rows import KeyMask
from relayer.wire.fields import Audience, Trust
from relayer.wire.schemas import RecallRequest

__all__ = ["filtered_recall"]

_NOW = 1_700_000_000_000
_PER_SESSION = 20
_QUERIES = 200
_TRUSTS = (*[Trust.USER] * 14, *[Trust.ASSISTANT] * 4, Trust.IMPORTED, Trust.TOOL)
_AUDIENCES = (*[Audience.AGENT] * 8, Audience.DIRECT, Audience.GROUP)
_Search = Callable[[NDArray[np.float32], str], object]


async def filtered_recall(lab: Lab) -> list[Section]:
    """Measure the filters and the search of a recall, without embedding, HTTP and rendering of the response."""
    rows: list[tuple[str, ...]] = []
    data: dict[str, dict[str, float]] = {}
    for size in SIZES[: lab.count(len(SIZES), 1)]:
        lab.say(f"filters: searching among {size:,} memories")
        table, index = await _filled(size, lab.seed)
        for by_words in (False, True):
            what = f"{size:,} by {'words and vector' if by_words else 'vector'}"
            measured = _measured(table, index, lab, by_words=by_words)
            bare = measured.pop("no filter")
            data[what] = {"no filter": percentile(bare, 0.5)}
            cells = [f"{percentile(bare, 0.5) * 1e3:.2f}"]
            for name, seconds in measured.items():
                data[what][name] = percentile(seconds, 0.5)
                cells += [f"{percentile(seconds, 0.5) * 1e3:.2f}", f"{ratio(seconds, bare).median:.2f}x"]
            rows.append((what, *cells))
    return [
        _labelled(lab),
        Section(
            "CPU time of a filtered search, in milliseconds, and ratio to the search without a filter",
            ("memories", "no filter", "plugin, private chat", "", "plugin, group chat", ""),
            rows,
            data,
            (
                f"medians of {_QUERIES} queries of 7 words, vector given, each in all three ways; limit and filters are the plugin's.",
            ),
        ),
    ]


def _labelled(lab: Lab) -> Section:
    """Measure filters on tags and metadata, without and with the first decoding of the labels."""
    rows: list[tuple[str, ...]] = []
    data: dict[str, dict[str, float]] = {}
    for size in SIZES[: lab.count(len(SIZES), 1)]:
        lab.say(f"filters: labels of {size:,} memories")
        chosen = random.Random(lab.seed)
        labels = [
            Labels(
                (f"tag{chosen.randrange(10)}",),
                "",
                {"ticket": number, "shop": {"city": chosen.randrange(50)}},
            )
            for number in range(size)
        ]
        columns, fields = LabelColumns(), ("tags", "ticket", "shop.city")
        start = time.thread_time()
        for number, one in enumerate(labels):
            columns.append(number, one, fields)
        cells = [f"{(time.thread_time() - start) * 1e3:.1f}"]
        what = f"{size:,}"
        data[what] = {}
        for name in ("tag", "range", "both"):
            seconds = []
            for _ in range(lab.count(_QUERIES, 10)):
                where = _label_filter(name, chosen, size)
                start = time.thread_time()
                KeyMask(columns.passing(where))
                seconds.append(time.thread_time() - start)
            data[what][name] = percentile(seconds, 0.5)
            cells.append(f"{percentile(seconds, 0.5) * 1e3:.3f}")
        rows.append((what, *cells))
    return Section(
        "CPU time of a filter on tags and metadata, in milliseconds",
        ("memories", "first use, less decrypting", "a tag", "a range", "both"),
        rows,
        data,
        (f"medians of {_QUERIES} filters, each with other values.",),
    )


def _label_filter(name: str, chosen: random.Random, size: int) -> dict[str, Any]:
    tag, number = f"tag{chosen.randrange(10)}", chosen.randrange(size)
    if name == "tag":
        return {"tags": tag}
    if name == "range":
        return {"ticket": {"gte": number}}
    cities = {"not": {"shop.city": {"in": [1, 2, 3]}}}
    return {"or": [{"tags": tag}, cities], "ticket": {"lt": number}}


async def _filled(size: int, seed: int) -> tuple[RecordTable, MemoryIndex]:
    table = RecordTable()
    index = MemoryIndex(DIMENSION, Calibration(next(iter(PRIORS.values()))))
    chosen = random.Random(seed)
    for row, text, speaker in memories(size, seed):
        record = Record(
            id=chosen.randbytes(16),
            namespace="bench",
            text="",
            audience=chosen.choice(_AUDIENCES),
            trust=chosen.choice(_TRUSTS),
            suspect=chosen.random() < 0.01,
            expires_at=_NOW - 1 if chosen.random() < 0.02 else None,
            source=Source(),
        )
        key = table.add(record)
        index.put(key, row, text, speaker=speaker, before=key - 1 if key % _PER_SESSION else None)
    await index.maintain()
    return table, index


def _measured(table: RecordTable, index: MemoryIndex, lab: Lab, *, by_words: bool) -> dict[str, list[float]]:
    ways = dict(_ways(table, index, by_words=by_words))
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for number, (vector, text) in enumerate(questions(lab.count(_QUERIES, 10), lab.seed + 1)):
        order = list(ways) if number % 2 else list(reversed(ways))
        for name in order:
            start = time.thread_time()
            ways[name](vector, text)
            seconds[name].append(time.thread_time() - start)
    return {name: seconds[name] for name in ways}


def _ways(table: RecordTable, index: MemoryIndex, *, by_words: bool) -> Iterator[tuple[str, _Search]]:
    settings = RecallSettings()
    private, group = (
        turn_request(settings, "?", hearing)
        for hearing in (Hearing.of_owner((), ""), Hearing.of_group("telegram:-1", ()))
    )
    # The calibrated prompt reading and the answer are the same for all.
    count = 2 * private.limit
    filtered: tuple[tuple[str, RecallRequest | None], ...] = (
        ("no filter", None),
        ("private", private),
        ("group", group),
    )
    for name, request in filtered:

        def search(vector: NDArray[np.float32], text: str, request: RecallRequest | None = request) -> object:
            allowed = None
            if request is not None:
                allowed = table.allowed(
                    kinds=request.kinds,
                    audiences=request.audiences,
                    trusts=request.trusts,
                    suspect=request.include_suspect,
                    now=_NOW,
                )
            return index.search(
                vector, text if by_words else None, count, allowed=allowed, floor=private.floor
            )

        yield name, search
