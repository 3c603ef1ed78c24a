"""The metrics of a relayer's workers as those of one relayer: what each counted, added up.

A counter never goes back: what a worker had counted when it was last asked stays in the sums after its end. What is a fact of one
process, its memory and its files, is shown of each, with a label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

Key: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
Samples: TypeAlias = dict[Key, float]

_OF_A_PROCESS = "process_"
# Every worker sees the same disk, and the relayer is as well as its least well worker; the rest is information, always 1.
_LEAST = frozenset({"memrelay_ready_check", "memrelay_store_free_bytes"})
_GREATEST = frozenset({"memrelay_build", "memrelay_backup_last_success_timestamp_seconds"})
_COUNTED = frozenset({"counter", "histogram", "summary"})


def families_of(registry: CollectorRegistry) -> list[Any]:
    """Return what a registry shows, as JSON takes it: ``[name, help, type, [[sample, {label: value}, number], ...]]``."""
    return [
        [
            family.name,
            family.documentation,
            family.type,
            [[sample.name, dict(sample.labels), sample.value] for sample in family.samples],
        ]
        for family in registry.collect()
    ]


class SummedMetrics:
    """Adds up what workers show; a worker's last families are used until there are newer ones.

    Args:
        numbers: what the supervisor shows of itself: help and current value by name, a counter's ending in ``_total``.
    """

    def __init__(self, numbers: Mapping[str, tuple[str, Callable[[], float]]]) -> None:
        self._numbers = numbers
        self._of: dict[int, list[Any]] = {}
        self._about: dict[str, tuple[str, str]] = {}
        self._ended: Samples = {}

    def take(self, worker: int, families: list[Any]) -> None:
        """Take in what a worker shows now."""
        self._of[worker] = families
        for name, documentation, kind, _ in families:
            self._about[name] = documentation, kind

    def ended(self, worker: int) -> None:
        """Keep what a worker had counted that is no more."""
        for name, _, kind, samples in self._of.pop(worker, []):
            if kind in _COUNTED and not name.startswith(_OF_A_PROCESS):
                for key, value in _keyed(samples):
                    if not key[0].endswith("_created"):
                        self._ended[key] = self._ended.get(key, 0.0) + value

    def render(self) -> bytes:
        """Encode everything in the text format."""
        registry = CollectorRegistry()
        registry.register(_Shown(self._families()))
        return generate_latest(registry)

    def _families(self) -> Iterator[Metric]:
        by_family: dict[str, Samples] = {name: {} for name in self._about}
        for worker, families in sorted(self._of.items()):
            for name, _, _, samples in families:
                sums = by_family[name]
                for key, value in _keyed(samples, worker if name.startswith(_OF_A_PROCESS) else None):
                    sums[key] = _together(name, key[0], sums.get(key), value)
        for key, value in self._ended.items():
            sums = by_family[self._family_of(key[0])]
            sums[key] = sums.get(key, 0.0) + value
        for name, sums in by_family.items():
            documentation, kind = self._about[name]
            yield _metric(name, documentation, kind, sums)
        for name, (documentation, read) in self._numbers.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            yield _metric(name.removesuffix("_total"), documentation, kind, {(name, ()): read()})

    def _family_of(self, sample: str) -> str:
        return next(
            name
            for name in (
                sample,
                *(sample.removesuffix(end) for end in ("_total", "_bucket", "_count", "_sum")),
            )
            if name in self._about
        )


def _metric(name: str, documentation: str, kind: str, samples: Samples) -> Metric:
    metric = Metric(name, documentation, kind)
    for (sample, labels), value in samples.items():
        metric.add_sample(sample, dict(labels), value)
    return metric


def _keyed(samples: Iterable[Any], worker: int | None = None) -> Iterator[tuple[Key, float]]:
    for name, labels, value in samples:
        labelled = labels if worker is None else {**labels, "worker": str(worker)}
        yield (name, tuple(labelled.items())), value


def _together(family: str, sample: str, one: float | None, other: float) -> float:
    if one is None:
        return other
    if family in _LEAST or sample.endswith("_created"):
        return min(one, other)
    return max(one, other) if family in _GREATEST else one + other


class _Shown(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterator[Metric]:
        yield from self._families
