"""A reader of messages without a model: it says what a test states."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from relayer.errors import EmbedderUnavailable
from relayer.lib.n_grams import ESSENTIALS, MESSAGE_CLASSES
from relayer.ports import MESSAGE_LOGITS


class StatedReadings:
    """A `MessageReader` that takes each user's text for the class that a test states; of others it says nothing.

    A class of `ESSENTIALS` is stated in the same way.

    Attributes:
        asked: the texts of each call.
        available: whether it answers.
    """

    def __init__(self, stated: dict[str, str]) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.available = True
        self._stated = stated

    async def messages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the logits of texts, of shape (len(texts), MESSAGE_LOGITS)."""
        self.asked.append(tuple(texts))
        if not self.available:
            raise EmbedderUnavailable("not now")
        read = np.zeros((len(texts), MESSAGE_LOGITS), np.float32)
        for row, text in zip(read, texts, strict=True):
            if text in self._stated:
                classes = MESSAGE_CLASSES["user"]
                if self._stated[text] in classes:
                    row[classes.index(self._stated[text])] = 50.0
                else:
                    row[ESSENTIALS.index(self._stated[text]) - len(ESSENTIALS)] = 50.0
        return read
