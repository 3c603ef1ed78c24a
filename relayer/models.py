"""The models that the settings name: the embedder, the previous embedder, and the language models.

`Models` creates them, and `fact_work` creates the extraction of facts from captures. A relayer starts even if the endpoint
of a model is unavailable: it may become available later, and readiness reports it until then.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Protocol

from relayer.adapters.local_embedder import LocalEmbedder, is_installed
from relayer.adapters.openai_compatible import Endpoint, EndpointLimits, OpenAIChat, OpenAIEmbedder
from relayer.errors import EmbedderUnavailable, ModelUnavailable
from relayer.extraction.llm.extractor import LlmExtractor
from relayer.extraction.llm.summariser import Summariser
from relayer.http.health import Readiness
from relayer.lib.job_queue import DailyLimits, JobLimits, JobQueue, ModelBudget
from relayer.lib.work import EmbeddingLimits, FairEmbedder
from relayer.namespaces.context import ChatWork, FactWork
from relayer.ports import Clock, Embedder, Randomness
from relayer.settings.config import RelayerSettings
from relayer.settings.keys import EndpointName, find_model_key
from relayer.telemetry import log

_EMBEDDINGS_SECONDS = 20.0


class _Remote(Protocol):
    """The common interface of all models behind an endpoint."""

    @property
    def trouble(self) -> str: ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Models:
    """Creates the models that the settings name."""

    settings: RelayerSettings
    clock: Clock
    randomness: Randomness
    readiness: Readiness
    stack: AsyncExitStack

    async def embedder(self) -> Embedder:
        """Create the embedder; its endpoint may be unavailable now if the settings give its dimension.

        Raises:
            ConfigurationError: the local model is missing, or the endpoint does not match the settings.
        """
        settings = self.settings
        if settings.embedder != "openai":
            local = LocalEmbedder(settings.embedder)
            self.stack.push_async_callback(local.close)
            await local.load()
            return local
        endpoint = self._endpoint("embeddings", settings.embeddings_url, _EMBEDDINGS_SECONDS)
        remote = OpenAIEmbedder(endpoint, settings.embeddings_model or "", settings.embeddings_dimension)
        await self._start("embeddings", remote)
        return remote

    def former(self, embedder: Embedder) -> Embedder | None:
        """Return an installed local model other than that of ``embedder``, for namespaces with vectors of it; else None.

        Its weights are loaded when the first such namespace is opened.
        """
        for kind in ("multilingual", "local"):
            if is_installed(kind):
                other = LocalEmbedder(kind)
                if other.model != embedder.model:
                    self.stack.push_async_callback(other.close)
                    return other
        return None

    def shared(self, embedder: Embedder) -> FairEmbedder:
        """Return an embedder that accounts share fairly; the settings limit the concurrent calls of an endpoint."""
        if self.settings.embedder != "openai":
            return FairEmbedder(embedder)
        at_once = self.settings.model_at_once
        limits = EmbeddingLimits(at_once, of_account=max(1, at_once // 2), one_by_one=False)
        return FairEmbedder(embedder, limits)

    async def chat(self) -> ChatWork | None:
        """Create the language model and its fallback, as far as the settings name them; None without a language model.

        Raises:
            ConfigurationError: an endpoint does not match the settings.
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
    """Create the extraction of facts and summaries by the language model, if the settings ask for one of them; else None.

    It shares the model's budget.
    """
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


def reader(embedder: Embedder) -> LocalEmbedder | None:
    """Return the embedder if it is also a reader of relations and of messages, and a cross-encoder, which share its layers."""
    return embedder if isinstance(embedder, LocalEmbedder) and embedder.reads else None
