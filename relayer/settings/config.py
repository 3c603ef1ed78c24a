"""Every setting of a relayer: flags, then environment, then file; checked together, with one sentence for each mistake."""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from relayer.access.quotas import Quota
from relayer.domain.entry import check_key
from relayer.errors import ConfigurationError
from relayer.wire.keys import is_account_id
from relayer.wire.loopback import is_loopback
from relayer.wire.signing import normal_authority

_NAMES = ("bytes", "namespaces", "memories")


def read_quotas(path: Path | None) -> Mapping[str, Quota]:
    """Return the quotas of a file by account; none without one.

    Raises:
        ConfigurationError: it cannot be read, or says something else than ``["0x..."]`` with bytes, namespaces and memories.
    """
    if path is None:
        return {}
    try:
        tables = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"--quotas: {path} cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--quotas: {path} is not TOML: {error}") from error
    return {account: _quota(path, account, table) for account, table in tables.items()}


def _quota(path: Path, account: str, table: object) -> Quota:
    if not is_account_id(account) or not isinstance(table, dict):
        raise ConfigurationError(
            f'--quotas: {path} must hold tables such as ["0x..."], named by account ids of 0x and 64 lower-case hex digits'
        )
    for name, value in table.items():
        if name not in _NAMES or not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ConfigurationError(
                f"--quotas: {name} of {account[:10]}... in {path}: give {', '.join(_NAMES)} as whole numbers, 0 for no limit"
            )
    return Quota(**table)


_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_ANY = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared with, not bound to


def public_authority(url: str) -> str:
    """Return the authority of a public URL.

    Raises:
        ConfigurationError: not an http(s) URL without path, query, fragment or credentials.
    """
    parts = urlsplit(url)
    plain = (
        parts.scheme in {"http", "https"}
        and parts.netloc
        and not (parts.query or parts.fragment or parts.username)
    )
    if not plain or parts.path not in {"", "/"}:
        raise ConfigurationError(
            "--public-url must be a URL without a path, such as https://memory.example.org"
        )
    return normal_authority(parts.netloc, parts.scheme)


def accepted_authorities(host: str, port: int, *, scheme: str, public_url: str | None) -> tuple[str, ...]:
    """Return what a request may be addressed to: the bound address, loopback names if they lead here, the public URL."""
    names: list[str] = []
    if host not in _ANY:
        names.append(f"[{host}]" if ":" in host and not host.startswith("[") else host)
    if host in _ANY or is_loopback(host):
        names.extend(_LOOPBACK)
    accepted = [normal_authority(f"{name}:{port}", scheme) for name in names]
    if public_url is not None:
        accepted.insert(0, public_authority(public_url))
    return tuple(dict.fromkeys(accepted))


_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
_SCHEME = "s3://"
# Room for the longest key of ours below the prefix, within S3's 1,024 bytes.
_LONGEST_PREFIX = 512


@dataclass(frozen=True, slots=True)
class BucketAddress:
    """A bucket, and the key prefix of this deployment in it, which may be empty."""

    bucket: str
    prefix: str


def objects_directory(data: Path) -> Path:
    """Return where the objects of a data directory are: the relayer key lies beside them, not among them."""
    return data.expanduser() / "objects"


def parse_store(url: str) -> BucketAddress:
    """Parse ``s3://bucket`` or ``s3://bucket/prefix``; raises `ConfigurationError` naming what is wrong."""
    if not url.startswith(_SCHEME):
        raise ConfigurationError(
            "must be s3://BUCKET or s3://BUCKET/PREFIX; a directory is given with --data"
        )
    bucket, _, prefix = url.removeprefix(_SCHEME).partition("/")
    prefix = prefix.removesuffix("/")
    if not _BUCKET.fullmatch(bucket):
        raise ConfigurationError("the bucket's name has 3 to 63 lower-case letters, digits, dots and hyphens")
    if prefix:
        try:
            check_key(prefix)
        except ValueError as error:
            raise ConfigurationError(
                "the prefix is made of lower-case letters, digits, hyphens and underscores, in segments joined by slashes"
            ) from error
        if len(prefix) > _LONGEST_PREFIX:
            raise ConfigurationError(f"the prefix has at most {_LONGEST_PREFIX} characters")
    return BucketAddress(bucket, prefix)


def check_endpoint(url: str) -> None:
    """Raise `ConfigurationError` unless ``url`` is http(s) with a host, and without credentials or a query."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ConfigurationError("must be a URL such as https://s3.example.org or http://127.0.0.1:8333")
    if parts.username is not None:
        raise ConfigurationError(
            "must hold no credentials: give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead"
        )


PREFIX = "MEMRELAY_"
"""What the environment's name of a setting begins with."""


def _accounts(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value.strip() == "open":
        return "open"
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _check_accounts(value: object) -> object:
    parsed = _accounts(value)
    if parsed is None or parsed == "open":
        return parsed
    if not isinstance(parsed, list | tuple) or not parsed:
        raise ValueError("must be 'open' or account ids separated by commas")
    if not all(isinstance(item, str) and is_account_id(item) for item in parsed):
        raise ValueError("must be 'open' or account ids: 0x and 64 lower-case hex digits each")
    return tuple(parsed)


def _check_store(value: str) -> str:
    try:
        parse_store(value)
    except ConfigurationError as error:
        raise ValueError(str(error)) from error
    return value


def _check_endpoint(value: str) -> str:
    try:
        check_endpoint(value)
    except ConfigurationError as error:
        raise ValueError(str(error)) from error
    return value


def _check_model_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(
            "must be a URL such as https://api.example.org/v1, without /embeddings or /chat/completions"
        )
    if parts.username is not None:
        raise ValueError("must hold no credentials: give the key in the environment")
    return value.rstrip("/")


def _networks(value: object) -> object:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise ValueError("must be addresses or networks such as 10.0.0.0/8, separated by commas")  # noqa: TRY004
    try:
        return tuple(ipaddress.ip_network(str(part).strip()) for part in parts)
    except ValueError as error:
        raise ValueError("must be addresses or networks such as 10.0.0.0/8, separated by commas") from error


Accounts = Annotated[Literal["open"] | tuple[str, ...] | None, BeforeValidator(_check_accounts)]
StoreUrl = Annotated[str, AfterValidator(_check_store)]
Networks = Annotated[tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...], BeforeValidator(_networks)]
EndpointUrl = Annotated[str, AfterValidator(_check_endpoint)]
ModelUrl = Annotated[str, Field(max_length=2048), AfterValidator(_check_model_url)]
ModelName = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\s]+$")]


_SECRETS = frozenset({"relayer_key", "embeddings_api_key", "model_api_key", "metrics_token"})


class SettingsFile(PydanticBaseSettingsSource):
    """The TOML file named by ``--config``."""

    def __init__(self, settings_cls: type[BaseSettings], path: Path | None) -> None:
        super().__init__(settings_cls)
        self._values = {} if path is None else _read_file(path, settings_cls)

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return one value."""
        del field
        return self._values.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        """Return all values."""
        return self._values


def _read_file(path: Path, settings_cls: type[BaseSettings]) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"--config: {path} cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--config: {path} is not TOML: {error}") from error
    known = set(settings_cls.model_fields) - {"config", *_SECRETS}
    renamed = {name.replace("-", "_"): value for name, value in values.items()}
    for name in renamed:
        if name in _SECRETS:
            raise ConfigurationError(
                f"{name} in {path}: a key does not belong in this file; use {PREFIX}{name.upper()}_FILE"
            )
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}"
            raise ConfigurationError(f"{name} in {path} is not a setting: {hint}")
    return renamed


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
