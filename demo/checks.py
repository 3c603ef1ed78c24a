"""The demonstration's assertions: pure functions from what was observed to lines that hold or do not.

`TraceSearch` looks for readable traces of a conversation in bytes that should be noise. A text is found when any sixteen
consecutive bytes of it occur that begin at a multiple of eight, so that a single stored sentence of 24 bytes is enough; a name is
found whole. Both are looked for in any case, as they are, as UTF-16, in hexadecimal, and in base64 of either alphabet at any
alignment. Sealed objects are also searched for single long words, as an index of terms would hold them.
"""

from __future__ import annotations

import base64
import binascii
import html
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from demo.conversation import ProbeKind, ScriptProbe
from relayer.wire.fields import one_line

LEAST_SILENCE: Final = 0.8
"""For conversations that the probes were not written for: a chat between friends may well touch on carpets."""

LEAST_SAME: Final = 0.9
"""For large namespaces: their own measure of what is relevant is taken anew after a restart, at another size."""

_ANSWERED: Final = frozenset({"ok", "empty"})


@dataclass(frozen=True, slots=True)
class DemoCheck:
    """One assertion. ``name`` groups lines of the same kind; ``detail`` says what was seen."""

    name: str
    claim: str
    held: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """What the plugin injected for a probe.

    Attributes:
        status: the plugin's word for the outcome.
        memories: id and text of each memory in it.
        milliseconds: how long it took.
        standing: what stands in every prompt of the session.
    """

    agent: str
    probe: ScriptProbe
    status: str
    text: str = field(repr=False)
    memories: tuple[tuple[str, str], ...] = field(repr=False)
    milliseconds: int
    standing: str = field(default="", repr=False)


def is_hit(seen: Observation, *, curated: bool) -> bool:
    """Whether what a related probe expects was injected.

    Where the probes were derived from a dialogue, the expectation is a whole message, of which one sentence is enough.
    """
    expected = one_line(seen.probe.expect or "").casefold()
    if curated:
        return expected in one_line(html.unescape(f"{seen.standing}\n{seen.text}")).casefold()
    texts = [one_line(text).casefold() for _, text in seen.memories]
    return any(text and (text in expected or expected in text) for text in texts)


def hit_rate(seen: Sequence[Observation], *, curated: bool) -> tuple[int, int]:
    """Return how many related probes found what they expect, of how many."""
    asked = _of(seen, ProbeKind.RELATED)
    return sum(is_hit(item, curated=curated) for item in asked), len(asked)


def related(seen: Sequence[Observation]) -> list[DemoCheck]:
    """Each related probe injects its expectation."""
    return [
        DemoCheck(
            "related",
            f"{item.agent} remembers: {item.probe.prompt}",
            is_hit(item, curated=True),
            f"expected {item.probe.expect!r}, {_seen(item)}",
        )
        for item in _of(seen, ProbeKind.RELATED)
    ]


def silent(seen: Sequence[Observation], *, curated: bool) -> list[DemoCheck]:
    """Unrelated prompts inject nothing, and that because nothing was relevant, not because something failed."""
    asked = _of(seen, ProbeKind.UNRELATED)
    if curated:
        return [
            DemoCheck(
                "silent", f"{item.agent} stays silent: {item.probe.prompt}", _is_silent(item), _seen(item)
            )
            for item in asked
        ]
    quiet = sum(map(_is_silent, asked))
    return [
        DemoCheck(
            "silent",
            f"at least {LEAST_SILENCE:.0%} of the unrelated prompts inject nothing",
            quiet >= LEAST_SILENCE * len(asked),
            f"{quiet} of {len(asked)}",
        )
    ]


def isolated(
    seen: Sequence[Observation], owned: Mapping[str, Collection[str]], *, curated: bool
) -> list[DemoCheck]:
    """No prompt of an agent injects a memory of another, by the ids of each agent's own.

    With ``curated``, nor what the cross probes forbid; people of different dialogues may say the same words.
    """
    checks = []
    for item in _of(seen, ProbeKind.CROSS):
        forbidden = one_line(item.probe.forbid or "").casefold()
        told = curated and forbidden in one_line(html.unescape(item.text)).casefold()
        checks.append(
            DemoCheck(
                "isolated",
                f"{item.agent} knows nothing of the other: {item.probe.prompt}",
                item.status in _ANSWERED and not told and not _foreign(item, owned),
                _seen(item),
            )
        )
    foreign = sum(_foreign(item, owned) for item in seen)
    checks.append(
        DemoCheck(
            "isolated",
            "every injected memory belongs to the agent that asked",
            not foreign,
            f"{len(seen)} prompts, {foreign} with a memory of somebody else",
        )
    )
    return checks


def strangers(answers: Mapping[str, str]) -> list[DemoCheck]:
    """Requests for another agent's namespace are refused; ``answers`` maps what was tried to what came back."""
    return [
        DemoCheck("refused", f"refused: {tried}", answer == "unauthorized", f"answered {answer}")
        for tried, answer in answers.items()
    ]


def outage(status: str, text: str, seconds: float, bound: float) -> DemoCheck:
    """A turn while the relayer is dead goes on without memory, at once."""
    return DemoCheck(
        "outage",
        "a turn while the relayer is dead goes on without memory",
        status == "unavailable" and not text and seconds < bound,
        f"{status} after {seconds * 1000:.0f} ms, allowed {bound:.0f} s",
    )


def same_again(
    before: Sequence[Observation], after: Sequence[Observation], *, curated: bool
) -> list[DemoCheck]:
    """After the restart every probe injects the same bytes."""
    least = 1.0 if curated else LEAST_SAME
    share = "every prompt" if curated else f"at least {least:.0%} of the prompts"
    later = {(item.agent, item.probe): item for item in after}
    checks = []
    for agent in dict.fromkeys(item.agent for item in before):
        mine = [item for item in before if item.agent == agent]
        other = [
            item.probe.prompt
            for item in mine
            if (again := later.get((agent, item.probe))) is None
            or (again.text, again.status) != (item.text, item.status)
        ]
        detail = f"{len(mine) - len(other)} of {len(mine)} the same"
        checks.append(
            DemoCheck(
                "same",
                f"{agent} is given the same bytes as before SIGKILL for {share}",
                len(mine) - len(other) >= least * len(mine),
                detail + (f", the first that differs: {other[0]}" if other else ""),
            )
        )
    return checks


def durable(
    acknowledged: Mapping[str, Collection[str]], listed: Mapping[str, Sequence[str]]
) -> list[DemoCheck]:
    """Every acknowledged memory is listed after the restart."""
    checks = []
    for namespace, ids in acknowledged.items():
        missing = set(ids) - set(listed.get(namespace, ()))
        checks.append(
            DemoCheck(
                "durable",
                f"{namespace}: every acknowledged memory is there after SIGKILL",
                not missing and bool(ids),
                f"{len(ids)} acknowledged, {len(missing)} missing",
            )
        )
    return checks


def once(listed: Mapping[str, Sequence[tuple[str, str]]]) -> list[DemoCheck]:
    """No memory is listed twice, neither by id nor by text; values are pairs of id and text."""
    checks = []
    for namespace, memories in listed.items():
        ids = Counter(memory for memory, _ in memories)
        texts = Counter(text for _, text in memories)
        twice = sum(count - 1 for count in ids.values()) + sum(count - 1 for count in texts.values())
        checks.append(
            DemoCheck(
                "once", f"{namespace}: no memory is there twice", not twice, f"{len(memories)} memories"
            )
        )
    return checks


def sealed(found: Mapping[str, Collection[str]], files: int, size: int) -> list[DemoCheck]:
    """Nothing that was said, and no name, is readable in what the relayer keeps or logs."""
    searched = f"{files} files, {size / 1024:.0f} KiB searched"
    where = {
        kind: [file for file, kinds in found.items() if kind in kinds] for kind in ("text", "word", "name")
    }
    claims = {
        "text": "no text of the conversation is readable in the data directory or the log",
        "word": "no long word of it stands in a stored object",
        "name": "no name of an agent, person, session or account stands there",
    }
    return [
        DemoCheck(
            "sealed",
            claim,
            not where[kind],
            searched + (f"; found in {', '.join(where[kind][:3])}" if where[kind] else ""),
        )
        for kind, claim in claims.items()
    ]


def percentile(values: Sequence[int], share: float) -> int:
    """Return the smallest value that at least ``share`` of all values do not exceed; 0 without values."""
    if not values:
        return 0
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)), 1) - 1]


def _of(seen: Sequence[Observation], kind: ProbeKind) -> list[Observation]:
    return [item for item in seen if item.probe.kind is kind]


def _is_silent(item: Observation) -> bool:
    return item.status == "empty" and not item.text


def _foreign(item: Observation, owned: Mapping[str, Collection[str]]) -> bool:
    return any(memory not in owned[item.agent] for memory, _ in item.memories)


def _seen(item: Observation) -> str:
    if not item.memories:
        return f"nothing injected ({item.status})"
    return f"{len(item.memories)} injected, first: {one_line(item.memories[0][1])[:80]}"


_WINDOW: Final = 16
_STRIDE: Final = 8
# Shorter names and words occur in noise by chance.
_SHORTEST_NAME: Final = 5
_HEX: Final = re.compile(rb"(?:[0-9a-f]{2}){5,}|(?:[0-9A-F]{2}){5,}")
_BASE64: Final = re.compile(rb"[A-Za-z0-9+/_-]{7,}")
_STANDARD: Final = bytes.maketrans(b"-_", b"+/")
_WORD: Final = re.compile(rb"[a-z]{8,}")


def views(data: bytes) -> Iterator[bytes]:
    """Yield what bytes may mean: themselves, every second byte (UTF-16), decoded hexadecimal, decoded base64."""
    yield data
    yield data[::2]
    yield data[1::2]
    for run in _HEX.findall(data):
        for start in (0, 1):
            digits = run[start:]
            yield binascii.unhexlify(digits[: len(digits) // 2 * 2])
    for run in _BASE64.findall(data):
        standard = run.translate(_STANDARD)
        for start in range(4):
            rest = standard[start:]
            # One letter left over carries six bits and no byte.
            rest = rest[: len(rest) - (len(rest) % 4 == 1)]
            yield base64.b64decode(rest + b"=" * (-len(rest) % 4))


class TraceSearch:
    """What must not be readable.

    Args:
        names: who and where; those of fewer than five bytes are left out, because noise spells them by chance.
        blobs: bytes to be found whole, such as an encoded vector; at least sixteen each.
    """

    def __init__(self, texts: Iterable[str], names: Iterable[str] = (), blobs: Iterable[bytes] = ()) -> None:
        self._windows: set[bytes] = set()
        self._words: set[bytes] = set()
        for text in texts:
            raw = text.encode().lower()
            self._windows.update(
                raw[start : start + _WINDOW] for start in range(0, len(raw) - _WINDOW + 1, _STRIDE)
            )
            self._words.update(_WORD.findall(raw))
        encoded = (name.encode().lower() for name in names)
        self._names = {name for name in encoded if len(name) >= _SHORTEST_NAME}
        self._blobs = frozenset(blobs)

    def found_in(self, data: bytes, *, words: bool = False) -> frozenset[str]:
        """Return which kinds of traces occur in ``data``: ``text``, ``name``, ``blob``, ``word``.

        Look for single words (``words``) only where no honest prose is.
        """
        found: set[str] = set()
        windows = self._windows
        for view in views(data):
            if any(blob in view for blob in self._blobs):
                found.add("blob")
            lowered = view.lower()
            if any(name in lowered for name in self._names):
                found.add("name")
            if words and not self._words.isdisjoint(_WORD.findall(lowered)):
                found.add("word")
            starts = range(len(lowered) - _WINDOW + 1)
            if any(lowered[start : start + _WINDOW] in windows for start in starts):
                found.add("text")
        return frozenset(found)
