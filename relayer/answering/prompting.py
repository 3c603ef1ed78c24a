"""Prompts are files, one for each version; a version is never changed."""

from __future__ import annotations

from importlib.resources import files

from relayer.wire.answers import StyleName

__all__ = ["active_prompt", "ask_prompt"]

_VERSION = "1"


def active_prompt(style: StyleName, characters: int) -> str:
    """Return what a model is told that chooses a reminder: the common rules, then the style's."""
    rules = _read(f"active/{_VERSION}.txt").replace("{characters}", str(characters))
    return f"{rules}\n{_read(f'active/{_VERSION}.{style}.txt')}"


def ask_prompt(characters: int) -> str:
    """Return what a model is told that answers a question."""
    return _read(f"ask/{_VERSION}.txt").replace("{characters}", str(characters))


def _read(name: str) -> str:
    return (files("relayer.answering") / "prompts" / name).read_text("utf-8")
