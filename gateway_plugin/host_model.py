"""The use of the host's language model for facts, summaries and active mode, if the relayer has no model of its own.

The relayer writes the questions and checks the model's output (`relayer.wire.questions`); this module carries them to the host
and back. `ModelWork` does so in the background, between turns; only active mode asks within a turn, under the turn's deadline.
`LentModel` limits the cost in two ways: calls per hour, and a pause that grows while the model fails.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from gateway_plugin.calls.clock import Clock
from gateway_plugin.client import RelayerClient
from gateway_plugin.errors import GatewayError, RelayerRefused
from gateway_plugin.keys.identity import Identity, NamespaceRef
from gateway_plugin.settings.model import HostModelSettings, PluginSettings
from gateway_plugin.turn.status import HostModelStatus, NotifyOnce
from relayer.wire.calls import Breaker, doubled
from relayer.wire.fields import clip
from relayer.wire.questions import MAX_ANSWER_CHARS, GivenAnswer, ModelQuestion, ModelWorkRequest

_HOUR: Final = 3600.0
_FAILURES: Final = 3
_FIRST_PAUSE: Final = 60.0
_LONGEST_PAUSE: Final = 3600.0
_MAX_NAME: Final = 512


@dataclass(frozen=True, slots=True)
class HostQuestion:
    """A question to a host's model.

    Attributes:
        system: what it is told, "" for nothing.
        prompt: what it is asked; parts of a conversation and memories are in it.
        purpose: ``extract``, ``summarise`` or ``active-recall``.
        seconds: how long the caller waits for the response.
        max_tokens: of the answer.
        effort: how much a model that reasons should, "" leaves it to the host.
        agent: on whose behalf, as the host may know it.
        model: the model that the settings name; "" leaves it to the host.
    """

    system: str = field(repr=False)
    prompt: str = field(repr=False)
    purpose: str
    seconds: float
    max_tokens: int
    effort: str = ""
    agent: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """The model's output, the tokens of question and output, the model's name, and the cost in US dollars if known."""

    text: str = field(repr=False)
    tokens: int = 0
    model: str = ""
    cost_usd: float | None = None


class HostModel(Protocol):
    """The interface of a host's model: one question, one output."""

    async def complete(self, question: HostQuestion) -> HostAnswer:
        """Ask the model; cancelling the caller should end the request. Raises `HostModelUnavailable`."""
        ...


class HostModelUnavailable(GatewayError):
    """Raised when the host's model gives no answer.

    Attributes:
        reason: ``unavailable``, ``not_allowed``, ``timeout``, ``budget`` or ``spared``.
    """

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


class LentModel:
    """A host's model within its budget. ``notify_once`` is told, with the first question, that the model is used."""

    def __init__(
        self, model: HostModel, settings: HostModelSettings, clock: Clock, notify_once: NotifyOnce
    ) -> None:
        self.settings = settings
        self._model = model
        self._clock = clock
        self._notify_once = notify_once
        self._asked: deque[float] = deque()
        self._breaker = Breaker(clock.monotonic, limit=_FAILURES, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        self._calls = self._tokens = self._facts = self._dropped = 0
        self._cost: float | None = None
        self._name = self._failure = ""

    def wait(self) -> float:
        """Return the seconds until it may be asked; 0 now."""
        self._forget_old()
        over = len(self._asked) >= self.settings.calls_per_hour
        until_room = self._asked[0] + _HOUR - self._clock.monotonic() if over else 0.0
        return max(until_room, self._breaker.remaining)

    async def ask(self, question: HostQuestion) -> HostAnswer:
        """Ask within the budget and the question's time. Raises `HostModelUnavailable`, also if it may not be asked now."""
        self._forget_old()
        if len(self._asked) >= self.settings.calls_per_hour:
            limit = f"the {self.settings.calls_per_hour} calls of this hour are used up"
            raise HostModelUnavailable("budget", f"{limit}; hostModel.callsPerHour allows more")
        if self._breaker.wait():
            raise HostModelUnavailable("spared", f"the host's model failed repeatedly: {self._failure}")
        self._notify_once(
            "the relayer has no language model, so the host's own is asked for facts and summaries of captured turns, at most "
            f"{self.settings.calls_per_hour} times an hour; hostModel.enabled: false ends that"
        )
        self._asked.append(self._clock.monotonic())
        self._calls += 1
        try:
            async with asyncio.timeout(question.seconds):
                answer = await self._model.complete(question)
        except TimeoutError as error:
            self._fail(f"no answer within {question.seconds:.0f} s")
            raise HostModelUnavailable("timeout", "the host's model did not answer in time") from error
        except HostModelUnavailable as error:
            self._fail(str(error))
            raise
        except Exception as error:
            # Whatever a host's own code raises may hold anything: its kind is all that is said.
            self._fail(type(error).__name__)
            sentence = f"the host's model failed ({type(error).__name__})"
            raise HostModelUnavailable("unavailable", sentence) from error
        self._breaker.succeeded()
        self._failure = ""
        self._tokens += answer.tokens
        self._name = answer.model or self._name
        if answer.cost_usd is not None:
            self._cost = (self._cost or 0.0) + answer.cost_usd
        return answer

    def unusable(self) -> None:
        """Note that an answer could not be used: a model that never answers in form is spared as well."""
        self._fail("its answers are not in the form that was asked for")

    def found(self, facts: int, dropped: int) -> None:
        """Count the facts that the relayer took from the model's output, and those that it dropped."""
        self._facts += facts
        self._dropped += dropped

    def status(self) -> HostModelStatus:
        """Return the model's usage and its current problem, if any."""
        self._forget_old()
        used = len(self._asked)
        trouble = self._failure
        if used >= self.settings.calls_per_hour:
            trouble = "hostModel.callsPerHour is used up"
        return HostModelStatus(
            used,
            self.settings.calls_per_hour,
            self._calls,
            self._tokens,
            self._cost,
            self._facts,
            self._dropped,
            self._name,
            trouble,
        )

    def _fail(self, why: str) -> None:
        self._failure = why
        self._breaker.failed()

    def _forget_old(self) -> None:
        while self._asked and self._asked[0] <= self._clock.monotonic() - _HOUR:
            self._asked.popleft()


def lend(
    model: HostModel | None, settings: PluginSettings, clock: Clock, notify_once: NotifyOnce
) -> LentModel | None:
    """Return a host's model within its budget; None where there is none, or the settings use none."""
    if model is None or settings.disabled or settings.host_model.enabled is False:
        return None
    return LentModel(model, settings.host_model, clock, notify_once)


def host_question(
    question: ModelQuestion, purpose: str, seconds: float, *, agent: str = "", model: str = ""
) -> HostQuestion:
    """Return the relayer's question as a host is asked it."""
    parts = {role: [one.text for one in question.messages if one.role == role] for role in ("system", "user")}
    return HostQuestion(
        system="\n\n".join(parts["system"]),
        prompt="\n\n".join(parts["user"]),
        purpose=purpose,
        seconds=seconds,
        max_tokens=question.max_tokens,
        effort=question.effort,
        agent=agent,
        model=model,
    )


def given_answer(question: ModelQuestion, answer: HostAnswer) -> GivenAnswer:
    """Return a host's answer as the relayer takes it."""
    return GivenAnswer(
        ticket=question.ticket,
        # Longer than any answer that was asked for: it will be none, and says so there.
        text=answer.text.encode("utf-8", "replace").decode()[:MAX_ANSWER_CHARS],
        model=clip(answer.model, _MAX_NAME),
        tokens=max(answer.tokens, 0),
    )


_MOST_AT_A_TIME: Final = 64
_FIRST_RETRY: Final = 2.0
_LONGEST_RETRY: Final = 300.0
# For one answer, in addition to the turns: a slow model on a small machine takes most of a minute for a long capture.
_ANSWER_SECONDS: Final = 60.0


class ModelWork:
    """Does the jobs that wait for the host's model, namespace by namespace, in the background."""

    def __init__(
        self,
        client: RelayerClient,
        lent: LentModel,
        identity_of: Callable[[NamespaceRef], Identity],
        clock: Clock,
    ) -> None:
        self._client = client
        self._lent = lent
        self._identity_of = identity_of
        self._clock = clock
        # What waits, with the time from which on it may be asked for, and how often that failed.
        self._due: dict[NamespaceRef, tuple[float, int]] = {}
        self._looked: set[NamespaceRef] = set()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def promised(self, owner: NamespaceRef) -> None:
        """Note that jobs of a namespace wait for the model."""
        self._due[owner] = (self._clock.monotonic(), 0)
        self._looked.add(owner)
        self._wake.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="memrelay-model-work")

    def look(self, owner: NamespaceRef) -> None:
        """Look once in a process's life for what an earlier one left undone in a namespace."""
        if owner not in self._looked:
            self.promised(owner)

    async def aclose(self) -> None:
        """Stop; what is not done stays promised in the log."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        while self._due:
            self._wake.clear()
            now = self._clock.monotonic()
            owner, (at, _) = min(self._due.items(), key=lambda item: item[1][0])
            pause = max(at - now, self._lent.wait())
            if pause > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._wake.wait()
                continue
            await self._attempt(owner)

    async def _attempt(self, owner: NamespaceRef) -> None:
        _, failures = self._due.pop(owner)
        pause = doubled(_FIRST_RETRY, failures, _LONGEST_RETRY)
        try:
            retry = await self._work(self._identity_of(owner))
        except RelayerRefused as error:
            # A relayer that refuses for good is not asked again.
            retry = None if error.status < 500 and error.status != 429 else pause
        except Exception:  # noqa: BLE001 - no caller waits, and the job stays in the log
            retry = pause
        if retry is not None:
            self._due.setdefault(owner, (self._clock.monotonic() + retry, failures + 1))

    async def _work(self, identity: Identity) -> float | None:
        """Do what is due in a namespace; return the seconds until the next of it is, None for nothing left."""
        settings = self._lent.settings
        request = ModelWorkRequest(turn_summaries=settings.turn_summaries)
        for _ in range(_MOST_AT_A_TIME):
            told = await self._client.model_work(identity, request)
            if told.outcome == "unusable":
                self._lent.unusable()
            self._lent.found(told.facts, told.dropped)
            question = told.question
            if question is None:
                return None if told.retry_in_ms is None else max(told.retry_in_ms / 1000, 1.0)
            asked = host_question(
                question, told.work, _ANSWER_SECONDS, agent=identity.agent, model=settings.model
            )
            request = request.model_copy(update={"job_id": told.job_id, "answer": None})
            try:
                answer = await self._lent.ask(asked)
            except HostModelUnavailable:
                # Given back, so that another gateway need not wait for it.
                await self._client.model_work(identity, request)
                return max(self._lent.wait(), _FIRST_RETRY)
            request = request.model_copy(update={"answer": given_answer(question, answer)})
        return 0.0
