"""OpenClaw's own language model, asked over the bridge: the shim calls ``api.runtime.llm.complete`` of the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway_plugin.bridge.server import AskHost, HostRefused
from gateway_plugin.host_model import HostAnswer, HostModelUnavailable, HostQuestion

_NOT_AUTHORIZED: Final = "LLM_COMPLETION_NOT_AUTHORIZED"
_MOST: Final = 1e8
_SENTENCES: Final = {
    _NOT_AUTHORIZED: "OpenClaw does not allow the plugin to use this model: see plugins.entries.memrelay.llm (allowModelOverride, "
    "allowedModels, allowedCompletionModels)",
    "LLM_COMPLETION_FAILED": "OpenClaw has no model for this, or the model's provider failed: see openclaw models status",
    "LLM_EMPTY": "OpenClaw's model ended without an answer: see openclaw models status",
}


class OpenClawModel:
    """The `HostModel` of one gateway.

    Args:
        ask: asks the shim.
    """

    def __init__(self, ask: AskHost) -> None:
        self._ask = ask

    async def complete(self, question: HostQuestion) -> HostAnswer:
        """Have the host ask its model.

        The agent's own model is used where ``plugins.entries.memrelay.llm.allowAgentIdOverride`` grants that, else the model of
        the gateway's default agent.

        Raises:
            HostModelUnavailable: the host refuses, or its model failed.
        """
        params = {
            "system": question.system,
            "prompt": question.prompt,
            "purpose": f"memrelay.{question.purpose}",
            "maxTokens": question.max_tokens,
            "effort": question.effort,
            "agentId": question.agent,
            "model": question.model,
        }
        try:
            told = await self._ask("model.complete", params, question.seconds)
        except HostRefused as error:
            reason = "not_allowed" if error.code == _NOT_AUTHORIZED else "unavailable"
            sentence = _SENTENCES.get(
                error.code, f"OpenClaw's model gave no answer ({error.code or 'unknown'})"
            )
            raise HostModelUnavailable(reason, sentence) from None
        return _answer(told)


def _answer(told: Mapping[str, Any]) -> HostAnswer:
    text, model, cost = told.get("text"), told.get("model"), _number(told.get("costUsd"))
    return HostAnswer(
        text=text if isinstance(text, str) else "",
        tokens=int(_number(told.get("tokens")) or 0),
        model=model if isinstance(model, str) else "",
        cost_usd=cost,
    )


def _number(value: object) -> float | None:
    whole = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MOST
    return float(value) if whole and isinstance(value, int | float) else None
