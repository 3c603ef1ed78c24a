"""What all requests have in common, and all answers.

Requests refuse unknown fields, so that a misspelt filter never widens an answer. Answers tolerate unknown fields, so
that an older plugin reads a newer relayer. Neither repeats a value in an error.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

__all__ = ["Answer", "Request"]


class Request(BaseModel):
    """What a client sends."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Answer(BaseModel):
    """What the relayer answers."""

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)
