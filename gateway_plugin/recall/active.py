"""Active mode: a language model writes a summary of the relevant memories, with the direct hits as a fallback.

`ActiveRecaller.remind` runs after the direct recall of a turn. It asks the relayer's model, or the host's model if the
relayer has none, and returns a `Reminder`: a block for the prompt, the decision that nothing is relevant, or the reason to
use the direct hits instead. A model that is slow, unavailable or wrong therefore costs only time within the turn's deadline.
After three timeouts in a row, a circuit breaker stops asking the model for a while (AM-26). `ActiveTraces` writes requests and
responses to files for debugging.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from gateway_plugin.calls.clock import Clock
from gateway_plugin.client import RecallCache, RelayerClient
from gateway_plugin.errors import DeadlineExceeded, GatewayError
from gateway_plugin.host_model import HostModelUnavailable, LentModel, given_answer, host_question
from gateway_plugin.keys.identity import Identity, typed
from gateway_plugin.recall.formatting import TRUSTED, format_summary, may_be_told
from gateway_plugin.settings.model import PluginSettings
from gateway_plugin.turn.gates import Turn
from gateway_plugin.turn.query import Query
from relayer.wire.calls import Breaker
from relayer.wire.redaction import redact
from relayer.wire.schemas import ActiveRecallRequest, ActiveRecallResponse, RecallResponse

MOST_KEPT: Final = 200
"""The number of traces kept for each agent; beyond that, the oldest one is deleted."""


class ActiveTraces:
    """Writes the requests and responses of active mode to JSON Lines files, for debugging."""

    def __init__(self, root: Path, directory: str) -> None:
        self._root = root
        self._directory = directory

    def write(
        self, agent: str, now_ms: int, request: ActiveRecallRequest, answer: ActiveRecallResponse
    ) -> None:
        """Write one trace and delete the oldest ones beyond `MOST_KEPT`. Raises `OSError` if it cannot be written."""
        place = self._root / "agents" / typed(agent) / "sessions" / self._directory
        # `Path.mkdir` applies its mode to the last directory only.
        for one in reversed((place, *place.parents)):
            if one.is_relative_to(self._root):
                one.mkdir(mode=0o700, parents=True, exist_ok=True)
        lines = (
            {"at": now_ms, "role": "user", "style": request.style, "content": request.context},
            {
                "role": "assistant",
                "status": answer.status,
                "reason": answer.reason,
                "content": answer.summary,
                "memories": [memory.id for memory in answer.memories],
            },
        )
        file = place / f"{now_ms:014d}-{secrets.token_hex(4)}.jsonl"
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as sink:
            sink.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        for old in sorted(place.glob("*.jsonl"))[:-MOST_KEPT]:
            old.unlink(missing_ok=True)


# A model cannot respond in less time than this, in seconds.
_LEAST_SECONDS: Final = 0.05
_MAX_MODEL: Final = 256


@dataclass(frozen=True, slots=True)
class Reminder:
    """The result of active mode for one turn.

    Attributes:
        outcome: ``ok``, ``empty``, or ``fallback:<reason>``; after a fallback the direct hits are used.
        text: the block for the prompt if the outcome is ``ok``, else "".
        said: the summary in that block, so that capture does not store it as new.
    """

    outcome: str
    text: str = field(default="", repr=False)
    said: str = field(default="", repr=False)
    detail: str = ""

    @property
    def decided(self) -> bool:
        """Return whether the direct hits are not needed."""
        return self.outcome in {"ok", "empty"}


class ActiveRecaller:
    """Asks the relayer's model for summaries, for all turns of one plugin.

    Attributes:
        cache: recent responses by namespace and request; writes to a namespace drop its entries.
    """

    def __init__(
        self,
        client: RelayerClient,
        settings: PluginSettings,
        clock: Clock,
        *,
        traces: ActiveTraces | None = None,
        lent: LentModel | None = None,
    ) -> None:
        self._lent = lent
        active = settings.active
        self.cache: RecallCache[str, ActiveRecallResponse] = RecallCache(
            clock, life=active.cache_ttl_ms / 1000
        )
        client.watch_writes(self.cache.drop)
        self._client = client
        self._settings = settings
        self._clock = clock
        self._traces = traces
        pause = active.circuit_breaker_cooldown_ms / 1000
        self._breaker = Breaker(
            clock.monotonic, limit=active.circuit_breaker_max_timeouts, first=pause, longest=pause
        )

    async def remind(self, turn: Turn, query: Query, direct: RecallResponse, seconds: float) -> Reminder:
        """Return a summary of the memories that are relevant to a turn, or the reason why there is none.

        With ``active.modelFallbackPolicy: resolved-only`` a turn for which there is no model gets nothing; otherwise it gets
        the direct hits. The model is ``active.model``, else that of the chat session, else ``active.modelFallback`` (AM-15).
        """
        if not direct.considered or (self._settings.active.mode == "escalate" and not direct.memories):
            return Reminder("empty")
        if seconds < _LEAST_SECONDS:
            return Reminder("fallback:timeout", detail="no time was left to ask the model")
        spared = self._breaker.wait()
        if spared:
            detail = f"the model failed repeatedly; it is asked again in {spared:.0f} s"
            return Reminder("fallback:spared", detail=detail)
        reminder = await self._reminder(turn, query, seconds)
        if self._settings.active.model_fallback_policy == "resolved-only" and reminder.outcome in _NO_MODEL:
            return replace(reminder, outcome="empty")
        return reminder

    async def _reminder(self, turn: Turn, query: Query, seconds: float) -> Reminder:
        try:
            answer = await self._ask(self._request(turn, query), turn.identity, seconds)
        except HostModelUnavailable as error:
            if error.reason == "timeout":
                self._breaker.failed()
            return Reminder(f"fallback:{_WORDS.get(error.reason, 'model_unavailable')}", detail=str(error))
        except GatewayError as error:
            if isinstance(error, DeadlineExceeded):
                self._breaker.failed()
            return Reminder(f"fallback:{error.outcome}", detail=str(error))
        # The breaker saves time, so only timeouts count: a model whose responses are unusable is asked again next turn.
        timed_out = answer.reason in {"model_timeout", "model_unavailable"}
        (self._breaker.failed if timed_out else self._breaker.succeeded)()
        reminder = self._read(answer)
        # If the relayer does not have the model of the settings, its text is not ascribed to that model.
        named = self._settings.active.model
        if not named or not answer.model_missing or timed_out:
            return reminder
        instead = f"{answer.model} was asked instead" if answer.model else "no other model was used"
        return replace(reminder, detail=f"the relayer has no model {named} (active.model); {instead}")

    async def _ask(
        self, request: ActiveRecallRequest, identity: Identity, seconds: float
    ) -> ActiveRecallResponse:
        asked = request.model_dump_json()
        known = self.cache.get(identity.namespace, asked)
        if known is not None:
            return known
        since = self.cache.writes
        answer = await self._answered(identity, request, seconds)
        if answer.status != "fallback" and not answer.degraded:
            self.cache.put(identity.namespace, asked, answer, since=since)
        if self._traces is not None:
            now_ms = int(self._clock.now() * 1000)
            # Traces are for debugging only, so a turn continues if one cannot be written.
            with contextlib.suppress(OSError):
                await asyncio.to_thread(self._traces.write, identity.agent, now_ms, request, answer)
        return answer

    async def _answered(
        self, identity: Identity, request: ActiveRecallRequest, seconds: float
    ) -> ActiveRecallResponse:
        """Return the relayer's decision; if it has no model, put its question to the host's model and send the result back."""
        end = self._clock.monotonic() + seconds
        if self._lent is None:
            return await self._client.active_recall(identity, request, deadline=seconds)
        lending = request.model_copy(update={"host_model": True})
        answer = await self._client.active_recall(identity, lending, deadline=seconds)
        for _ in range(_ROUNDS):
            left = end - self._clock.monotonic()
            if answer.question is None or left < _LEAST_SECONDS:
                break
            asked = host_question(
                answer.question,
                "active-recall",
                left * _MODEL_SHARE,
                agent=identity.agent,
                model=self._settings.active.model,
            )
            said = given_answer(answer.question, await self._lent.ask(asked))
            proving = lending.model_copy(update={"answer": said})
            # If the memories changed meanwhile, the result is about outdated ones, and the relayer asks once more.
            left = end - self._clock.monotonic()
            answer = await self._client.active_recall(identity, proving, deadline=left)
        stale = {"status": "fallback", "reason": "model_timeout"}
        return answer.model_copy(update=stale) if answer.question is not None else answer

    def _read(self, answer: ActiveRecallResponse) -> Reminder:
        if answer.status == "fallback":
            return Reminder(
                f"fallback:{answer.reason or 'unknown'}", detail=_SENTENCES.get(answer.reason or "", "")
            )
        text = format_summary(answer.summary, settings=self._settings.active)
        if not text:
            return Reminder("empty")
        if not may_be_told(answer.summary):
            # The summary probably repeats an instruction from a memory. Neither it nor the hits may enter the prompt.
            return Reminder("empty", detail="the model's answer looks like an instruction and was dropped")
        return Reminder("ok", text, answer.summary)

    def _request(self, turn: Turn, query: Query) -> ActiveRecallRequest:
        active, policy = self._settings.active, self._settings.capture.redaction
        fallback = active.model_fallback_policy
        # Fields that are not set are left out, so that an older relayer that does not know them accepts the request.
        about_model = {
            "thinking": active.thinking if active.thinking != "off" else "",
            "model": (active.model or turn.host.model or active.model_fallback)[:_MAX_MODEL],
            "model_fallback": fallback if fallback != "default-remote" else "",
        }
        return ActiveRecallRequest(
            query=query.search,
            # The conversation may contain secrets, which the search does not need.
            context=redact(query.context, policy).text,
            style=active.style.value,
            max_chars=active.max_summary_chars,
            prompt_append=active.prompt_append,
            prompt_override=active.prompt_override,
            audiences=turn.hearing.lasting,
            trusts=TRUSTED,
            **({"where": where} if (where := turn.hearing.project_filter) else {}),
            **{name: value for name, value in about_model.items() if value},
        )


# Share of the remaining time that the host's model may take. The rest is for the relayer to check its text.
_MODEL_SHARE: Final = 0.9
# The capture of the previous turn may change the memories while the host's model works, which needs another round. After
# this many rounds the turn gives up.
_ROUNDS: Final = 3
_WORDS: Final = {"timeout": "model_timeout", "budget": "over_budget", "spared": "spared"}
_NO_MODEL: Final = frozenset({"fallback:no_model", "fallback:model_unavailable", "fallback:over_budget"})
_SENTENCES: Final = {
    "no_model": "the relayer has no language model; its operator starts it with --model-url and --model-name",
    "over_budget": "the account's budget for the language model is used up for today",
    "model_unavailable": "the relayer's language model does not answer",
    "model_timeout": "the language model did not answer within the turn's time limit",
    "model_answer_unusable": "the language model's answer could not be used",
    "not_proved": "the language model's answer is not supported by any memory",
}
