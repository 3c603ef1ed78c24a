"""Telling a person what they must know, where it disturbs no protocol: on standard error."""

from __future__ import annotations

import sys

__all__ = ["ToldOnce", "tell_person"]


def tell_person(sentence: str) -> None:
    """Say something on standard error."""
    sys.stderr.write(f"{sentence}\n")


class ToldOnce:
    """Says each sentence once in a process's life: a condition that lasts must not fill the terminal."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def tell(self, sentence: str) -> None:
        """Say it, unless it was said before."""
        if sentence not in self._told:
            self._told.add(sentence)
            tell_person(f"memrelay: {sentence}")
