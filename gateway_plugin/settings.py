"""The plugin's settings: one model, whatever host or earlier plugin the configuration was written for.

Sources, first wins: the host's configuration, then ``MEMRELAY_URL``, ``MEMRELAY_AGENT`` and ``MEMRELAY_DEFAULT_NAMESPACE``. ``MEMRELAY_DISABLE`` is no
setting but a switch: nothing can turn memory on again while it is set. Secrets of the environment are read elsewhere.
Every key of the plugins that memrelay replaces is accepted, see ``crosswalk``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    alias_generators,
)

from gateway_plugin import crosswalk
from gateway_plugin.errors import IdentityError, SettingsError, SettingsIssue
from gateway_plugin.identity import DEFAULT_NAME, Audience, NamespaceScope, named
from gateway_plugin.text.patterns import MAX_PATTERNS, compile_pattern
from relayer.wire.loopback import is_loopback
from relayer.wire.redaction import CLASSES, Action

__all__ = [
    "DEFAULT_NAMESPACE_VARIABLE",
    "DEFAULT_URL",
    "ActiveSettings",
    "CaptureSettings",
    "CaptureStrategy",
    "ColdStartSettings",
    "Format",
    "HostModelSettings",
    "NamespaceScope",
    "NamespaceSettings",
    "PluginSettings",
    "Position",
    "PromptStyle",
    "QueryMode",
    "RecallMode",
    "RecallSettings",
    "SettingsResult",
    "SourcePenalty",
    "load_settings",
    "safe_load",
]

_MAX_URL_CHARS: Final = 2048


class RecallMode(StrEnum):
    """Who chooses what is injected: the search alone, or a model that reads the conversation."""

    DIRECT = "direct"
    ACTIVE = "active"


class Position(StrEnum):
    """Where memories enter the prompt."""

    PREPEND = "prepend"
    APPEND = "append"
    SYSTEM_APPEND = "system-append"


class Format(StrEnum):
    """Whose text format the injected block has."""

    MEMRELAY = "memrelay"
    MEMORY_CORE_PLUS = "memory-core-plus"
    AUTO_RECALL = "auto-recall"
    MEMWAL = "memwal"
    ACTIVE_MEMORY = "active-memory"


class QueryMode(StrEnum):
    """How much conversation active mode reads (AM-12)."""

    MESSAGE = "message"
    RECENT = "recent"
    FULL = "full"


class PromptStyle(StrEnum):
    """How eager active mode's model is (AM-14)."""

    BALANCED = "balanced"
    STRICT = "strict"
    CONTEXTUAL = "contextual"
    RECALL_HEAVY = "recall-heavy"
    PRECISION_HEAVY = "precision-heavy"
    PREFERENCE_ONLY = "preference-only"


class CaptureStrategy(StrEnum):
    """What ends a turn for capture: the host's own event, or silence after the last output (MS-04)."""

    AGENT_END = "agent_end"
    DEBOUNCE = "debounce"


def _pattern(source: str) -> str:
    compile_pattern(source)
    return source


def _namespace(name: str) -> str:
    if any(char in "\"'`\\" or not char.isprintable() for char in name):
        raise ValueError("holds a quote, a backslash or a line break; use letters, digits, - and _")
    return name.strip()


def _url(url: str) -> str:
    if len(url) > _MAX_URL_CHARS or any(char.isspace() or not char.isprintable() for char in url):
        raise ValueError("is no URL; write https://host or http://127.0.0.1:8787")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ValueError("is no URL; write https://host or http://127.0.0.1:8787") from error
    if parts.scheme not in {"https", "http"} or not parts.hostname:
        raise ValueError("is no URL; write https://host or http://127.0.0.1:8787")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ValueError("carries credentials, a query or a fragment; write the address alone")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ValueError(
            "would travel unencrypted; use https, or http for this machine's loopback address only"
        )
    return url.rstrip("/")


def _key(key: SecretStr) -> SecretStr:
    if not re.fullmatch(r"(?:0x)?[0-9a-fA-F]{64}|[A-Za-z0-9+/_-]{43}=?", key.get_secret_value()):
        raise ValueError(
            "is no key of 32 bytes; give 64 hexadecimal digits or base64, best as ${MEMRELAY_SECRET}"
        )
    return key


def _account(account: str) -> str:
    if not re.fullmatch(r"0x[0-9a-fA-F]{10,128}", account):
        raise ValueError("is no account id; it starts with 0x and has at least 10 hexadecimal digits")
    return account


def _relative(path: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}(?:/[A-Za-z0-9_.-]{1,64}){0,7}", path) or ".." in path.split(
        "/"
    ):
        raise ValueError("is no plain relative path; use letters, digits, - _ . and /")
    return path


def _redaction(policy: dict[str, Action]) -> dict[str, Action]:
    for kind in policy:
        if kind not in CLASSES:
            near = difflib.get_close_matches(kind, CLASSES, 1, 0.4)
            raise ValueError(
                f"names no class of secrets; {f'is {near[0]} meant?' if near else 'see docs/security.md'}"
            )
    return policy


def _renamed(pairs: dict[str, str]) -> dict[str, str]:
    try:
        # Keys know the default agent as `default`: so does `keys rotate`, which prints this setting.
        whose = {
            DEFAULT_NAME if old.strip().lower() == DEFAULT_NAME else named(old, shown=True): named(
                new, shown=True
            )
            for old, new in pairs.items()
        }
    except IdentityError as error:
        raise ValueError("names an agent that has no name of its own; write { old: new }") from error
    if len({*whose.values()}) < len(pairs) or DEFAULT_NAME in whose.values():
        raise ValueError("gives two agents one name; write another new name for each")
    return whose


Pattern = Annotated[str, AfterValidator(_pattern)]
Patterns = Annotated[tuple[Pattern, ...], Field(max_length=MAX_PATTERNS)]
Name = Annotated[str, Field(min_length=1, max_length=128)]
Names = Annotated[tuple[Name, ...], Field(max_length=1000)]
RelativePath = Annotated[str, AfterValidator(_relative)]
NamespaceName = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_namespace)]
Url = Annotated[str, AfterValidator(_url)]
Secret = Annotated[SecretStr, AfterValidator(_key)]
AccountId = Annotated[str, AfterValidator(_account)]
Redaction = Annotated[dict[str, Action], AfterValidator(_redaction)]
Renamed = Annotated[dict[str, str], AfterValidator(_renamed)]


DEFAULT_URL: Final = "http://127.0.0.1:8787"
DEFAULT_NAMESPACE_VARIABLE: Final = "MEMRELAY_DEFAULT_NAMESPACE"
_OFF_WORDS: Final = {"", "0", "false", "no", "off"}


class _Settings(BaseModel):
    """Frozen, closed, spelled in camelCase by hosts and in snake_case by Python."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=alias_generators.to_camel,
        populate_by_name=True,
        protected_namespaces=(),
        hide_input_in_errors=True,
    )


class ColdStartSettings(_Settings):
    """What the first turn of a session is given (MS-01, MS-02)."""

    enabled: bool = True
    days: int = Field(2, ge=1, le=31)
    lines: int = Field(15, ge=1, le=200)


class StandingSettings(_Settings):
    """What stands in every prompt of a session: dangers, how to answer, who the person is."""

    enabled: bool = True
    max_tokens: int = Field(150, ge=50, le=2000)


class SourcePenalty(_Settings):
    """How much less a source counts (AR-19).

    ``match`` is a pattern with ``*`` and ``?`` over the source's reference (``*memory/drafts/*``), ``transcript:<path>``,
    ``kind:<kind>`` or ``trust:<trust>``.
    """

    match: str = Field(min_length=1, max_length=200)
    penalty: float = Field(0.15, ge=0, le=1)


class RecallSettings(_Settings):
    """Before a turn."""

    enabled: bool = True
    mode: RecallMode = RecallMode.DIRECT
    agents: Names = Field((), description="agents that recall; empty means all")
    allowed_chat_types: tuple[Audience, ...] = (Audience.DIRECT, Audience.GROUP, Audience.CHANNEL)
    max_results: int = Field(10, ge=1, le=100)
    min_score: float = Field(0.3, ge=0, le=1)
    min_prompt_length: int = Field(10, ge=1, le=10_000)
    max_tokens: int = Field(768, ge=1, le=32_000)
    max_query_chars: int = Field(2000, ge=40, le=20_000)
    context_turns: int = Field(0, ge=0, le=4)
    deadline_ms: int = Field(2000, ge=50, le=60_000)
    skip_patterns: Patterns = ()
    skip_triggers: Names = ("memory", "heartbeat", "cron", "subagent", "hook")
    skip_session_patterns: Patterns = ()
    position: Position = Position.APPEND
    format: Format = Format.MEMRELAY
    source_penalties: Annotated[tuple[SourcePenalty, ...], Field(max_length=16)] | None = Field(
        None, description="left out, the relayer's own: drafts, tool output and transcripts rank lower"
    )
    namespace_instruction: bool = Field(
        False, description="tell the model its namespace in the system prompt, as MemWal does"
    )
    logging: bool = Field(False, description="a line for each recall, without any text of it")
    log_queries: bool = Field(False, description="with logging: the first 80 characters of a query, too")
    cold_start: ColdStartSettings = ColdStartSettings()
    standing: StandingSettings = StandingSettings()


class CaptureSettings(_Settings):
    """After a turn; lengths are characters per message."""

    enabled: bool = True
    max_messages: int = Field(10, ge=1, le=50)
    min_length: int = Field(2, ge=1, le=2000, description="of a message; wide characters count as two")
    max_length: int = Field(
        64_000,
        ge=10,
        le=64_000,
        description="of a message; of a longer one its beginning and its end are kept",
    )
    min_turn_length: int = Field(0, ge=0, le=10_000, description="of all messages of a turn together")
    min_messages: int = Field(1, ge=1, le=10, description="with fewer new ones a turn is not kept")
    assistant_tail: int = Field(
        0,
        ge=0,
        le=64_000,
        description="keep the end of longer answers instead of leaving them out; 0 does not",
    )
    strategy: CaptureStrategy = CaptureStrategy.AGENT_END
    debounce_ms: int = Field(5000, ge=0, le=600_000)
    summary: bool = True
    store_transcript: bool = Field(
        False, description="keep the turns that leave a memory word for word at the relayer, too, sealed"
    )
    durable: bool = Field(True, description="keep captured turns in a sealed file until the relayer has them")
    redaction: Redaction = Field(
        default_factory=dict,
        description="what becomes of each class of secret: redact (default), block or allow",
    )


class NamespaceSettings(_Settings):
    """Whose memories are used; the model never chooses."""

    default: NamespaceName = Field(
        DEFAULT_NAME, description="sets the default agent's memories apart from those of another gateway"
    )
    scope: NamespaceScope = NamespaceScope.AGENT
    renamed: Renamed = Field(
        default_factory=dict,
        description="agents that go by another name here, since their keys were rotated: { old: new }",
    )


class ActiveSettings(_Settings):
    """Active mode, key by key as active-memory names them (AM-04 to AM-26)."""

    mode: Literal["escalate", "always", "off"] = "always"
    agents: Names = ()
    allowed_chat_types: tuple[Audience | Literal["explicit"], ...] = (Audience.DIRECT,)
    allowed_chat_ids: Names = ()
    denied_chat_ids: Names = ()
    query_mode: QueryMode = QueryMode.RECENT
    prompt_style: PromptStyle | None = None
    prompt_append: str = Field("", max_length=8000)
    prompt_override: str = Field("", max_length=8000)
    model: str = Field("", max_length=256)
    model_fallback: str = Field("", max_length=256)
    model_fallback_policy: Literal["default-remote", "resolved-only"] = "default-remote"
    thinking: Literal["off", "minimal", "low", "medium", "high", "xhigh", "adaptive"] = "off"
    fast_mode: bool = False
    tools_allow: Names = ("memory_search", "memory_get")
    timeout_ms: int = Field(15_000, ge=250, le=120_000)
    setup_grace_timeout_ms: int = Field(0, ge=0, le=120_000)
    max_summary_chars: int = Field(220, ge=40, le=1000)
    recent_user_turns: int = Field(2, ge=0, le=4)
    recent_assistant_turns: int = Field(1, ge=0, le=3)
    recent_user_chars: int = Field(220, ge=40, le=1000)
    recent_assistant_chars: int = Field(180, ge=40, le=1000)
    cache_ttl_ms: int = Field(15_000, ge=1000, le=120_000)
    circuit_breaker_max_timeouts: int = Field(3, ge=1, le=100)
    circuit_breaker_cooldown_ms: int = Field(60_000, ge=1000, le=3_600_000)
    logging: bool = False
    persist_transcripts: bool = False
    transcript_dir: RelativePath = "active-memory"

    @property
    def style(self) -> PromptStyle:
        """The prompt style: the one set, or the one that suits the query mode (AM-14)."""
        suited = {
            QueryMode.MESSAGE: PromptStyle.STRICT,
            QueryMode.RECENT: PromptStyle.BALANCED,
            QueryMode.FULL: PromptStyle.CONTEXTUAL,
        }
        return self.prompt_style or suited[self.query_mode]


class HostModelSettings(_Settings):
    """The host's own language model, asked for facts, summaries and reminders where the relayer has no model."""

    enabled: bool = True
    calls_per_hour: int = Field(60, ge=1, le=10_000, description="questions that it is asked at most")
    timeout_ms: int = Field(60_000, ge=1000, le=600_000, description="for one answer, beside the turns")
    turn_summaries: bool = Field(False, description="have turns summarised as well")
    model: str = Field(
        "",
        max_length=256,
        description="a model of the host's, where the host allows to name one; empty: its own choice",
    )


class PluginSettings(_Settings):
    """Everything that can be set. ``disabled`` comes from the environment alone."""

    url: Url = DEFAULT_URL
    agent: str | None = Field(None, min_length=1, max_length=128, description="the agent of every session")
    key: Secret | None = None
    account_id: AccountId | None = None
    recall: RecallSettings = RecallSettings()
    capture: CaptureSettings = CaptureSettings()
    namespace: NamespaceSettings = NamespaceSettings()
    active: ActiveSettings = ActiveSettings()
    host_model: HostModelSettings = HostModelSettings()
    disabled: bool = False

    @property
    def deadline_ms(self) -> int:
        """The time a recall may take in all: 2 s in direct mode, 15 s in active mode unless set, and its grace (AM-26)."""
        if self.recall.mode is RecallMode.ACTIVE:
            return self.active.timeout_ms + self.active.setup_grace_timeout_ms
        return self.recall.deadline_ms

    @property
    def logs_recalls(self) -> bool:
        """Whether each recall is told of: ours says it under ``recall``, active-memory under its own (AM-22)."""
        return self.recall.logging or self.active.logging


@dataclass(frozen=True, slots=True)
class SettingsResult:
    """What ``safe_load`` found: settings or an error, never both (CP-16)."""

    settings: PluginSettings | None
    error: SettingsError | None

    @property
    def success(self) -> bool:
        """Whether there are settings."""
        return self.settings is not None


def load_settings(config: object, environ: Mapping[str, str]) -> PluginSettings:
    """Read the host's configuration object and the environment.

    Args:
        config: the plugin's own object of the host's configuration; None where the host has none.
        environ: the process's environment.

    Raises:
        SettingsError: names each wrong field and its fix; no value is repeated, it could be a secret.
    """
    tree = crosswalk.translate({} if config is None else config, environ, _shape(PluginSettings))
    if "url" not in tree and environ.get("MEMRELAY_URL"):
        tree["url"] = environ["MEMRELAY_URL"]
    if "agent" not in tree and environ.get("MEMRELAY_AGENT"):
        tree["agent"] = environ["MEMRELAY_AGENT"]
    default = environ.get(DEFAULT_NAMESPACE_VARIABLE)
    namespace = tree.setdefault("namespace", {}) if default else None
    if isinstance(namespace, dict):
        namespace.setdefault("default", default)
    # An unreadable value of the switch turns memory off: whoever sets it wants silence.
    tree["disabled"] = environ.get("MEMRELAY_DISABLE", "").strip().lower() not in _OFF_WORDS
    try:
        return PluginSettings.model_validate(tree)
    except ValidationError as error:
        raise SettingsError(*(_issue(dict(detail)) for detail in error.errors(include_input=False))) from None


def safe_load(config: object, environ: Mapping[str, str]) -> SettingsResult:
    """Do what ``load_settings`` does and return the error instead of raising it."""
    try:
        return SettingsResult(load_settings(config, environ), None)
    except SettingsError as error:
        return SettingsResult(None, error)


def _shape(model: type[BaseModel]) -> crosswalk.Shape:
    shape: crosswalk.Shape = {}
    for name, info in model.model_fields.items():
        if name == "disabled":
            continue
        inner = info.annotation
        nested = isinstance(inner, type) and issubclass(inner, BaseModel)
        shape[name] = _shape(inner) if nested and isinstance(inner, type) else None
    return shape


def _issue(detail: dict[str, Any]) -> SettingsIssue:
    field = ".".join(
        alias_generators.to_camel(part) if isinstance(part, str) else str(part) for part in detail["loc"]
    )
    problem, _, fix = str(detail["msg"]).removeprefix("Value error, ").partition("; ")
    return SettingsIssue(field, problem, fix or "correct it, or leave it out for the default")
