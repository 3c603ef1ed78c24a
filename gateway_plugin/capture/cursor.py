"""Which messages of a session were captured already.

Hosts hand over the whole history, a window of it, or the last turn alone, and a compaction may rewrite the beginning.
The cursor remembers the last messages by keyed fingerprints, finds where they end in what it is given, and calls the
rest new. A sliding window, by contrast, would send the same message again and again.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway_plugin.turn.messages import ChatMessage
from relayer.wire import base64url
from relayer.wire.errors import Malformed
from relayer.wire.lp import Reader, lp

__all__ = ["MAX_REMEMBERED", "TurnCursor", "fingerprint"]

MAX_REMEMBERED: Final = 256
_SIZE: Final = 16
# Two messages in a row that agree are taken for the same place of a history; one alone ("yes") happens by chance.
_ENOUGH: Final = 2


def fingerprint(key: bytes, message: ChatMessage) -> bytes:
    """Return 16 bytes that stand for a message: of its id where the host gives one, else of what it says."""
    what = lp("id", message.id) if message.id is not None else lp("said", message.role.value, message.text)
    return hmac.new(key, what, hashlib.sha256).digest()[:_SIZE]


@dataclass(frozen=True, slots=True)
class TurnCursor:
    """Where a session's capture stands: how many turns were captured, and the last messages seen, oldest first."""

    turns: int = 0
    seen: tuple[bytes, ...] = ()

    def new(self, prints: Sequence[bytes]) -> int:
        """Return the index of the first message that is new."""
        for end in range(len(prints), 0, -1):
            overlap = self._overlap(prints, end)
            if overlap >= min(end, len(self.seen), _ENOUGH) and overlap:
                return end
        return 0

    def _overlap(self, prints: Sequence[bytes], end: int) -> int:
        """Count the messages before ``end`` that agree with the last ones seen."""
        count = 0
        for given, known in zip(reversed(prints[:end]), reversed(self.seen), strict=False):
            if given != known:
                break
            count += 1
        return count

    def advanced(self, prints: Sequence[bytes]) -> TurnCursor:
        """Return the cursor after a turn of these new messages."""
        return TurnCursor(self.turns + 1, (*self.seen, *prints)[-MAX_REMEMBERED:])

    def encode(self) -> str:
        """Encode for storage; holds no text, but is sealed all the same."""
        return base64url.encode(lp(self.turns, b"".join(self.seen)))

    @classmethod
    def decode(cls, text: str) -> TurnCursor:
        """Decode.

        Raises:
            Malformed: not an encoded cursor.
        """
        reader = Reader(base64url.decode(text))
        turns, joined = reader.integer(), reader.bytes()
        reader.end()
        if len(joined) % _SIZE or len(joined) > MAX_REMEMBERED * _SIZE:
            raise Malformed("not a turn cursor")
        return cls(turns, tuple(joined[at : at + _SIZE] for at in range(0, len(joined), _SIZE)))
