"""The models of the settings: the embedder, the one before it, and the language models; and what reads captures.

A model behind an endpoint that is away is no reason not to start: it may come later, and readiness shows it until then.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Protocol

from relayer.adapters.local_embedder import Kind, LocalEmbedder, is_installed
from relayer.adapters.openai_compatible import Endpoint, EndpointLimits, OpenAIChat, OpenAIEmbedder
from relayer.errors import EmbedderUnavailable, ModelUnavailable
from relayer.extraction.llm.extractor import LlmExtractor
from relayer.extraction.llm.summariser import Summariser
from relayer.http.health import Readiness
from relayer.lib.job_queue import DailyLimits, JobLimits, JobQueue, ModelBudget
from relayer.lib.work import EmbeddingShares, ShareLimits
from relayer.namespaces.context import ChatWork, FactWork
from relayer.ports import Clock, Embedder, Randomness
from relayer.settings.config import RelayerSettings
from relayer.settings.keys import EndpointName, find_model_key
from relayer.telemetry import log

_EMBEDDINGS_SECONDS = 20.0


class _Remote(Protocol):
    """What every model behind an endpoint can do."""

    @property
    def trouble(self) -> str: ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Models:
    """Makes the models that settings name.

    Attributes:
        settings: checked.
        clock: for time and pauses.
        randomness: for jitter.
        readiness: shows which endpoints are away.
        stack: closes what was made.
    """

    settings: RelayerSettings
    clock: Clock
    randomness: Randomness
    readiness: Readiness
    stack: AsyncExitStack

    async def embedder(self) -> Embedder:
        """Make the embedder; one that is away may come later, if its dimension is known.

        Raises:
            ConfigurationError: the local model is missing, or the endpoint is not as the settings say.
        """
        settings = self.settings
        if settings.embedder != "openai":
            return await self._local(settings.embedder)
        endpoint = self._endpoint("embeddings", settings.embeddings_url, _EMBEDDINGS_SECONDS)
        remote = OpenAIEmbedder(endpoint, settings.embeddings_model or "", settings.embeddings_dimension)
        await self._start("embeddings", remote)
        return remote

    def former(self, embedder: Embedder) -> Embedder | None:
        """Return an installed local model other than ``embedder``'s, for namespaces that it embedded before.

        Its weights are loaded when the first such namespace is opened.
        """
        for kind in ("multilingual", "local"):
            if is_installed(kind):
                other = LocalEmbedder(kind)
                if other.model != embedder.model:
                    self.stack.push_async_callback(other.close)
                    return other
        return None

    def shared(self, embedder: Embedder) -> Embedder:
        """Have accounts share an embedder fairly; an endpoint does as much at once as the settings say."""
        if self.settings.embedder != "openai":
            return EmbeddingShares(embedder)
        at_once = self.settings.model_at_once
        limits = ShareLimits(at_once, of_account=max(1, at_once // 2), one_by_one=False)
        return EmbeddingShares(embedder, limits)

    async def chat(self) -> ChatWork | None:
        """Make the language model, and the one that is asked when it is away, as far as the settings name them.

        Raises:
            ConfigurationError: an endpoint is not as the settings say.
        """
        settings = self.settings
        if settings.model_url is None:
            return None
        seconds = settings.model_timeout
        chat = OpenAIChat(self._endpoint("model", settings.model_url, seconds), settings.model_name or "")
        await self._start("model", chat)
        daily = DailyLimits(settings.model_calls_per_day, settings.model_tokens_per_day)
        return ChatWork(chat, ModelBudget(daily), seconds, await self._fallback())

    async def _fallback(self) -> OpenAIChat | None:
        settings = self.settings
        if settings.fallback_model_name is None:
            return None
        url = settings.fallback_model_url or settings.model_url
        endpoint = self._endpoint("fallback_model", url, settings.model_timeout)
        chat = OpenAIChat(endpoint, settings.fallback_model_name, setting="fallback-model")
        await self._start("fallback_model", chat)
        return chat

    async def _local(self, kind: Kind) -> Embedder:
        local = LocalEmbedder(kind)
        self.stack.push_async_callback(local.close)
        await local.load()
        return local

    def _endpoint(self, name: EndpointName, url: str | None, seconds: float) -> Endpoint:
        limits = EndpointLimits(total=seconds, at_once=self.settings.model_at_once)
        key = find_model_key(self.settings, name)
        return Endpoint(url or "", self.clock, self.randomness, key, limits)

    async def _start(self, name: EndpointName, remote: _Remote) -> None:
        self.stack.push_async_callback(remote.close)
        self.readiness.watch(f"{name}_endpoint", lambda: remote.trouble)
        try:
            await remote.start()
        except (EmbedderUnavailable, ModelUnavailable) as error:
            log.warning(f"{name}_endpoint_away", what=str(error))


def fact_work(settings: RelayerSettings, clock: Clock, chat: ChatWork | None) -> FactWork | None:
    """Make what reads captures with the model, as far as that was asked for; it shares the model's budget."""
    extracts, summarises = settings.extractor == "llm", settings.session_summaries == "on"
    if chat is None or not (extracts or summarises):
        return None
    jobs = JobLimits(at_once=settings.model_at_once, takeover_ms=int(settings.job_takeover * 1000))
    return FactWork(
        extractor=LlmExtractor(chat.model, summaries=settings.turn_summaries),
        queue=JobQueue(clock, jobs),
        budget=chat.budget,
        seconds=chat.seconds,
        extracts=extracts,
        summariser=Summariser(chat.model) if summarises else None,
    )
