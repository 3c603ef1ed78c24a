"""The plugin's settings: one pydantic model for the configurations of all hosts and of the plugins that memrelay replaces.

`load_settings` reads the host's configuration object, and for settings that it does not contain the environment variables
``MEMRELAY_URL``, ``MEMRELAY_AGENT``, ``MEMRELAY_DEFAULT_NAMESPACE`` and ``MEMRELAY_PROFILE``. ``MEMRELAY_DISABLE`` is a switch: while it is
set, no setting turns memory on. Secrets in the environment are read by `gateway_plugin.keys.gateway_secret`. All keys of the replaced
plugins are accepted and translated by `gateway_plugin.settings.crosswalk`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from cronsim import CronSim, CronSimError
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    alias_generators,
)

from gateway_plugin.errors import IdentityError, SettingsError, SettingsIssue
from gateway_plugin.keys.identity import DEFAULT_NAME, NamespaceScope, TurnAudience, named, platform_id
from gateway_plugin.settings import crosswalk
from gateway_plugin.text.patterns import MAX_PATTERNS, compile_pattern
from relayer.wire.calls import is_loopback
from relayer.wire.redaction import CLASSES, Action

_MAX_URL_CHARS: Final = 2048
MAX_OWNERS: Final = 16
"""Maximum number of ids of the owner."""


class RecallMode(StrEnum):
    """The recall mode: the search alone selects the memories, or a model that reads the conversation does."""

    DIRECT = "direct"
    ACTIVE = "active"


class PromptPosition(StrEnum):
    """The position of memories in the prompt."""

    PREPEND = "prepend"
    APPEND = "append"
    SYSTEM_APPEND = "system-append"


class Format(StrEnum):
    """The text format of the injected block: memrelay's, or that of another plugin."""

    MEMRELAY = "memrelay"
    MEMORY_CORE_PLUS = "memory-core-plus"
    AUTO_RECALL = "auto-recall"
    MEMWAL = "memwal"
    ACTIVE_MEMORY = "active-memory"


class QueryMode(StrEnum):
    """The part of the conversation that active mode's model reads (AM-12)."""

    MESSAGE = "message"
    RECENT = "recent"
    FULL = "full"


class PromptStyle(StrEnum):
    """The instructions of active mode's model, which make it recall more or less readily (AM-14)."""

    BALANCED = "balanced"
    STRICT = "strict"
    CONTEXTUAL = "contextual"
    RECALL_HEAVY = "recall-heavy"
    PRECISION_HEAVY = "precision-heavy"
    PREFERENCE_ONLY = "preference-only"


class CaptureRules(StrEnum):
    """The rules for messages that are not captured: memrelay's, or also those of memory-core-plus (CP-36) or MemWal (MW-13)."""

    MEMRELAY = "memrelay"
    MEMORY_CORE_PLUS = "memory-core-plus"
    MEMWAL = "memwal"


class DailyLogFormat(StrEnum):
    """The layout of the daily notes: memory-core's, or memsearch's with headings for sessions and times (MS-22)."""

    MEMORY_CORE = "memory-core"
    MEMSEARCH = "memsearch"


class CaptureStrategy(StrEnum):
    """The event that ends a turn for capture: the host's own event, or silence after the last output (MS-04)."""

    AGENT_END = "agent_end"
    DEBOUNCE = "debounce"


def _pattern(source: str) -> str:
    compile_pattern(source)
    return source


def _namespace(name: str) -> str:
    if any(char in "\"'`\\" or not char.isprintable() for char in name):
        raise ValueError("contains a quote, a backslash or a line break; use letters, digits, - and _")
    return name.strip()


def _url(url: str) -> str:
    if len(url) > _MAX_URL_CHARS or any(char.isspace() or not char.isprintable() for char in url):
        raise ValueError("is not a URL; use https://host or http://127.0.0.1:8787")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ValueError("is not a URL; use https://host or http://127.0.0.1:8787") from error
    if parts.scheme not in {"https", "http"} or not parts.hostname:
        raise ValueError("is not a URL; use https://host or http://127.0.0.1:8787")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ValueError("contains credentials, a query or a fragment; give only the address")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ValueError("would be unencrypted; use https, or http only for this machine's loopback address")
    return url.rstrip("/")


def _key(key: SecretStr) -> SecretStr:
    if not re.fullmatch(r"(?:0x)?[0-9a-fA-F]{64}|[A-Za-z0-9+/_-]{43}=?", key.get_secret_value()):
        raise ValueError(
            "is not a key of 32 bytes; give 64 hexadecimal digits or base64, preferably as ${MEMRELAY_SECRET}"
        )
    return key


def _account(account: str) -> str:
    if not re.fullmatch(r"0x[0-9a-fA-F]{10,128}", account):
        raise ValueError("is not an account id; it starts with 0x and has at least 10 hexadecimal digits")
    return account


def _relative(path: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}(?:/[A-Za-z0-9_.-]{1,64}){0,7}", path) or ".." in path.split(
        "/"
    ):
        raise ValueError("is not a plain relative path; use letters, digits, - _ . and /")
    return path


def _redaction(policy: dict[str, Action]) -> dict[str, Action]:
    for kind in policy:
        if kind not in CLASSES:
            near = difflib.get_close_matches(kind, CLASSES, 1, 0.4)
            raise ValueError(
                f"is not a class of secrets; {f'is {near[0]} meant?' if near else 'see docs/security.md'}"
            )
    return policy


def _renamed(pairs: dict[str, str]) -> dict[str, str]:
    try:
        # The default agent's keys are derived for the name `default`, and `keys rotate` prints this setting with that name.
        whose = {
            DEFAULT_NAME if old.strip().lower() == DEFAULT_NAME else named(old, shown=True): named(
                new, shown=True
            )
            for old, new in pairs.items()
        }
    except IdentityError as error:
        raise ValueError("contains an agent without its own name; use { old: new }") from error
    if len({*whose.values()}) < len(pairs) or DEFAULT_NAME in whose.values():
        raise ValueError("gives two agents the same name; use a different new name for each")
    return whose


def _owners(given: tuple[str, ...]) -> tuple[str, ...]:
    people = [one.partition(":") for one in given]
    if not all(platform.strip() and name.strip() for platform, _, name in people):
        raise ValueError("is not a platform and id; use telegram:777, as the host's log shows the sender")
    return tuple(dict.fromkeys(platform_id(platform, name) for platform, _, name in people))


def _cron(line: str) -> str:
    next_time(line, 0.0)
    return line


Pattern = Annotated[str, AfterValidator(_pattern)]
Patterns = Annotated[tuple[Pattern, ...], Field(max_length=MAX_PATTERNS)]
Name = Annotated[str, Field(min_length=1, max_length=128)]
Names = Annotated[tuple[Name, ...], Field(max_length=1000)]
RelativePath = Annotated[str, AfterValidator(_relative)]
NamespaceName = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_namespace)]
CronLine = Annotated[str, Field(max_length=100), AfterValidator(_cron)]
Url = Annotated[str, AfterValidator(_url)]
Secret = Annotated[SecretStr, AfterValidator(_key)]
AccountId = Annotated[str, AfterValidator(_account)]
# Hosts have a level "max", which the protocol does not have; "xhigh" is the protocol's highest.
Thinking = Annotated[
    Literal["off", "minimal", "low", "medium", "high", "xhigh", "adaptive", "max"],
    AfterValidator(lambda effort: "xhigh" if effort == "max" else effort),
]
Redaction = Annotated[dict[str, Action], AfterValidator(_redaction)]
Owners = Annotated[tuple[Name, ...], Field(max_length=MAX_OWNERS), AfterValidator(_owners)]
Renamed = Annotated[dict[str, str], AfterValidator(_renamed)]


DEFAULT_URL: Final = "http://127.0.0.1:8787"
UNSETTABLE: Final = frozenset({"disabled", "unused"})
"""Fields of `PluginSettings` that a configuration cannot set."""
DEFAULT_NAMESPACE_VARIABLE: Final = "MEMRELAY_DEFAULT_NAMESPACE"
PROFILE_VARIABLE: Final = "MEMRELAY_PROFILE"
# The second variable is set by memsearch for the processes that it starts (MS-27).
_SWITCHES: Final = ("MEMRELAY_DISABLE", "MEMSEARCH_DISABLE")
_OFF_WORDS: Final = {"", "0", "false", "no", "off"}


_PREFIX: Final = "MEMRELAY_"
_VARIABLES: Final = (
    "AGENT", "AGENT_CERTIFICATE", "AGENT_SECRET", "DEFAULT_NAMESPACE", "DEV_URL", "DISABLE", "GATEWAY_COMMAND", "MCP_DEBUG",
    "MCP_NAMESPACE", "MCP_TOKEN", "OPENCLAW_CONFIG", "OPENCLAW_FILES", "OPENCLAW_TEMPLATES", "PROD_URL", "PROFILE", "RELAYER_IDENTITY", "SECRET", "SECRET_FILE",
    "STAGING_URL", "URL",
)  # fmt: skip
"""The environment variables that a gateway reads, without their prefix."""
_MAY_BE_EMPTY: Final = frozenset(
    {"DISABLE", "MCP_DEBUG", "OPENCLAW_CONFIG", "OPENCLAW_FILES", "OPENCLAW_TEMPLATES"}
)
_NEVER_EMPTY: Final = frozenset(_VARIABLES) - _MAY_BE_EMPTY
# Similarity from which on an unknown variable counts as a misspelt one of ours. The relayer's variables, which may be set
# in the same environment, are less similar to ours, except for those in `_OF_RELAYERS`.
_MISSPELT: Final = 0.75
_OF_RELAYERS: Final = frozenset({"MODEL_URL"})


class _Settings(BaseModel):
    """Base of all settings: immutable, without unknown keys; keys are in camelCase for hosts and in snake_case for Python."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=alias_generators.to_camel,
        populate_by_name=True,
        protected_namespaces=(),
        hide_input_in_errors=True,
    )


class ColdStartSettings(_Settings):
    """Settings of the memories that the first turn of a session gets (MS-01, MS-02)."""

    enabled: bool = Field(
        True,
        description="inject memories of the newest two days, and of coming days, at the start of a session",
    )
    max_lines: int = Field(
        6,
        ge=1,
        le=30,
        description="maximum number of these memories; coming days and tasks come first, meals and lines of files last",
    )


class StandingSettings(_Settings):
    """Settings of the standing block, which is in every prompt of a session: dangers, how to answer, who the person is."""

    enabled: bool = Field(
        True,
        description="in interactive runs, put health, safety and identity facts of the user into every prompt",
    )


class SourcePenalty(_Settings):
    """A penalty for memories of a source, which lowers their score (AR-19).

    ``match`` is a pattern with ``*`` and ``?``. It is matched against the source's reference (``*memory/drafts/*``),
    ``transcript:<path>``, ``kind:<kind>`` and ``trust:<trust>``.
    """

    match: str = Field(min_length=1, max_length=200)
    penalty: float = Field(0.15, ge=0, le=1)


class RecallSettings(_Settings):
    """Settings of recall, before a turn."""

    enabled: bool = Field(
        True, title="Auto-recall", description="inject relevant memories into the prompt of each turn"
    )
    mode: RecallMode = Field(
        RecallMode.DIRECT,
        description="direct: search only; active: a model chooses which memories are recalled",
    )
    agents: Names = Field((), description="agents that use recall; empty means all")
    allowed_chat_types: tuple[TurnAudience, ...] = Field(
        (TurnAudience.DIRECT, TurnAudience.GROUP, TurnAudience.CHANNEL),
        description="kinds of chat that use recall",
    )
    max_results: int = Field(
        10, ge=1, le=100, title="Memories per turn", description="maximum number of memories"
    )
    min_score: float = Field(
        0.3, ge=0, le=1, title="Least relevance", description="minimum relevance of an injected memory"
    )
    min_prompt_length: int = Field(
        10,
        ge=1,
        le=10_000,
        description="minimum length of the cleaned prompt in characters; shorter prompts are not searched for, except questions and prompts of several words, if this is not set",
    )
    max_tokens: int = Field(
        768,
        ge=1,
        le=32_000,
        title="Token budget",
        description="maximum estimated size of the injected block in tokens",
    )
    deadline_ms: int = Field(
        2000,
        ge=50,
        le=60_000,
        title="Deadline",
        description="maximum time that a turn waits for memory, in ms",
    )
    skip_patterns: Patterns = Field(
        (), description="regular expressions; recall is skipped for prompts that match one"
    )
    skip_triggers: Names = Field(
        ("memory", "heartbeat", "cron", "subagent", "hook"), description="kinds of run without recall"
    )
    skip_session_patterns: Patterns = Field(
        (), description="regular expressions; recall is skipped for sessions whose key matches one"
    )
    position: PromptPosition = Field(
        PromptPosition.APPEND, description="position of the memories in the prompt"
    )
    format: Format = Field(Format.MEMRELAY, description="text format of the injected block")
    half_life_days: float | None = Field(
        None,
        gt=0,
        le=100_000,
        allow_inf_nan=False,
        description="age in days at which the score of a memory is halved; pinned memories are not affected",
    )
    diversity: float = Field(
        0.0, ge=0, le=1, description="weight by which a result that repeats a better one is moved down"
    )
    source_penalties: Annotated[tuple[SourcePenalty, ...], Field(max_length=16)] | None = Field(
        None,
        description="penalties by source; default: the relayer's own, which rank drafts, tool output and transcripts lower",
    )
    namespace_instruction: bool = Field(
        False, description="put the namespace into the system prompt, as MemWal does"
    )
    logging: bool = Field(False, description="log one line for each recall, without its texts")
    log_queries: bool = Field(
        False, description="with logging: also log the first 80 characters of each query"
    )
    cold_start: ColdStartSettings = Field(
        ColdStartSettings(), description="memories that the first turn of a session gets"
    )
    standing: StandingSettings = Field(
        StandingSettings(), description="memories that are part of every prompt"
    )
    one_shots: bool = Field(
        True,
        description="also recall in runs that are not interactive, such as a one-shot command; direct mode only",
    )


class CaptureSettings(_Settings):
    """Settings of capture, after a turn. Lengths are in characters per message."""

    enabled: bool = Field(True, title="Auto-capture", description="store memorable statements of each turn")
    max_messages: int = Field(
        10, ge=1, le=50, description="maximum number of messages of a capture; the newest are used"
    )
    min_length: int = Field(
        2, ge=1, le=2000, description="minimum length of a message; wide characters count as two"
    )
    max_length: int = Field(
        64_000, ge=10, le=64_000, description="maximum length of a message; a longer one is cut in its middle"
    )
    min_turn_length: int = Field(
        0, ge=0, le=10_000, description="maximum length of all messages of a turn together"
    )
    min_messages: int = Field(1, ge=1, le=10, description="minimum number of new messages of a captured turn")
    assistant_tail: int = Field(
        0,
        ge=0,
        le=64_000,
        description="maximum length of an answer, of which the end is kept; 0: no limit, and the relayer extracts statements from all of it",
    )
    rules: CaptureRules = Field(
        CaptureRules.MEMRELAY,
        description="memory-core-plus: skip messages longer than maxLength, with headings, more than three emoji or its phrases; memwal: skip messages of at most ten characters",
    )
    strategy: CaptureStrategy = Field(
        CaptureStrategy.AGENT_END,
        description="event that ends a turn: the host's own, or silence after the last output",
    )
    debounce_ms: int = Field(
        5000, ge=0, le=600_000, description="with debounce: silence that ends a turn, in ms"
    )
    summary: bool = Field(
        True, description="report the end of a session, so that the relayer can summarise it"
    )
    store_transcript: bool = Field(
        False,
        title="Store transcripts",
        description="also store the full text of turns that produced a memory, sealed, at the relayer",
    )
    durable: bool = Field(True, description="store captured turns in a sealed file until they are delivered")
    mirror_daily_log: bool = Field(
        False, description="append captured memories to memory/YYYY-MM-DD.md of the workspace, in plain text"
    )
    daily_log_format: DailyLogFormat = Field(
        DailyLogFormat.MEMORY_CORE,
        description="layout of these files; memsearch: headings and comments name the session of each memory, and summaries are written, too",
    )
    redaction: Redaction = Field(
        default_factory=dict, description="handling of each class of secret: redact (default), block or allow"
    )


class FilesSettings(_Settings):
    """Settings of the workspace files that are stored as memories while the host runs (CP-24, AR-05)."""

    enabled: bool = Field(
        True, description="index MEMORY.md, memory/ and wiki/ of the workspace and the additional paths"
    )
    paths: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=1024)], ...], Field(max_length=100)
    ] = Field(
        (),
        description="additional files and folders, absolute or relative to the workspace; the host's extraPaths are indexed as well",
    )
    sessions: bool = Field(
        True,
        description="capture the direct chats that the host stored before the plugin was there, if its memory search covers sessions",
    )


class NamespaceSettings(_Settings):
    """Settings that choose the namespace of a turn; the model never chooses it."""

    default: NamespaceName = Field(
        DEFAULT_NAME,
        title="Default namespace",
        description="namespace name of the default agent, to separate it from the default agent of another gateway",
    )
    profile: NamespaceName = Field(
        DEFAULT_NAME,
        description="profile of the host: a name other than default separates the memories of all agents from those of other profiles; in OpenClaw the profile that runs",
    )
    scope: NamespaceScope = Field(
        NamespaceScope.AGENT, description="one namespace per agent, or per sender or workspace of the agent"
    )
    legacy: bool = Field(
        False,
        title="Read former namespaces",
        description="also recall memories that the agent stored before `default`, `profile` or `scope` was changed",
    )
    renamed: Renamed = Field(
        default_factory=dict, description="new names of agents whose keys were rotated: { old: new }"
    )


class LocalRelayerSettings(_Settings):
    """Settings of the local relayer, which the gateway can start."""

    autostart: bool = Field(
        True, description="if no URL is set, start a relayer on this machine and share it with other gateways"
    )


class ActiveSettings(_Settings):
    """Settings of active mode, under the names that the active-memory plugin uses (AM-04 to AM-26)."""

    mode: Literal["escalate", "always", "off"] = Field(
        "always", description="escalate: ask the model only if the search has hits; off: direct mode"
    )
    otherwise: Literal["silent", "direct"] = Field(
        "silent", description="memories of turns that active mode does not apply to: none, or the direct hits"
    )
    agents: Names = Field((), description="agents that use active mode; all others use direct mode")
    allowed_chat_types: tuple[TurnAudience | Literal["explicit"], ...] = Field(
        (TurnAudience.DIRECT,), description="kinds of chat that use active mode"
    )
    allowed_chat_ids: Names = Field((), description="ids of chats that use active mode; empty means all")
    denied_chat_ids: Names = Field(
        (), description="ids of chats that never use active mode; takes precedence over allowed ids"
    )
    query_mode: QueryMode = Field(QueryMode.RECENT, description="amount of conversation that the model reads")
    prompt_style: PromptStyle | None = Field(
        None, description="style of the model's instructions; default: chosen by the query mode"
    )
    prompt_append: str = Field("", max_length=8000, description="additional instructions for the model")
    prompt_override: str = Field(
        "", max_length=8000, description="instructions that replace the built-in ones"
    )
    model: str = Field("", max_length=256, description="model to use; default: the session's model")
    model_fallback: str = Field(
        "", max_length=256, description="model to use if neither this section nor the session names one"
    )
    model_fallback_policy: Literal["default-remote", "resolved-only"] = Field(
        "default-remote", description="resolved-only: never fall back to another model"
    )
    thinking: Thinking = Field("off", description="reasoning effort of the model")
    fast_mode: bool | Literal["auto"] = Field(
        False, description="accepted without effect; set at the relayer"
    )
    tools_allow: Names = Field(
        ("memory_search", "memory_get"), description="accepted without effect; the model gets no tools"
    )
    timeout_ms: int = Field(
        15_000, ge=250, le=120_000, title="Time-out", description="time limit of the whole recall, in ms"
    )
    setup_grace_timeout_ms: int = Field(
        0,
        ge=0,
        le=120_000,
        title="Setup grace",
        description="additional time for the steps before the model, in ms",
    )
    max_summary_chars: int = Field(220, ge=40, le=1000, description="maximum length of the model's summary")
    recent_user_turns: int = Field(2, ge=0, le=4, description="number of recent user turns in the query")
    recent_assistant_turns: int = Field(
        1, ge=0, le=3, description="number of recent assistant turns in the query"
    )
    recent_user_chars: int = Field(220, ge=40, le=1000, description="maximum length of each user turn")
    recent_assistant_chars: int = Field(
        180, ge=40, le=1000, description="maximum length of each assistant turn"
    )
    cache_ttl_ms: int = Field(
        15_000,
        ge=1000,
        le=120_000,
        description="time for which the answer to an equal question is cached, in ms",
    )
    circuit_breaker_max_timeouts: int = Field(
        3,
        ge=1,
        le=100,
        description="number of consecutive time-outs after which the model is no longer asked",
    )
    circuit_breaker_cooldown_ms: int = Field(
        60_000, ge=1000, le=3_600_000, description="pause after these time-outs, in ms"
    )
    logging: bool = Field(False, description="log one line for each recall, without its texts")
    persist_transcripts: bool = Field(
        False, description="write the model's prompts and answers to files, unencrypted"
    )
    transcript_dir: RelativePath = Field(
        "active-memory", title="Transcript folder", description="directory of these files, a relative path"
    )

    @property
    def style(self) -> PromptStyle:
        """Return the prompt style: the one that is set, or the default of the query mode (AM-14)."""
        suited = {
            QueryMode.MESSAGE: PromptStyle.STRICT,
            QueryMode.RECENT: PromptStyle.BALANCED,
            QueryMode.FULL: PromptStyle.CONTEXTUAL,
        }
        return self.prompt_style or suited[self.query_mode]


class OfferSettings(_Settings):
    """Settings of what the host offers to its model besides memories. Each costs tokens in every request."""

    tools: bool = Field(True, description="the memory tools")
    skill: bool = Field(True, description="register the skill that explains when to search further")
    section: bool = Field(
        True, description="add the tools' instructions to the system prompt; only with tools"
    )


class HostModelSettings(_Settings):
    """Settings of the host's own language model, used for facts, summaries and reminders if the relayer has no model."""

    enabled: bool | None = Field(
        None,
        description="use the host's model, which costs the host's tokens; default: not in OpenClaw, but a model that a Python program passes in is used",
    )
    calls_per_hour: int = Field(60, ge=1, le=10_000, description="maximum number of calls")
    turn_summaries: bool = Field(False, description="also write summaries of turns")
    model: str = Field(
        "",
        max_length=256,
        description="name of the host's model, if the host allows a choice; empty: the host's default",
    )


class ConsolidationSettings(_Settings):
    """Settings of consolidation, in which the gateway tidies up memories on a schedule; memory-core calls it dreaming (CP-49)."""

    enabled: bool = Field(
        False, description="run on the schedule; if false, consolidation only runs as a command"
    )
    schedule: CronLine = Field(
        "0 3 * * *",
        description="schedule in cron syntax: minute, hour, day, month and weekday, in local time",
    )
    apply: bool = Field(
        False, description="also remove repeated and replaced memories; if false, they are only proposed"
    )
    write_files: bool = Field(
        False,
        description="also append promoted memories to MEMORY.md of the workspace, and write the day into DREAMS.md",
    )
    skills: int = Field(
        0,
        ge=0,
        le=100,
        description="also write ways of working that were told at least this often, such as 3, as skills of the workspace; 0: write none",
    )


class PluginSettings(_Settings):
    """All settings of the plugin.

    Create them in Python with keyword arguments, or with `load_settings` from a host's configuration object.

    Example:
        PluginSettings(url="https://memory.example.com", recall=RecallSettings(max_results=5))

    ``disabled`` is set from the environment only. ``unused`` lists the keys of an earlier plugin that are set and have no
    counterpart.
    """

    url: Url = Field(
        DEFAULT_URL,
        title="Relayer",
        description="URL of the relayer: https, or http on this machine; default: a relayer is started on this machine",
    )
    agent: str | None = Field(
        None, min_length=1, max_length=128, description="use one agent for all sessions"
    )
    key: Secret | None = Field(
        None,
        title="Secret",
        description="root secret of this gateway, preferably as ${MEMRELAY_SECRET} or a SecretRef; default: one is generated and stored in a file",
    )
    account_id: AccountId | None = Field(
        None, title="Account", description="accepted without effect; the account follows from the secret"
    )
    recall: RecallSettings = Field(RecallSettings(), description="recall before a turn")
    capture: CaptureSettings = Field(CaptureSettings(), description="capture after a turn")
    files: FilesSettings = Field(
        FilesSettings(), description="files of the workspace that are kept as memories"
    )
    namespace: NamespaceSettings = Field(NamespaceSettings(), description="whose memories are used")
    active: ActiveSettings = Field(
        ActiveSettings(), title="Active mode", description="a model chooses what is recalled"
    )
    relayer: LocalRelayerSettings = Field(LocalRelayerSettings(), description="the relayer of this machine")
    offer: OfferSettings = Field(OfferSettings(), description="what the model is offered besides memories")
    host_model: HostModelSettings = Field(
        HostModelSettings(),
        title="Host's model",
        description="the host's own model, where the relayer has none",
    )
    consolidation: ConsolidationSettings = Field(
        ConsolidationSettings(),
        description="promotes what turns keep needing, and finds what repeats, on a schedule",
    )
    owners: Owners = Field(
        (),
        description="you, on each platform: `telegram:777`; these direct chats are one person's, and what they say in a group is the user's",
    )
    disabled: bool = False
    unused: tuple[str, ...] = ()

    @property
    def deadline_ms(self) -> int:
        """Return the maximum duration of a recall in ms (AM-26).

        By default 2000 in direct mode and 15,000 in active mode; in active mode the setup grace is added.
        """
        if self.recall.mode is RecallMode.ACTIVE:
            return self.active.timeout_ms + self.active.setup_grace_timeout_ms
        return self.recall.deadline_ms

    @property
    def summary_position(self) -> PromptPosition:
        """Return the position of active mode's summary: the one that is set, else that of the active-memory plugin (AM-09)."""
        recall = self.recall
        return recall.position if "position" in recall.model_fields_set else PromptPosition.SYSTEM_APPEND

    @property
    def logs_recalls(self) -> bool:
        """Return whether each recall is logged: ``recall.logging``, or active-memory's own setting (AM-22)."""
        return self.recall.logging or self.active.logging


@dataclass(frozen=True, slots=True)
class SettingsResult:
    """The result of `safe_load`: settings or an error, never both (CP-16)."""

    settings: PluginSettings | None
    error: SettingsError | None

    @property
    def success(self) -> bool:
        """Return whether the settings were loaded."""
        return self.settings is not None


def load_settings(config: object, environ: Mapping[str, str]) -> PluginSettings:
    """Load the settings from the host's configuration object and the environment.

    Args:
        config: the object for this plugin in the host's configuration; None if the host has none.
        environ: the environment variables of the process.

    Raises:
        SettingsError: lists each wrong field and its correction. Values are not repeated, since they could be secrets.

    Example:
        >>> load_settings({"recall": {"maxResults": 3}}, {}).recall.max_results
        3
    """
    _check_variables(environ)
    tree = crosswalk.translate({} if config is None else config, environ, _shape(PluginSettings))
    if "url" not in tree and environ.get("MEMRELAY_URL"):
        tree["url"] = environ["MEMRELAY_URL"]
    if "agent" not in tree and environ.get("MEMRELAY_AGENT"):
        tree["agent"] = environ["MEMRELAY_AGENT"]
    for variable, name in ((DEFAULT_NAMESPACE_VARIABLE, "default"), (PROFILE_VARIABLE, "profile")):
        if environ.get(variable):
            tree.setdefault("namespace", {}).setdefault(name, environ[variable])
    # Any other value of the switch turns memory off, too: a person who sets it wants memory to be off.
    tree["disabled"] = any(environ.get(name, "").strip().lower() not in _OFF_WORDS for name in _SWITCHES)
    try:
        return PluginSettings.model_validate(tree)
    except ValidationError as error:
        raise SettingsError(*(_issue(dict(detail)) for detail in error.errors(include_input=False))) from None


def _check_variables(environ: Mapping[str, str]) -> None:
    """Raise `SettingsError` for variables that are empty, or whose names look like misspelt ones, as they would be ignored."""
    wrong = []
    for variable, value in environ.items():
        name = variable.upper().removeprefix(_PREFIX)
        if variable == f"{_PREFIX}{name}" and name in _NEVER_EMPTY and not value.strip():
            # Using the default instead could select another secret, agent or relayer than the intended one.
            wrong.append(SettingsIssue(variable, "is empty", "give it a value, or remove the variable"))
        ours = variable.upper().startswith(_PREFIX) and value
        if not ours or name in _OF_RELAYERS or (variable == f"{_PREFIX}{name}" and name in _VARIABLES):
            continue
        near = difflib.get_close_matches(name, _VARIABLES, 1, _MISSPELT)
        if near:
            wrong.append(SettingsIssue(variable, "is not a setting", f"did you mean {_PREFIX}{near[0]}?"))
    if wrong:
        raise SettingsError(*wrong)


def safe_load(config: object, environ: Mapping[str, str]) -> SettingsResult:
    """Load the settings like `load_settings`, and return an error instead of raising it.

    Example:
        >>> safe_load({"recall": {"maxResults": 0}}, {}).success
        False
    """
    try:
        return SettingsResult(load_settings(config, environ), None)
    except SettingsError as error:
        return SettingsResult(None, error)


def _shape(model: type[BaseModel]) -> crosswalk.Shape:
    shape: crosswalk.Shape = {}
    for name, info in model.model_fields.items():
        if name in UNSETTABLE:
            continue
        inner = info.annotation
        shape[name] = _shape(inner) if isinstance(inner, type) and issubclass(inner, BaseModel) else None
    return shape


def _issue(detail: dict[str, Any]) -> SettingsIssue:
    field = ".".join(
        alias_generators.to_camel(part) if isinstance(part, str) else str(part) for part in detail["loc"]
    )
    problem, _, fix = str(detail["msg"]).removeprefix("Value error, ").partition("; ")
    return SettingsIssue(field, problem, fix or "correct it, or leave it out for the default")


_FIELDS = 5


def next_time(line: str, moment: float) -> float:
    """Return the next time of a cron line, in seconds since the epoch.

    The line has five fields, such as ``0 3 * * *``.

    Raises:
        ValueError: the line is not a cron line, or matches no day.

    Example:
        >>> next_time("0 3 * * *", 0.0) > 0.0
        True
    """
    if len(line.split()) != _FIELDS:
        raise ValueError("a schedule has five fields, such as 0 3 * * * (every night at three)")
    local = datetime.fromtimestamp(moment, UTC).astimezone().replace(tzinfo=None)
    try:
        times = CronSim(line, local)
    except CronSimError as error:
        raise ValueError(f"is not a cron line: {error}") from error
    # When clocks are set back, the next local time can be before the moment; such times are skipped.
    return next(at for time in times if (at := time.timestamp()) > moment)
