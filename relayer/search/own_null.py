"""A namespace's own null: what unrelated prompts find among its first memories.

It is measured over a sample that the log alone decides, not over whatever was there when somebody had time, so that
two relayers, and one relayer before and after a restart, judge the same prompt alike. The sample grows in a few steps
and then stands still; it is measured anew when one of its memories changes or goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from relayer.search.calibration import Calibration, quantiles
from relayer.search.dense_query import DenseQuery
from relayer.search.lexical import LexicalIndex
from relayer.search.names import names
from relayer.search.ranking import NAME_DOUBT, coverage, judged_evidence
from relayer.search.relevance import ENOUGH_MEMORIES, Null
from relayer.search.vectors import Vector

__all__ = ["NullParts", "OwnNull"]

# Keys below the largest step that was reached are the sample. From the last step on the own null counts alone.
STEPS = (250, 300, 350, 2 * ENOUGH_MEMORIES)
_AT_ONCE = 8
# In place of the calibration that a stored null was measured with: no `id` is negative.
_ELSEWHERE = -1
# A text of the sample with the one before it, both short.
_TEXT_BYTES = 500

Ask = Callable[[Vector], DenseQuery]


class NullParts(NamedTuple):
    """What an `OwnNull` is stored as; ``known`` says whether ``null`` and ``size`` are what a measuring would find."""

    reached: int
    texts: list[tuple[int, str, str | None]]
    known: bool
    null: Null | None
    size: int


class OwnNull:
    """The sample's texts, and the null measured over it.

    Attributes:
        null: as last measured; None while the sample is too small to say anything.
        size: memories in the sample then.
    """

    def __init__(self) -> None:
        self.null: Null | None = None
        self.size = 0
        self._texts: dict[int, tuple[str, str | None]] = {}
        self._reached = 0
        self._changes = 0
        self._measured: tuple[int, int, int] | None = None

    def put(self, key: int, text: str, context: str | None) -> None:
        """Note a memory that was added or changed."""
        self._reached = max(self._reached, key + 1)
        if key < STEPS[-1]:
            self._texts[key] = (text, context)
            self._changes += key < self._bound()

    def remove(self, key: int) -> None:
        """Note a memory that is gone."""
        if self._texts.pop(key, None) is not None:
            self._changes += key < self._bound()

    @property
    def nbytes(self) -> int:
        """About the bytes this takes in memory."""
        return len(self._texts) * _TEXT_BYTES

    def is_due(self, calibration: Calibration) -> bool:
        """Whether `measure` has something to do before a search can be judged as every replica would judge it."""
        return self._bound() > 0 and self._measured not in (self._basis(calibration), self._restored())

    def parts(self, calibration: Calibration) -> NullParts:
        """What `of_parts` takes; without the null, if that would have to be measured anew."""
        known = bool(calibration.probes) and not self.is_due(calibration)
        texts = [(key, text, context) for key, (text, context) in self._texts.items()]
        return NullParts(self._reached, texts, known, self.null if known else None, self.size)

    @classmethod
    def of_parts(cls, parts: NullParts) -> OwnNull:
        """The null as it was stored by a relayer with the same embedding model."""
        own = cls()
        own._reached = parts.reached
        own._texts = {key: (text, context) for key, text, context in parts.texts}
        if parts.known:
            own.null, own.size, own._measured = parts.null, parts.size, own._restored()
        return own

    def forget(self) -> None:
        """Drop what was measured: the memories have vectors of another model now."""
        self.null, self.size, self._measured = None, 0, None

    async def measure(self, calibration: Calibration, ask: Ask) -> None:
        """Measure until nothing changed meanwhile; gives others their turn every millisecond or so.

        Args:
            calibration: whose probes are asked.
            ask: what knows the vectors of the memories.
        """
        while self.is_due(calibration):
            basis = self._basis(calibration)
            sample = [key for key in sorted(self._texts) if key < self._bound()]
            best = await self._best(calibration, ask, sample) if len(sample) >= ENOUGH_MEMORIES else []
            if basis == self._basis(calibration):
                self.null = quantiles(best) if best else None
                self.size = len(sample) if best else 0
                self._measured = basis

    async def _best(self, calibration: Calibration, ask: Ask, sample: Sequence[int]) -> list[float]:
        """Return, for each probe, the best evidence that it finds in the sample alone."""
        lexical = LexicalIndex()
        for number, key in enumerate(sample):
            if key in self._texts:
                lexical.put(key, *self._texts[key])
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        known = [key for key in sample if key in lexical]
        best = []
        for probe in calibration.probes:
            asked = lexical.ask(probe.text)
            covered = coverage(asked.scores(known), asked.ceiling)
            cosine = ask(probe.vector).scores(known)
            found = np.where(np.isnan(cosine), covered, judged_evidence(cosine, covered))
            doubt = NAME_DOUBT if lexical.lacks(names(probe.text)) else 0.0
            best.append((float(found.max()) if known else 0.0) - doubt)
            await asyncio.sleep(0)
        return best

    def _bound(self) -> int:
        return max((step for step in STEPS if step <= self._reached), default=0)

    def _restored(self) -> tuple[int, int, int]:
        """The basis of a null that another process measured, as long as the sample has not changed here."""
        return self._bound(), self._changes, _ELSEWHERE

    def _basis(self, calibration: Calibration) -> tuple[int, int, int]:
        return self._bound(), self._changes, id(calibration) if calibration.probes else 0
