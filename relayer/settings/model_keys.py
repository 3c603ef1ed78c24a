"""The keys of model endpoints and of the metrics: from the environment or a file of the operator's, and from nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import SecretStr

from relayer.errors import ConfigurationError
from relayer.settings.config import RelayerSettings

_SHORTEST_TOKEN = 16

EndpointName = Literal["embeddings", "former_embeddings", "model", "fallback_model"]
"""An endpoint, as the names of its settings begin."""


def find_model_key(settings: RelayerSettings, which: EndpointName) -> str:
    """Return the key of an endpoint; empty when there is none, which is right for a server of one's own.

    Former embeddings from the same URL take the same key, unless they have one of their own; so does the fallback model.

    Raises:
        ConfigurationError: the file cannot be read, or what was given cannot be a key.
    """
    if which == "former_embeddings" and settings.former_embeddings_api_key_file is None:
        return find_model_key(settings, "embeddings") if settings.former_embeddings_url is None else ""
    if which == "fallback_model" and settings.fallback_model_api_key_file is None:
        return find_model_key(settings, "model") if settings.fallback_model_url is None else ""
    name = f"MEMRELAY_{which.upper()}_API_KEY"
    given, file = {
        "embeddings": (settings.embeddings_api_key, settings.embeddings_api_key_file),
        "former_embeddings": (None, settings.former_embeddings_api_key_file),
        "fallback_model": (None, settings.fallback_model_api_key_file),
        "model": (settings.model_api_key, settings.model_api_key_file),
    }[which]
    return _one_word(name, given, file)


def find_metrics_token(settings: RelayerSettings) -> str:
    """Return what a reader of the metrics has to show; empty when there is none.

    Raises:
        ConfigurationError: the file cannot be read, or what was given is too short to be kept secret.
    """
    name = "MEMRELAY_METRICS_TOKEN"
    token = _one_word(name, settings.metrics_token, settings.metrics_token_file)
    if token and len(token) < _SHORTEST_TOKEN:
        raise ConfigurationError(
            f"{name}: has fewer than {_SHORTEST_TOKEN} characters; make one with openssl rand -hex 32"
        )
    return token


def _one_word(name: str, given: SecretStr | None, file: Path | None) -> str:
    key = "" if given is None else given.get_secret_value()
    if file is not None:
        name = f"{name}_FILE"
        try:
            key = file.expanduser().read_text("ascii")
        except OSError as error:
            raise ConfigurationError(f"{name}: {file} cannot be read ({error.strerror})") from error
        except UnicodeDecodeError:
            raise ConfigurationError(f"{name}: {file} holds no key: a key is printable ASCII") from None
    key = key.strip()
    if (
        (file is not None and not key)
        or not key.isascii()
        or any(not char.isprintable() or char == " " for char in key)
    ):
        raise ConfigurationError(f"{name}: holds no key: a key is one word of printable ASCII")
    return key
