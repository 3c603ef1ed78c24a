"""A client-side model: the question is returned to the caller as an exception, and the answer comes with a later call.

All code that asks a `relayer.ports.ChatModel` and checks its answer can therefore use a gateway's model as well. No state is kept
between question and answer: the question is built again, and the answer counts if the question is still the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from relayer.errors import ModelAnswerUnusable
from relayer.ports import ChatAnswer, ChatMessage
from relayer.wire.questions import GivenAnswer, ModelQuestion, QuestionMessage

_UNNAMED = "host"


class ModelToBeAsked(Exception):
    """Raised when a question has no answer yet and the relayer's caller must have it answered.

    Attributes:
        question: what to ask.
    """

    def __init__(self, question: ModelQuestion) -> None:
        super().__init__("the gateway's model is to be asked")
        self.question = question


class BorrowedModel:
    """A `ChatModel` that returns an answer given by the caller, if there is one."""

    def __init__(self, given: GivenAnswer | None = None) -> None:
        self._given = given

    @property
    def name(self) -> str:
        """Return the name that the gateway gave with the answer; ``host`` if it gave none."""
        return (self._given.model if self._given is not None else "") or _UNNAMED

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        schema: Mapping[str, object] | None,
        max_tokens: int,
        seconds: float,
        effort: str = "",
    ) -> ChatAnswer:
        """Return the answer that was given to this very question.

        Raises:
            ModelToBeAsked: none was.
            ModelAnswerUnusable: it is empty.
        """
        del seconds
        said = tuple(QuestionMessage(role=one.role, text=one.text) for one in messages)
        shape = None if schema is None else dict(schema)
        whole = json.dumps(
            [[(one.role, one.text) for one in said], shape, max_tokens, effort],
            ensure_ascii=False,
            sort_keys=True,
        )
        # A lone half of a surrogate pair can be in a text, and in no UTF-8.
        ticket = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()
        question = ModelQuestion(
            ticket=ticket, messages=said, shape=shape, max_tokens=max_tokens, effort=effort
        )
        given = self._given
        if given is None or given.ticket != question.ticket:
            raise ModelToBeAsked(question)
        if not given.text.strip():
            raise ModelAnswerUnusable("empty", given.tokens)
        return ChatAnswer(given.text, given.tokens, self.name)

    async def close(self) -> None:
        """Do nothing; there is nothing to release."""
