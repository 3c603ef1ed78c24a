"""Active mode: a model at the relayer says what helps, and the direct hits stand ready for when it does not.

The hits are there before the model is asked, so that a model that is slow, away or wrong costs time within the turn's
deadline and nothing else. Three such failures in a row, and the model is spared for a while (AM-26).
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Final

from gateway_plugin.calls.breaker import Breaker
from gateway_plugin.client import RelayerClient
from gateway_plugin.clock import Clock
from gateway_plugin.errors import DeadlineExceeded, GatewayError, RelayerUnreachable
from gateway_plugin.formatting import format_summary
from gateway_plugin.identity import Identity
from gateway_plugin.injection import scan
from gateway_plugin.query import Query
from gateway_plugin.recall.active_traces import ActiveTraces
from gateway_plugin.recall.cache import RecallCache
from gateway_plugin.recall.selection import audible_to
from gateway_plugin.session_keys import Audience
from gateway_plugin.settings import PluginSettings
from gateway_plugin.status import status_of
from relayer.wire.answers import ActiveRecallRequest, ActiveRecallResponse
from relayer.wire.redaction import redact
from relayer.wire.schemas import RecallResponse

__all__ = ["ActiveRecaller", "Reminder"]

# Less than this is not worth a model's while.
_LEAST_SECONDS: Final = 0.05
_MAX_MODEL: Final = 256
_TRUSTED: Final = ("user", "imported", "assistant")


@dataclass(frozen=True, slots=True)
class Reminder:
    """What active mode decided.

    Attributes:
        outcome: ``ok``, ``empty``, or ``fallback:<reason>``: then the direct hits are used.
        text: the block, for ``ok``.
        said: the summary in it, so that it is not captured as new.
        detail: the reason, in a sentence for people.
    """

    outcome: str
    text: str = field(default="", repr=False)
    said: str = field(default="", repr=False)
    detail: str = ""

    @property
    def decided(self) -> bool:
        """Whether the direct hits are not needed."""
        return self.outcome in {"ok", "empty"}


class ActiveRecaller:
    """Asks the relayer's model for the turns of one plugin."""

    def __init__(
        self,
        client: RelayerClient,
        settings: PluginSettings,
        clock: Clock,
        *,
        traces: ActiveTraces | None = None,
    ) -> None:
        active = settings.active
        self.cache: RecallCache[ActiveRecallRequest, ActiveRecallResponse] = RecallCache(
            clock, life=active.cache_ttl_ms / 1000
        )
        client.watch_writes(self.cache.drop)
        self._client = client
        self._settings = settings
        self._clock = clock
        self._traces = traces
        self._breaker = Breaker(
            clock,
            limit=active.circuit_breaker_max_timeouts,
            cooldown=active.circuit_breaker_cooldown_ms / 1000,
        )

    async def remind(
        self,
        query: Query,
        direct: RecallResponse,
        *,
        identity: Identity,
        audience: Audience | None,
        seconds: float,
        model: str = "",
    ) -> Reminder:
        """Say what to remind of.

        Args:
            query: what the turn asks memory.
            direct: what a direct recall found.
            identity: whose memories.
            audience: who reads the answer.
            seconds: what is left of the turn's time.
            model: the chat session's model, which is wished for where the settings name none; where it is not told
                either, ``active.modelFallback`` is (AM-15).
        """
        if not direct.considered or (self._settings.active.mode == "escalate" and not direct.memories):
            return Reminder("empty")
        if seconds < _LEAST_SECONDS:
            return Reminder("fallback:timeout", detail="no time was left to ask the model")
        try:
            self._breaker.check()
        except RelayerUnreachable:
            return Reminder(
                "fallback:spared",
                detail=f"the model failed repeatedly; it is asked again in {self._breaker.remaining:.0f} s",
            )
        try:
            answer = await self._ask(self._request(query, audience, model), identity, seconds)
        except GatewayError as error:
            if isinstance(error, DeadlineExceeded):
                self._breaker.failed()
            return Reminder(f"fallback:{status_of(error)}", detail=str(error))
        # Only what takes time is spared: a model that answers in no usable form is asked again.
        timed_out = answer.reason in {"model_timeout", "model_unavailable"}
        (self._breaker.failed if timed_out else self._breaker.succeeded)()
        return self._read(answer)

    async def _ask(
        self, request: ActiveRecallRequest, identity: Identity, seconds: float
    ) -> ActiveRecallResponse:
        known = self.cache.get(identity.namespace, request)
        if known is not None:
            return known
        since = self.cache.writes
        answer = await self._client.active_recall(identity, request, deadline=seconds)
        if answer.status != "fallback" and not answer.degraded:
            self.cache.put(identity.namespace, request, answer, since=since)
        if self._traces is not None:
            now_ms = int(self._clock.now() * 1000)
            # Where a trace cannot be written the turn goes on: it is for debugging, and nothing depends on it.
            with contextlib.suppress(OSError):
                await asyncio.to_thread(self._traces.write, identity.agent, now_ms, request, answer)
        return answer

    def _read(self, answer: ActiveRecallResponse) -> Reminder:
        if answer.status == "fallback":
            return Reminder(
                f"fallback:{answer.reason or 'unknown'}", detail=_SENTENCES.get(answer.reason or "", "")
            )
        text = format_summary(answer.summary, settings=self._settings.active)
        if not text:
            return Reminder("empty")
        verdict = scan(answer.summary)
        if verdict.blocked or verdict.suspect:
            # A memory spoke through the model: what it says reaches no prompt, and neither do the hits.
            return Reminder("empty", detail="the model's answer reads like an instruction; it was left out")
        return Reminder("ok", text, answer.summary)

    def _request(self, query: Query, audience: Audience | None, model: str) -> ActiveRecallRequest:
        active, policy = self._settings.active, self._settings.capture.redaction
        # What was not set is left out: a relayer that does not know it answers all the same.
        about_model = {
            "thinking": active.thinking if active.thinking != "off" else "",
            "model": (active.model or model or active.model_fallback)[:_MAX_MODEL],
            "model_fallback": active.model_fallback_policy
            if active.model_fallback_policy != "default-remote"
            else "",
        }
        return ActiveRecallRequest(
            query=query.search,
            # A conversation may hold a secret that the search did not need to see.
            context=redact(query.context, policy).text,
            style=active.style.value,
            max_chars=active.max_summary_chars,
            prompt_append=active.prompt_append,
            prompt_override=active.prompt_override,
            audiences=audible_to(audience),
            trusts=_TRUSTED,
            **{name: value for name, value in about_model.items() if value},
        )


_SENTENCES: Final = {
    "no_model": "the relayer has no language model; its operator starts it with --model-url and --model-name",
    "over_budget": "the account's use of the language model is up for today",
    "model_unavailable": "the relayer's language model does not answer",
    "model_timeout": "the language model took longer than the turn had",
    "model_answer_unusable": "the language model's answer could not be used",
    "not_proved": "the language model said what no memory says",
}
