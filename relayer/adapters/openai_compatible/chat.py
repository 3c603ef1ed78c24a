"""Chat completions from the route ``/chat/completions``.

Servers differ in the parameters that they accept. `OpenAIChat` tries forms of the request from the strictest to the plainest
(`_FORMS`), remembers the first one that the server accepts, and turns the response into a `ChatAnswer` or an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relayer.adapters.openai_compatible.endpoint import Endpoint, EndpointFault, Fault, advice
from relayer.errors import ConfigurationError, ModelAnswerUnusable, ModelUnavailable
from relayer.ports import ChatAnswer, ChatMessage

_PATH = "/chat/completions"
# From the strictest form of a request to the plainest: (response format, temperature, name of the field for the token limit).
# Models that reason accept no temperature and use another field; small servers support no schema, or no format at all.
_FORMS: tuple[tuple[str, bool, str], ...] = (
    ("json_schema", True, "max_tokens"),
    ("json_schema", False, "max_completion_tokens"),
    ("json_object", True, "max_tokens"),
    ("", True, "max_tokens"),
    ("", False, "max_completion_tokens"),
)
_HELLO = ChatMessage("user", "Answer with: ok")
_HELLO_TOKENS = 8
_BYTES_PER_TOKEN = 4  # the usual estimate, for servers that do not report the usage


class OpenAIChat:
    """An implementation of the `ChatModel` port by an endpoint, which `close` closes."""

    def __init__(self, endpoint: Endpoint, model: str, *, setting: str = "model") -> None:
        self._setting = setting  # the prefix of this endpoint's settings, for messages
        self._endpoint = endpoint
        self._model = model
        self._form = 0
        self._takes_effort = True

    @property
    def name(self) -> str:
        """The name of the model, as the server knows it."""
        return self._model

    @property
    def trouble(self) -> str:
        """The error of the last request; empty if it succeeded or there was none."""
        return self._endpoint.trouble

    async def start(self) -> None:
        """Request one word, to check the URL, the key and the model.

        Raises:
            ConfigurationError: one of them is wrong; the message says which.
            ModelUnavailable: the endpoint does not respond; a later attempt may succeed.
        """
        try:
            # A few tokens are enough, and some models would generate text for minutes.
            await self._ask((_HELLO,), None, _HELLO_TOKENS, None)
        except EndpointFault as fault:
            if fault.fault is Fault.TRANSIENT:
                raise _unavailable(fault) from None
            model, url = f"name {self._model}", self._endpoint.url
            told = advice(fault, setting=self._setting, url=url, path=_PATH, model=model)
            raise ConfigurationError(told) from None

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        schema: Mapping[str, object] | None,
        max_tokens: int,
        seconds: float,
        effort: str = "",
    ) -> ChatAnswer:
        """Return a completion, see `relayer.ports.ChatModel`. An effort that the server does not accept is left out."""
        try:
            choice = await self._ask(messages, schema, max_tokens, seconds, effort)
        except EndpointFault as fault:
            if fault.fault is Fault.REJECTED:
                raise ModelAnswerUnusable("request_rejected") from None
            raise _unavailable(fault) from None
        asked = sum(len(message.text) for message in messages)
        tokens = choice.tokens or (asked + len(choice.text)) // _BYTES_PER_TOKEN
        if choice.refused:
            raise ModelAnswerUnusable("refused", tokens)
        if choice.finish == "length":
            raise ModelAnswerUnusable("truncated", tokens)
        if not choice.text.strip():
            raise ModelAnswerUnusable("empty", tokens)
        return ChatAnswer(choice.text, tokens)

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()

    async def _ask(
        self,
        messages: Sequence[ChatMessage],
        schema: Mapping[str, object] | None,
        max_tokens: int,
        seconds: float | None,
        effort: str = "",
    ) -> _Choice:
        """Send a request with the reasoning effort, unless the server is known not to accept one."""
        more: dict[str, object] = {"reasoning_effort": effort} if effort and self._takes_effort else {}
        try:
            return await self._ask_plainly(messages, schema, max_tokens, seconds, more)
        except EndpointFault as fault:
            if fault.fault is not Fault.REJECTED or not more:
                raise
        found = await self._ask_plainly(messages, schema, max_tokens, seconds, {})
        # The same request without an effort was accepted, so the server does not accept the effort.
        self._takes_effort = False
        return found

    async def _ask_plainly(
        self,
        messages: Sequence[ChatMessage],
        schema: Mapping[str, object] | None,
        max_tokens: int,
        seconds: float | None,
        more: dict[str, object],
    ) -> _Choice:
        """Send a request in the form that the server accepted before, and if it is rejected, in plainer forms."""
        told = [{"role": message.role, "content": message.text} for message in messages]
        for form in range(self._form, len(_FORMS)):
            body = {"model": self._model, "messages": told} | _options(form, schema, max_tokens) | more
            try:
                found = await self._endpoint.post(_PATH, body, _choice, seconds=seconds)
            except EndpointFault as fault:
                # If no form is accepted, the reason is not the form but usually a text that is too long.
                if fault.fault is Fault.REJECTED and form + 1 < len(_FORMS):
                    continue
                raise
            self._form = form
            return found
        raise EndpointFault(Fault.REJECTED, "no form of request is accepted")


def _options(form: int, schema: Mapping[str, object] | None, max_tokens: int) -> dict[str, object]:
    shape, temperature, length = _FORMS[form]
    options: dict[str, object] = {length: max_tokens, "stream": False}
    if temperature:
        options["temperature"] = 0
    if shape == "json_schema" and schema is not None:
        named = {"name": "answer", "strict": True, "schema": dict(schema)}
        options["response_format"] = {"type": shape, "json_schema": named}
    elif shape and schema is not None:
        options["response_format"] = {"type": "json_object"}
    return options


@dataclass(frozen=True, slots=True)
class _Choice:
    text: str
    refused: bool
    finish: object
    tokens: int


def _choice(document: object) -> _Choice:
    """Parse the first choice of a response."""
    choices = document.get("choices") if isinstance(document, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    if not isinstance(first, dict) or not isinstance(message, dict):
        raise EndpointFault(Fault.TRANSIENT, "the answer holds no message")
    content, finish = message.get("content"), first.get("finish_reason")
    refused = bool(message.get("refusal")) or finish == "content_filter"
    usage = document.get("usage") if isinstance(document, dict) else None
    total = usage.get("total_tokens") if isinstance(usage, dict) else None
    tokens = total if isinstance(total, int) and 0 < total < 2**31 else 0
    return _Choice(content if isinstance(content, str) else "", refused, finish, tokens)


def _unavailable(fault: EndpointFault) -> ModelUnavailable:
    return ModelUnavailable(f"the model endpoint: {fault.what}", fault.retry_after or 1.0)
