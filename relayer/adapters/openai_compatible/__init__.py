"""Models behind the HTTP interface that OpenAI introduced and many servers speak: embeddings and chat completions."""

from relayer.adapters.openai_compatible.chat import OpenAIChat
from relayer.adapters.openai_compatible.embedder import OpenAIEmbedder, endpoint_model
from relayer.adapters.openai_compatible.endpoint import Endpoint, EndpointLimits

__all__ = ["Endpoint", "EndpointLimits", "OpenAIChat", "OpenAIEmbedder", "endpoint_model"]
