"""Whether a history can be that of one log of which every answer saw a prefix.

That is all that linearizability asks for here, and it can be decided exactly without searching: an answer with a
position says which prefix it saw. A memory enters the log at one sequence number and leaves recall at a later one, or
never; every answer and every "before" in real time narrows the two down, and a history is wrong when nothing is left.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from chaos_history import End, Event, Kind

__all__ = ["Flaw", "Violation", "check"]

# What no request of a well-behaved client may be told, whatever happens to the machines.
_ALARMS = frozenset(
    {"rollback_detected", "corrupt_namespace", "internal_error", "upgrade_required", "duplicate", "refused"}
)


class Flaw(StrEnum):
    FORKED = "two entries at one position"
    WENT_BACK = "an answer behind what had been answered before it began"
    NOT_MINE = "an answer behind the position that was asked for"
    LOST = "an acknowledged or seen memory is missing"
    RESURRECTED = "a forgotten memory is back"
    TOO_EARLY = "a memory is older in the log than its writer's request"
    INVENTED = "a memory that nobody wrote, or whose write was refused"
    DOUBLED = "one memory twice, or under two ids"
    TORN = "a part of one write"
    DISORDERED = "the log's order contradicts what was answered"
    REPLICAS_DIFFER = "replicas disagree when all is quiet"
    CONFLICT_ACCEPTED = "one idempotency key took two bodies"
    ALARM = "an answer that must never be given"


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken, and the tries that show it."""

    flaw: Flaw
    namespace: str
    detail: str
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class _Range:
    """Sequence numbers ``low < n <= high``; infinite when it may never happen."""

    low: float
    high: float

    @property
    def empty(self) -> bool:
        return self.low >= self.high


def check(history: Sequence[Event]) -> list[Violation]:
    """Return every way in which a history is wrong; empty when it is one of a log."""
    spaces: dict[str, list[Event]] = defaultdict(list)
    for event in history:
        spaces[event.namespace].append(event)
    return [
        violation for name, events in sorted(spaces.items()) for violation in _Space(name, events).check()
    ]


class _Space:
    """One namespace's history."""

    def __init__(self, name: str, events: Sequence[Event]) -> None:
        self.name = name
        self.events = sorted(events, key=lambda event: event.begun)
        self.snapshots = [
            event
            for event in events
            if event.kind is Kind.RECALL and event.position is not None and not event.partial
        ]
        self.lists = [
            event for event in events if event.kind is Kind.LIST and event.end is End.OK and not event.partial
        ]
        self.writes: dict[int, list[Event]] = defaultdict(list)
        self.forgets: dict[str, list[Event]] = defaultdict(list)
        for event in self.events:
            if event.kind is Kind.REMEMBER:
                self.writes[event.number].append(event)
            elif event.kind is Kind.FORGET:
                self.forgets[event.texts[0]].append(event)
        # What had been answered by a time: running maxima over the ends of all answers with a position.
        placed = sorted((event for event in events if event.position), key=lambda event: event.ended)
        self._ends = [event.ended for event in placed]
        self._heads: list[int] = []
        for event in placed:
            seq = event.position.seq if event.position else 0
            self._heads.append(max(seq, self._heads[-1] if self._heads else 0))

    def check(self) -> Iterator[Violation]:
        yield from self._alarms()
        yield from self._forks()
        yield from self._positions()
        yield from self._contents()
        yield from self._ids()
        yield from self._memories()
        yield from self._real_time()
        yield from self._final()

    def _flaw(self, flaw: Flaw, detail: str, *events: Event) -> Violation:
        return Violation(flaw, self.name, detail, events)

    def _head_before(self, time: float) -> int:
        """The highest position in any answer that ended before a time: the log was at least so long then."""
        count = bisect_left(self._ends, time)
        return self._heads[count - 1] if count else 0

    def _alarms(self) -> Iterator[Violation]:
        for event in self.events:
            if event.code in _ALARMS:
                yield self._flaw(Flaw.ALARM, event.code, event)
            if event.kind is Kind.FORGET and event.end is End.FAIL:
                # Only what was acknowledged is asked to be forgotten.
                yield self._flaw(Flaw.LOST, f"{event.texts[0]}: {event.code}", event)
        shown = {item.text for event in (*self.snapshots, *self.lists) for item in event.seen}
        by_key: dict[str, list[Sequence[Event]]] = defaultdict(list)
        for tries in self.writes.values():
            if _answered(tries) < inf and _refused(tries):
                yield self._flaw(Flaw.CONFLICT_ACCEPTED, f"write {tries[0].number}", *tries)
            if tries[0].key and (_answered(tries) < inf or not shown.isdisjoint(tries[0].texts)):
                by_key[tries[0].key].append(tries)
        for key, happened in by_key.items():
            if len(happened) > 1:
                yield self._flaw(
                    Flaw.CONFLICT_ACCEPTED, key, *(event for tries in happened for event in tries)
                )

    def _forks(self) -> Iterator[Violation]:
        first: dict[int, Event] = {}
        for event in self.events:
            if event.position is None or event.position.seq == 0:
                continue  # what does not exist yet answers like what is empty
            known = first.setdefault(event.position.seq, event)
            if known.position != event.position:
                yield self._flaw(Flaw.FORKED, f"position {event.position.seq}", known, event)

    def _positions(self) -> Iterator[Violation]:
        for event in self.events:
            if event.position is None:
                continue
            seq, before = event.position.seq, self._head_before(event.begun)
            if event.at_least is not None and event.consistency != "any" and seq < event.at_least.seq:
                yield self._flaw(Flaw.NOT_MINE, f"{seq} for {event.at_least.seq}", event)
            if self._is_fresh(event) and seq < before + (event.kind is Kind.REMEMBER):
                yield self._flaw(Flaw.WENT_BACK, f"{event.kind} at {seq}, {before} was known", event)

    def _is_fresh(self, event: Event) -> bool:
        if event.kind is Kind.RECALL:
            return event.consistency == "strong"
        # A write that is tried again may be answered from where it was found; a forget reads strongly first.
        return event.kind is Kind.FORGET or event is self.writes[event.number][0]

    def _contents(self) -> Iterator[Violation]:
        known = {text for tries in self.writes.values() for text in tries[0].texts}
        refused = {text for tries in self.writes.values() if _refused(tries) for text in tries[0].texts}
        for event in (*self.snapshots, *self.lists):
            texts = Counter(item.text for item in event.seen)
            ids = Counter(item.id for item in event.seen)
            for text in texts.keys() - known | texts.keys() & refused:
                yield self._flaw(Flaw.INVENTED, text, event)
            for value in [*texts, *ids]:
                if texts[value] > 1 or ids[value] > 1:
                    yield self._flaw(Flaw.DOUBLED, value, event)
            for tries in self.writes.values():
                whole = [text for text in tries[0].texts if text not in self.forgets]
                if 0 < sum(text in texts for text in whole) < len(whole):
                    yield self._flaw(Flaw.TORN, f"write {tries[0].number}", event)

    def _ids(self) -> Iterator[Violation]:
        known: dict[str, tuple[str, Event]] = {}
        for event in self.events:
            said = [(item.text, item.id) for item in event.seen]
            if event.kind is Kind.REMEMBER and event.end is End.OK:
                said += zip(event.texts, event.ids, strict=True)
            for text, memory in said:
                first, source = known.setdefault(text, (memory, event))
                if first != memory:
                    yield self._flaw(Flaw.DOUBLED, f"{text} is {first} and {memory}", source, event)

    def _memories(self) -> Iterator[Violation]:
        entered: dict[str, _Range] = {}
        with_texts = [(event, {item.text for item in event.seen}) for event in self.snapshots]
        for tries in self.writes.values():
            if _refused(tries):
                continue
            for text in tries[0].texts:
                present = [_seq(event) for event, texts in with_texts if text in texts]
                absent = [_seq(event) for event, texts in with_texts if text not in texts]
                found = self._place(tries, text, present, absent)
                if isinstance(found, Flaw):
                    shown = [event for event, _ in with_texts]
                    yield self._flaw(found, text, *tries, *self.forgets[text], *_around(shown, tries))
                else:
                    entered[text] = found
        yield from self._order(entered)

    def _place(
        self, tries: Sequence[Event], text: str, present: Sequence[int], absent: Sequence[int]
    ) -> _Range | Flaw:
        """Return where the memory can have entered the log, or why it can nowhere."""
        written = self._landing(tries)
        gone = self._landing(self.forgets[text]) if self.forgets[text] else _Range(inf, inf)
        if not present:
            # Most room is left by the latest entry and the earliest end.
            leaves = max(gone.low, written.high) + 1
            missed = any(written.high <= seq < leaves for seq in absent)
            return Flaw.LOST if missed else written
        first, last = min(present), max(present)
        if written.low >= first:
            return Flaw.TOO_EARLY
        if gone.high <= last:
            return Flaw.RESURRECTED
        if any(first <= seq <= last for seq in absent):
            return Flaw.LOST
        entry = _Range(max([written.low, *(seq for seq in absent if seq < first)]), min(written.high, first))
        end = _Range(max(gone.low, last), min([gone.high, *(seq for seq in absent if seq > last)]))
        ended = self.forgets[text] or end.high < inf
        return Flaw.LOST if entry.empty or (ended and end.empty) else entry

    def _landing(self, tries: Sequence[Event]) -> _Range:
        """Where a write can be in the log: after what was known before its first try, by its first answer."""
        answered = [_seq(event) for event in tries if event.end is End.OK and event.position]
        return _Range(self._head_before(min(event.begun for event in tries)), min([inf, *answered]))

    def _order(self, entered: dict[str, _Range]) -> Iterator[Violation]:
        for event in self.lists:
            least = 0.0
            for item in reversed(event.seen):
                if item.text not in entered:
                    continue
                least = max(least, entered[item.text].low + 1)
                if least > entered[item.text].high:
                    yield self._flaw(Flaw.DISORDERED, item.text, event)
                    break

    def _real_time(self) -> Iterator[Violation]:
        """Judge lists, which name no position, by what had ended before they began."""
        for event in self.lists:
            live = {item.text for item in event.seen if item.state == "live"}
            for tries in self.writes.values():
                acknowledged = _answered(tries) < event.begun
                for text in tries[0].texts:
                    forgets = self.forgets[text]
                    if acknowledged and text not in live and not _begun_before(forgets, event.ended):
                        yield self._flaw(Flaw.LOST, text, *tries, event)
                    if text in live and _answered(forgets) < event.begun:
                        yield self._flaw(Flaw.RESURRECTED, text, *forgets, event)
                    if text in live and not _begun_before(tries, event.ended):
                        yield self._flaw(Flaw.TOO_EARLY, text, *tries, event)

    def _final(self) -> Iterator[Violation]:
        for kind in (Kind.LIST, Kind.RECALL):
            last = [event for event in self.events if event.final and event.kind is kind]
            for event in last:
                same = event.seen == last[0].seen if kind is Kind.LIST else _same_set(event, last[0])
                if not (same or event.partial) or event.position != last[0].position:
                    yield self._flaw(Flaw.REPLICAS_DIFFER, str(kind), last[0], event)


def _seq(event: Event) -> int:
    if event.position is None:
        raise ValueError("an answer without a position has no sequence number")
    return event.position.seq


def _answered(tries: Iterable[Event]) -> float:
    return min((event.ended for event in tries if event.end is End.OK), default=inf)


def _refused(tries: Iterable[Event]) -> bool:
    return any(event.end is End.FAIL for event in tries)


def _begun_before(tries: Iterable[Event], time: float) -> bool:
    return any(event.begun < time for event in tries)


def _same_set(one: Event, other: Event) -> bool:
    return set(one.seen) == set(other.seen)


def _around(snapshots: Sequence[Event], tries: Sequence[Event]) -> list[Event]:
    """Return a few snapshots to show: those nearest after the write."""
    return sorted((event for event in snapshots if event.ended > tries[0].begun), key=lambda e: e.begun)[:5]
