"""What every use case gets handed: ports, keys and the open namespaces."""

from __future__ import annotations

from dataclasses import dataclass

from relayer.crypto.relayer_keys import RelayerKeys
from relayer.extraction.llm.extractor import LlmExtractor
from relayer.extraction.turns import Extractor
from relayer.log.log_ports import LogPorts
from relayer.ports import ChatModel, Clock, Embedder, Randomness
from relayer.services.job_queue import JobQueue
from relayer.services.model_budget import ModelBudget
from relayer.services.open_namespaces import OpenNamespaces

__all__ = ["ChatWork", "Context", "FactWork"]


@dataclass(frozen=True, slots=True)
class ChatWork:
    """A language model for questions about memories; ``seconds`` bounds one call of it."""

    model: ChatModel
    budget: ModelBudget
    seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class FactWork:
    """What it takes to have facts extracted by a language model; ``seconds`` bounds one call of it."""

    extractor: LlmExtractor
    queue: JobQueue
    budget: ModelBudget
    seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Context:
    """One per relayer process, made by the composition root; ``redacts`` takes secrets out of what is stored."""

    ports: LogPorts
    embedder: Embedder
    extractor: Extractor
    namespaces: OpenNamespaces
    facts: FactWork | None = None
    chat: ChatWork | None = None
    redacts: bool = True

    @property
    def clock(self) -> Clock:
        """Local time."""
        return self.ports.clock

    @property
    def randomness(self) -> Randomness:
        """Random bytes."""
        return self.ports.randomness

    @property
    def keys(self) -> RelayerKeys:
        """The relayer's own keys."""
        return self.ports.keys
