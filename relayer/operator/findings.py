"""What an examination says: one finding for each thing that is not as it should be."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from relayer.errors import RelayerError, UpgradeRequired

__all__ = ["UNREADABLE_REPORT", "Finding", "Flaw"]

UNREADABLE_REPORT = "ask for that erasure again, then remove this object"


class Flaw(Enum):
    """What can be wrong with a store; the values are stable words of the JSON output."""

    DAMAGED = "damaged"
    ABSENT = "absent"
    NEWER = "newer_version"
    NO_ACCOUNT = "unknown_account"
    NO_BODY = "body_lost"
    WRONG_SEAL = "inner_seal"
    NO_NAME = "without_a_name"
    LEFT_OVER = "left_over"
    UNFINISHED = "unfinished"

    @staticmethod
    def of(error: RelayerError) -> Flaw:
        """Return what an object that could not be read has."""
        return Flaw.NEWER if isinstance(error, UpgradeRequired) else Flaw.DAMAGED

    @property
    def harmless(self) -> bool:
        """Whether nothing is lost and nothing is refused because of it."""
        return self in {Flaw.LEFT_OVER, Flaw.UNFINISHED}


@dataclass(frozen=True, slots=True)
class Finding:
    """One flaw: the object's key without the prefix, a sentence, what to do, and which entries it concerns."""

    flaw: Flaw
    key: str
    sentence: str
    fix: str = ""
    first_seq: int = 0
    last_seq: int = 0

    def row(self) -> dict[str, object]:
        """Return it for JSON."""
        entries = {"first_seq": self.first_seq, "last_seq": self.last_seq} if self.last_seq else {}
        return {
            "flaw": self.flaw.value,
            "harmless": self.flaw.harmless,
            "key": self.key,
            "what": self.sentence,
            "fix": self.fix,
            **entries,
        }
