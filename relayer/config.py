"""Settings of a relayer: command line over environment over file over default, each checked once, at the start."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from relayer.errors import ConfigurationError
from relayer.http.authorities import public_authority
from relayer.services.quotas import Quota
from relayer.settings.file import SettingsFile
from relayer.settings.store_address import BucketAddress, parse_store
from relayer.settings.values import PREFIX, Accounts, EndpointUrl, ModelName, ModelUrl, Networks, StoreUrl
from relayer.wire.loopback import is_loopback

__all__ = ["RelayerSettings", "load_settings"]

# Seconds: twice as long as an answer of the manifest is trusted (`relayer.log.log_ports.TRUST_MS`).
_SHORTEST_COLLECT_AFTER = 1200
# A gateway has at most a hundred; a building may be behind one address.
_PER_ADDRESS = 256
# The gateway's root secret has no business here: a relayer that could read it could read every memory at rest.
FORBIDDEN = ("MEMRELAY_SECRET", "MEMRELAY_AGENT_SECRET")


def _default_data() -> Path:
    home = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(home) / "memrelay"


class RelayerSettings(BaseSettings):
    """Every setting of ``memrelay serve``; each is also ``MEMRELAY_`` + its name, and a key of the file."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        extra="forbid",
        protected_namespaces=(),
        frozen=True,
        hide_input_in_errors=True,
        env_ignore_empty=True,
    )

    host: Annotated[str, Field(min_length=1, max_length=255)] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8787
    data: Path = Field(default_factory=_default_data)
    store: StoreUrl | None = None
    endpoint_url: EndpointUrl | None = None
    region: Annotated[str, Field(pattern=r"^[a-zA-Z0-9-]{1,64}$")] | None = None
    s3_client: Literal["direct", "boto3"] | None = None
    probe: Literal["always", "cached", "off"] = "cached"
    single_relayer: bool = False
    accounts: Annotated[Accounts, NoDecode] = None
    trusted_proxy: Annotated[Networks, NoDecode] = ()
    quota_bytes: Annotated[int, Field(ge=0)] = 4 * 1024**3
    quota_namespaces: Annotated[int, Field(ge=0)] = 2_000
    quota_memories: Annotated[int, Field(ge=0)] = 1_000_000
    quotas: Path | None = None
    public_url: str | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    rate_limits: Literal["on", "off"] = "on"
    connections: Annotated[int, Field(ge=8, le=65_536)] = 1024
    connections_per_address: Annotated[int, Field(ge=0, le=65_536)] | None = None
    answer_timeout: Annotated[float, Field(ge=1, le=600)] = 30.0
    redaction: Literal["on", "off"] = "on"
    compact_entries: Annotated[int, Field(ge=1, le=4096)] = 64
    collect_after: Annotated[float, Field(ge=0, le=30 * 86_400)] = 3600.0
    collect_idle_every: Annotated[float, Field(ge=0, le=365 * 86_400)] = 86_400.0
    commit_check: Literal["recent", "always"] = "recent"
    metrics_token: SecretStr | None = None
    metrics_token_file: Path | None = None
    log_format: Literal["auto", "console", "json"] = "auto"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    ready_file: Path | None = None
    config: Path | None = None
    relayer_key: SecretStr | None = None
    relayer_key_file: Path | None = None
    embedder: Literal["local", "openai"] = "local"
    embeddings_url: ModelUrl | None = None
    embeddings_model: ModelName | None = None
    embeddings_dimension: Annotated[int, Field(ge=2, le=16_384)] | None = None
    embeddings_api_key: SecretStr | None = None
    embeddings_api_key_file: Path | None = None
    former_embedder: Literal["local", "openai"] | None = None
    former_embeddings_url: ModelUrl | None = None
    former_embeddings_model: ModelName | None = None
    former_embeddings_dimension: Annotated[int, Field(ge=2, le=16_384)] | None = None
    former_embeddings_api_key_file: Path | None = None
    extractor: Literal["statements", "llm"] = "statements"
    model_url: ModelUrl | None = None
    model_name: ModelName | None = None
    model_api_key: SecretStr | None = None
    model_api_key_file: Path | None = None
    fallback_model_url: ModelUrl | None = None
    fallback_model_name: ModelName | None = None
    fallback_model_api_key_file: Path | None = None
    model_timeout: Annotated[float, Field(ge=1, le=600)] = 60.0
    model_at_once: Annotated[int, Field(ge=1, le=64)] = 4
    model_calls_per_day: Annotated[int, Field(ge=0)] = 5_000
    model_tokens_per_day: Annotated[int, Field(ge=0)] = 10_000_000
    turn_summaries: bool = False
    session_summaries: Literal["on", "off"] = "on"
    cache_bytes: Annotated[int, Field(ge=1024 * 1024)] = 512 * 1024 * 1024
    forget_inactive_days: Annotated[int, Field(ge=0, le=36_500)] = 0
    job_takeover: Annotated[float, Field(ge=0, le=86_400)] = 90.0
    plain_http_models: bool = False

    @model_validator(mode="after")
    def _fits_together(self) -> RelayerSettings:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("--tls-cert and --tls-key: give both or neither")
        if self.relayer_key is not None and self.relayer_key_file is not None:
            raise ValueError("MEMRELAY_RELAYER_KEY and MEMRELAY_RELAYER_KEY_FILE: give one of them")
        self._check_models()
        self._check_former()
        if self.commit_check == "recent" and self.collect_after < _SHORTEST_COLLECT_AFTER:
            raise ValueError(
                f"--collect-after: below {_SHORTEST_COLLECT_AFTER} s answers of the manifest could still be trusted, and what is "
                "acknowledged by them would be lost; give --commit-check always as well, once every relayer of this store runs "
                "with it or is stopped"
            )
        if self.store is None:
            given = [
                name for name in ("endpoint_url", "region", "s3_client") if getattr(self, name) is not None
            ]
            if given:
                raise ValueError(f"--{given[0].replace('_', '-')}: only with --store s3://BUCKET")
        if self.public_url is not None:
            try:
                public_authority(self.public_url)
            except ConfigurationError as error:
                raise ValueError(str(error)) from error
        if not is_loopback(self.host):
            self._check_public()
        elif self.public_url is not None and self.accounts is None:
            # Bound to loopback behind a proxy is the usual way to be public.
            raise ValueError(
                "--accounts: with --public-url say who is served: account ids, or 'open' for everybody"
            )
        return self

    def _check_models(self) -> None:
        """Each model endpoint is given whole, or not at all."""
        for wanted, choice, names in (
            (self.embedder == "openai", "--embedder openai", ("embeddings_url", "embeddings_model")),
            (self.extractor == "llm", "--extractor llm", ("model_url", "model_name")),
        ):
            for name in names:
                if wanted and getattr(self, name) is None:
                    raise ValueError(f"--{name.replace('_', '-')}: {choice} needs it")
                # A language model is of use without extraction, too: it answers active recalls and questions.
                if not wanted and name.startswith("embeddings") and getattr(self, name) is not None:
                    raise ValueError(f"--{name.replace('_', '-')}: only with {choice}")
        if (self.model_url is None) != (self.model_name is None):
            missing = "model-url" if self.model_url is None else "model-name"
            raise ValueError(f"--{missing}: --model-url and --model-name belong together")
        self._check_fallback()
        if self.embedder != "openai" and self.embeddings_dimension is not None:
            raise ValueError("--embeddings-dimension: only with --embedder openai")
        for name in ("embeddings_api_key", "model_api_key", "metrics_token"):
            if getattr(self, name) is not None and getattr(self, f"{name}_file") is not None:
                raise ValueError(
                    f"MEMRELAY_{name.upper()} and MEMRELAY_{name.upper()}_FILE: give one of them"
                )
        self._check_model_urls()

    def _check_fallback(self) -> None:
        if self.fallback_model_name is None:
            for name in ("fallback_model_url", "fallback_model_api_key_file"):
                if getattr(self, name) is not None:
                    raise ValueError(f"--{name.replace('_', '-')}: only with --fallback-model-name")
        elif self.model_url is None:
            raise ValueError("--fallback-model-name: only with --model-url and --model-name")

    def _check_former(self) -> None:
        """The embedding model before this one is given whole, and is another one."""
        prefix = "former_embeddings_"
        given = [
            name
            for name in ("url", "model", "dimension", "api_key_file")
            if getattr(self, prefix + name) is not None
        ]
        if self.former_embedder != "openai" and given:
            name = given[0].replace("_", "-")
            raise ValueError(f"--former-embeddings-{name}: only with --former-embedder openai")
        if self.former_embedder == "openai":
            if self.former_embeddings_model is None:
                raise ValueError("--former-embeddings-model: --former-embedder openai needs it")
            if self.embedder == "local" and self.former_embeddings_url is None:
                raise ValueError("--former-embeddings-url: --former-embedder openai needs it")
        if self.former_embedder == "local" and self.embedder == "local":
            raise ValueError(
                "--former-embedder: is the model of --embedder; give the one that was used before, or none"
            )

    def _check_model_urls(self) -> None:
        for name in ("embeddings_url", "former_embeddings_url", "model_url", "fallback_model_url"):
            url = getattr(self, name)
            parts = urlsplit(url or "https://")
            if (
                parts.scheme == "http"
                and not is_loopback(parts.hostname or "")
                and not self.plain_http_models
            ):
                raise ValueError(
                    f"--{name.replace('_', '-')}: texts and keys would travel in the clear; give an https URL, or "
                    "--plain-http-models for a network of your own"
                )

    def _check_public(self) -> None:
        if self.accounts is None:
            raise ValueError(
                f"--accounts: off loopback ({self.host}) say who is served: account ids, or 'open' for everybody"
            )
        proxied = self.public_url is not None and self.public_url.startswith("https://")
        if self.tls_cert is None and not proxied:
            raise ValueError(
                f"--tls-cert/--tls-key: off loopback ({self.host}) keys must not travel in the clear; give both, "
                "or --public-url https://... of the proxy in front"
            )

    @property
    def bucket(self) -> BucketAddress | None:
        """Where the objects are; None means in the data directory."""
        return None if self.store is None else parse_store(self.store)

    @property
    def served(self) -> frozenset[str] | None:
        """The ids of the accounts that are served; None means all."""
        return None if self.accounts is None or self.accounts == "open" else frozenset(self.accounts)

    @property
    def behind_proxy(self) -> bool:
        """Whether connections come from a proxy that others reach, and tell nothing about who is behind it."""
        return (
            self.public_url is not None
            and self.tls_cert is None
            and not is_loopback(urlsplit(self.public_url).hostname or "")
        )

    @property
    def most_per_address(self) -> int:
        """How many connections a peer address may have; 0: any number, as from this machine and from a proxy."""
        if self.connections_per_address is not None:
            return self.connections_per_address
        return 0 if self.behind_proxy or is_loopback(self.host) else _PER_ADDRESS

    @property
    def quota(self) -> Quota:
        """What every account may keep."""
        return Quota(self.quota_bytes, self.quota_namespaces, self.quota_memories)

    @property
    def scheme(self) -> Literal["http", "https"]:
        """What the relayer itself speaks."""
        return "http" if self.tls_cert is None else "https"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order the sources: command line, environment, file."""
        del dotenv_settings, file_secret_settings
        path = init_settings().get("config") or env_settings().get("config")
        return (
            init_settings,
            env_settings,
            SettingsFile(settings_cls, None if path is None else Path(str(path))),
        )


def load_settings(flags: Mapping[str, object], environment: Mapping[str, str]) -> RelayerSettings:
    """Load the settings of this process.

    Args:
        flags: what the command line said; None means nothing.
        environment: looked at for what must not be there; the settings read the process's own.

    Raises:
        ConfigurationError: in one line, the setting and the fix.
    """
    for name in FORBIDDEN:
        if environment.get(name):
            raise ConfigurationError(
                f"{name} is in the relayer's environment: it belongs to gateways only, because a relayer that holds "
                "it can read everything at rest. Start the relayer without it"
            )
    given: dict[str, Any] = {name: value for name, value in flags.items() if value is not None}
    try:
        return RelayerSettings(**given)
    except ValidationError as error:
        raise ConfigurationError(_sentence(error)) from None


def _sentence(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    if not first["loc"]:
        return message
    name = str(first["loc"][0])
    return f"--{name.replace('_', '-')} ({PREFIX}{name.upper()}): {message}"
