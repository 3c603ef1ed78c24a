"""Active mode: a model at the relayer says what helps, and the direct hits stand ready for when it does not.

The hits are there before the model is asked, so that a model that is slow, away or wrong costs time within the turn's
deadline and nothing else. Three such failures in a row, and the model is spared for a while (AM-26).
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

from gateway_plugin.client import RecallCache, RelayerClient
from gateway_plugin.clock import Clock
from gateway_plugin.errors import DeadlineExceeded, GatewayError
from gateway_plugin.formatting import TRUSTED, format_summary
from gateway_plugin.host_model import HostModelUnavailable, LentModel, given_answer, host_question
from gateway_plugin.identity import Identity
from gateway_plugin.injection import scan
from gateway_plugin.query import Query
from gateway_plugin.settings import PluginSettings
from gateway_plugin.turn import Turn
from relayer.wire.memories import ActiveRecallRequest, ActiveRecallResponse
from relayer.wire.redaction import redact
from relayer.wire.retries import Breaker
from relayer.wire.schemas import RecallResponse

MOST_KEPT: Final = 200
"""Of each agent; beyond that the oldest goes."""


class ActiveTraces:
    """Writes traces.

    Args:
        root: the plugin's state directory.
        directory: ``active.transcriptDir``, a plain relative path.
    """

    def __init__(self, root: Path, directory: str) -> None:
        self._root = root
        self._directory = directory

    def write(
        self, agent: str, now_ms: int, request: ActiveRecallRequest, answer: ActiveRecallResponse
    ) -> None:
        """Write one trace; the agent's name is in normal form.

        Raises:
            OSError: it cannot be written.
        """
        place = self._root / "agents" / agent / "sessions" / self._directory
        _make_private(place, self._root)
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


def _make_private(place: Path, root: Path) -> None:
    """Make a directory and what is missing above it; the mode of `Path.mkdir` holds for the last one alone."""
    missing = [one for one in (place, *place.parents) if one == root or one.is_relative_to(root)]
    for one in reversed(missing):
        one.mkdir(mode=0o700, parents=True, exist_ok=True)


# Less than this is not worth a model's while.
_LEAST_SECONDS: Final = 0.05
_MAX_MODEL: Final = 256
# What a host calls the most is the most that the protocol knows.
_MOST_THINKING: Final = "xhigh"


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
        lent: LentModel | None = None,
    ) -> None:
        self._lent = lent
        active = settings.active
        self.cache: RecallCache[ActiveRecallRequest, ActiveRecallResponse] = RecallCache(
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
        """Say what to remind of.

        Args:
            turn: whose it is, and who reads the answer. The chat session's model is wished for where the settings name
                none; where it is not told either, ``active.modelFallback`` is (AM-15).
            query: what the turn asks memory.
            direct: what a direct recall found.
            seconds: what is left of the turn's time.
        """
        if not direct.considered or (self._settings.active.mode == "escalate" and not direct.memories):
            return Reminder("empty")
        if seconds < _LEAST_SECONDS:
            return Reminder("fallback:timeout", detail="no time was left to ask the model")
        spared = self._breaker.wait()
        if spared:
            detail = f"the model failed repeatedly; it is asked again in {spared:.0f} s"
            return Reminder("fallback:spared", detail=detail)
        try:
            answer = await self._ask(self._request(turn, query), turn.identity, seconds)
        except HostModelUnavailable as error:
            return Reminder(f"fallback:{_WORDS.get(error.reason, 'model_unavailable')}", detail=str(error))
        except GatewayError as error:
            if isinstance(error, DeadlineExceeded):
                self._breaker.failed()
            return Reminder(f"fallback:{error.outcome}", detail=str(error))
        # Only what takes time is spared: a model that answers in no usable form is asked again.
        timed_out = answer.reason in {"model_timeout", "model_unavailable"}
        (self._breaker.failed if timed_out else self._breaker.succeeded)()
        return self._said_of_model(self._read(answer), answer)

    def _said_of_model(self, reminder: Reminder, answer: ActiveRecallResponse) -> Reminder:
        """Say that the model that the settings name is not the relayer's: nobody should take another one's words for its."""
        named = self._settings.active.model
        if not named or not answer.model_missing or answer.reason in {"model_timeout", "model_unavailable"}:
            return reminder
        instead = f"{answer.model} was asked instead" if answer.model else "no other one was asked"
        return replace(reminder, detail=f"the relayer has no model {named} (active.model); {instead}")

    async def _ask(
        self, request: ActiveRecallRequest, identity: Identity, seconds: float
    ) -> ActiveRecallResponse:
        known = self.cache.get(identity.namespace, request)
        if known is not None:
            return known
        since = self.cache.writes
        answer = await self._answered(identity, request, seconds)
        if answer.status != "fallback" and not answer.degraded:
            self.cache.put(identity.namespace, request, answer, since=since)
        if self._traces is not None:
            now_ms = int(self._clock.now() * 1000)
            # Where a trace cannot be written the turn goes on: it is for debugging, and nothing depends on it.
            with contextlib.suppress(OSError):
                await asyncio.to_thread(self._traces.write, identity.agent, now_ms, request, answer)
        return answer

    async def _answered(
        self, identity: Identity, request: ActiveRecallRequest, seconds: float
    ) -> ActiveRecallResponse:
        """Have the relayer decide, with the host's model where it has none."""
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
            # It asks again where the memories changed meanwhile: what was answered is about others.
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
        verdict = scan(answer.summary)
        if verdict.blocked or verdict.suspect:
            # A memory spoke through the model: what it says reaches no prompt, and neither do the hits.
            return Reminder("empty", detail="the model's answer reads like an instruction; it was left out")
        return Reminder("ok", text, answer.summary)

    def _request(self, turn: Turn, query: Query) -> ActiveRecallRequest:
        active, policy = self._settings.active, self._settings.capture.redaction
        # What was not set is left out: a relayer that does not know it answers all the same.
        thinking = _MOST_THINKING if active.thinking == "max" else active.thinking
        about_model = {
            "thinking": thinking if thinking != "off" else "",
            "model": (active.model or turn.host.model or active.model_fallback)[:_MAX_MODEL],
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
            audiences=turn.hearing.lasting,
            trusts=TRUSTED,
            **{name: value for name, value in about_model.items() if value},
        )


# What is left of a turn's time for the relayer to check what the host's model said.
_MODEL_SHARE: Final = 0.9
# A capture of the turn before may come between a question and its answer; one that does so every time is not waited for.
_ROUNDS: Final = 3
_WORDS: Final = {"timeout": "model_timeout", "budget": "over_budget", "spared": "spared"}
_SENTENCES: Final = {
    "no_model": "the relayer has no language model; its operator starts it with --model-url and --model-name",
    "over_budget": "the account's use of the language model is up for today",
    "model_unavailable": "the relayer's language model does not answer",
    "model_timeout": "the language model took longer than the turn had",
    "model_answer_unusable": "the language model's answer could not be used",
    "not_proved": "the language model said what no memory says",
}
