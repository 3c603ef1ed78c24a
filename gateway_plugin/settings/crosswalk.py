"""Translation of a host's configuration, in any accepted spelling, to the tree that `gateway_plugin.settings.model` validates.

`translate` accepts our nested keys in camelCase, in snake_case or with dots (``recall.maxResults``), and at the top level
also every key of the plugins that memrelay replaces (`ALIASES`). A preset (`PRESETS`) fills in what the configuration leaves
open, and ``${NAME}`` is replaced by an environment variable. All errors of a configuration are collected and raised together.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gateway_plugin.errors import SettingsError, SettingsIssue

Path = tuple[str, ...]
Shape = dict[str, Any]
"""The field names of the settings model: a nested model is a nested shape, any other field is None."""

ALIASES: Final[dict[str, Path]] = {
    "autoRecall": ("recall", "enabled"),
    "enabled": ("recall", "enabled"),
    "autoRecallMaxResults": ("recall", "max_results"),
    "maxResults": ("recall", "max_results"),
    "maxRecallResults": ("recall", "max_results"),
    "top_k": ("recall", "max_results"),
    "minRelevance": ("recall", "min_score"),
    "minScore": ("recall", "min_score"),
    "autoRecallMinPromptLength": ("recall", "min_prompt_length"),
    "maxTokens": ("recall", "max_tokens"),
    "requestTimeoutMs": ("recall", "deadline_ms"),
    "SKIP_PATTERNS": ("recall", "skip_patterns"),
    "autoCapture": ("capture", "enabled"),
    "autoCaptureMaxMessages": ("capture", "max_messages"),
    "captureMaxMessages": ("capture", "max_messages"),
    "defaultNamespace": ("namespace", "default"),
    "serverUrl": ("url",),
    "privateKey": ("key",),
}

RANGES: Final[dict[str, tuple[int, int]]] = {"maxRecallResults": (1, 20), "requestTimeoutMs": (1000, 60_000)}
"""The bounds of settings under the names of an earlier plugin, where ours are wider (MW-29)."""

WITHOUT_EFFECT: Final[dict[str, str]] = {
    "provider": "embeddings are computed by the relayer; choose the model there with --embedder"
}
"""The keys of earlier plugins that are accepted but have no effect here, each with the reason (MS-15)."""

DRAFTS: Final = ("DRAFT_PATH_PENALTY", "DRAFT_PATH_PATTERNS")
"""auto-recall's keys for the penalty of drafts and the patterns of their paths (AR-20); both set ``recall.sourcePenalties``."""

_DRAFT_PENALTY: Final = 0.15
_DRAFT_PATTERNS: Final = ("*memory/drafts/*", "*memory/draft-*.md")
# The relayer's other default penalties. A list of penalties replaces its defaults, so these have to be repeated.
_OTHER_PENALTIES: Final = ({"match": "trust:tool"}, {"match": "transcript:*"})

_ACTIVE_STYLE: Final = {
    "agents", "query_mode", "prompt_style", "prompt_append", "prompt_override", "max_summary_chars",
    "recent_user_turns", "recent_assistant_turns", "recent_user_chars", "recent_assistant_chars",
    "allowed_chat_types", "thinking", "model_fallback_policy",
}  # fmt: skip
"""The top-level keys that only active-memory has; if one of them is present, active mode is switched on."""

PRESETS: Final[dict[str, dict[str, Any]]] = {
    "memrelay": {},
    "memory-core-plus": {
        "recall": {
            "format": "memory-core-plus",
            "position": "prepend",
            "min_prompt_length": 5,
            "max_results": 5,
        },
        "capture": {
            "min_length": 10,
            "max_length": 2000,
            "rules": "memory-core-plus",
            "mirror_daily_log": True,
        },
    },
    "auto-recall": {
        "recall": {"format": "auto-recall", "position": "prepend", "min_score": 0.5, "max_results": 5},
        "capture": {"enabled": False},
    },
    "memwal": {
        "recall": {
            "format": "memwal",
            "position": "prepend",
            "min_prompt_length": 10,
            "max_results": 5,
            "namespace_instruction": True,
        },
        "capture": {"min_length": 30, "rules": "memwal"},
    },
    "memsearch": {
        "recall": {"position": "prepend", "max_results": 5, "cold_start": {"max_lines": 30}},
        "capture": {
            "min_length": 11,
            "min_turn_length": 50,
            "min_messages": 2,
            "assistant_tail": 3000,
            "mirror_daily_log": True,
            "daily_log_format": "memsearch",
        },
        "host_model": {"turn_summaries": True},
    },
    "active-memory": {
        "recall": {"format": "active-memory", "position": "system-append", "mode": "active", "max_results": 5}
    },
}

_LENIENT_FLAGS: Final = {"autoRecall", "autoCapture"}
# Each with the maximum of our setting; the original has no upper bound.
_LENIENT_COUNTS: Final = {
    "autoRecallMaxResults": 100,
    "autoRecallMinPromptLength": 10_000,
    "autoCaptureMaxMessages": 50,
}
_MOST_DIRECT_MS: Final = 60_000
_LITERAL: Final = re.compile(r"/(?P<body>.+)/[dgimsuvy]*")
_GLOBBED: Final = re.compile(r"\\([^A-Za-z0-9])|(\.[*+]?)|([\w/ ,:@=~#%&<>!;'\"-])|(\$$)")
_VARIABLE: Final = re.compile(r"(?<!\$)\$\{([A-Z_][A-Z0-9_]*)\}")
_MAX_DEPTH: Final = 6
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])([A-Z])")
_ELSEWHERE: Final = {
    "disabled": "set MEMRELAY_DISABLE=1 in the environment, or recall.enabled and capture.enabled to false"
}


def translate(config: object, environ: Mapping[str, str], shape: Shape) -> dict[str, Any]:
    """Return a configuration as a tree of the settings model's field names, with preset and variables filled in.

    Raises:
        SettingsError: the configuration is not an object, has an unknown key, sets one setting to two different values, or
            names an environment variable that is not set.
    """
    if not isinstance(config, Mapping):
        raise SettingsError(
            SettingsIssue("", "config must be an object", "use { ... } with the settings inside")
        )
    reader = _Reader(environ, shape)
    reader.read(config, (), shape)
    if reader.issues:
        raise SettingsError(*reader.issues)
    return reader.finished()


class _Reader:
    def __init__(self, environ: Mapping[str, str], shape: Shape) -> None:
        self.issues: list[SettingsIssue] = []
        self._environ = environ
        self._shape = shape
        self._tree: dict[str, Any] = {}
        self._said_by: dict[Path, str] = {}
        self._active_style = False
        self._timeout: Any = None
        self._preset: dict[str, Any] = {}
        self._unused: list[str] = []
        self._drafts: dict[str, Any] = {}

    def read(self, config: Mapping[Any, Any], at: Path, shape: Shape) -> None:
        for key, value in config.items():
            if not isinstance(key, str):
                self._complain(".".join(at), "has a key that is not a string", "use strings as keys")
            elif value is not None:
                self._key(key, value, at, shape)

    def finished(self) -> dict[str, Any]:
        recall = self._tree.setdefault("recall", {})
        if self._active_style and "mode" not in recall:
            self._put(("recall", "mode"), "active", "agents")
        if self._timeout is not None:
            # It is for the mode that is on; a value too long for direct mode is always active mode's.
            mode = recall.get("mode", self._preset.get("recall", {}).get("mode"))
            long = isinstance(self._timeout, int) and self._timeout > _MOST_DIRECT_MS
            path = ("active", "timeout_ms") if mode == "active" or long else ("recall", "deadline_ms")
            self._put(path, self._timeout, "timeoutMs")
        if self._drafts:
            self._put_drafts()
        if self.issues:
            raise SettingsError(*self.issues)
        if self._unused:
            self._tree["unused"] = tuple(self._unused)
        return merged_into(self._preset, self._tree)

    def _put_drafts(self) -> None:
        penalty, patterns = (self._drafts.get(name) for name in DRAFTS)
        if patterns is None:
            globs = list(_DRAFT_PATTERNS)
        elif isinstance(patterns, str) or not isinstance(patterns, list | tuple):
            self._complain(DRAFTS[1], "must be a list", 'write ["memory/drafts/"]')
            return
        else:
            globs = [self._glob(pattern) for pattern in patterns]
        cost = _DRAFT_PENALTY if penalty is None else penalty
        found = [{"match": glob, "penalty": cost} for glob in globs if glob]
        self._put(("recall", "source_penalties"), [*found, *_OTHER_PENALTIES], next(iter(self._drafts)))

    def _glob(self, pattern: Any) -> str:
        if isinstance(pattern, str) and (glob := glob_of(pattern)):
            return glob
        fix = "use recall.sourcePenalties: [{ match, penalty }], with * and ? in match"
        self._complain(DRAFTS[1], "has a pattern that is only valid in JavaScript", fix)
        return ""

    def _key(self, key: str, value: Any, at: Path, shape: Shape) -> None:
        name = _snake(key)
        spelled = ".".join((*map(_camel, at), key))
        if name in shape:
            inner = shape[name]
            if not isinstance(inner, dict):
                self._put((*at, name), self._filled(spelled, value), spelled)
            elif isinstance(value, Mapping):
                self.read(value, (*at, name), inner)
            else:
                self._complain(spelled, "must be an object", "use { ... } with the settings inside")
        elif "." in key and not at:
            head, _, tail = key.partition(".")
            inner = shape.get(_snake(head))
            if isinstance(inner, dict):
                self._key(tail, value, (_snake(head),), inner)
            else:
                self._unknown(spelled, key, shape, top=True)
        elif at:
            self._unknown(spelled, key, shape, top=False)
        else:
            self._upstream(key, name, value)

    def _upstream(self, key: str, name: str, value: Any) -> None:
        if key == "preset":
            if isinstance(value, str) and value in PRESETS:
                self._preset = PRESETS[value]
            else:
                self._complain("preset", "is not known", f"use one of {', '.join(PRESETS)}")
        elif key == "timeoutMs":
            self._timeout = value
        elif key in WITHOUT_EFFECT:
            self._unused.append(key)
        elif key in DRAFTS:
            self._drafts[key] = value
        elif key == "mode" and value in {"direct", "active"}:
            self._put(("recall", "mode"), value, key)
        elif key in ALIASES:
            value = self._lenient(key, self._filled(key, value))
            if value is not None and self._in_range(key, value):
                self._put(ALIASES[key], value, key)
        elif name in self._shape["active"]:
            self._active_style |= name in _ACTIVE_STYLE
            self._put(("active", name), self._filled(key, value), key)
        else:
            self._unknown(key, key, self._shape, top=True)

    def _lenient(self, key: str, value: Any) -> Any:
        """Return the value of a key by memory-core-plus's parse rules (CP-16), or None for the default."""
        if key in _LENIENT_FLAGS:
            if isinstance(value, str) and value.strip().lower() in {"false", "off", "no", "0", ""}:
                # The original reads any text as true. A text such as "false" must not switch on the capture of messages.
                self._complain(key, "is a text that means false", "use false without quotes")
                return None
            return value is not False
        if key in _LENIENT_COUNTS:
            usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            return min(math.floor(value), _LENIENT_COUNTS[key]) if usable and value >= 1 else None
        if key == "SKIP_PATTERNS" and isinstance(value, list):
            # Patterns copied from the original's source are JavaScript literals. Ours ignore case anyway (AR-18).
            return [_plain_pattern(one) if isinstance(one, str) else one for one in value]
        return value

    def _in_range(self, key: str, value: Any) -> bool:
        bounds = RANGES.get(key)
        if bounds is None or not isinstance(value, int | float) or bounds[0] <= value <= bounds[1]:
            return True
        least, most = bounds
        self._complain(key, f"must be between {least} and {most}", f"or write {_written(ALIASES[key])}")
        return False

    def _put(self, path: Path, value: Any, spelled: str) -> None:
        node = self._tree
        for part in path[:-1]:
            node = node.setdefault(part, {})
        if path in self._said_by and node[path[-1]] != value:
            self._complain(spelled, f"contradicts {self._said_by[path]}", "remove one of the two")
        node[path[-1]] = value
        self._said_by[path] = spelled

    def _filled(self, spelled: str, value: Any, depth: int = 0) -> Any:
        """Replace ``${NAME}`` by the value of the environment variable; hosts leave it unchanged if the variable is not set."""
        if isinstance(value, str):
            for name in _VARIABLE.findall(value):
                if not self._environ.get(name):
                    self._complain(
                        spelled,
                        f"names the environment variable {name}, which is not set",
                        f"set {name} or remove this setting",
                    )
            return _VARIABLE.sub(lambda match: self._environ.get(match[1], ""), value).replace("$${", "${")
        if isinstance(value, list | tuple) and depth < _MAX_DEPTH:
            return [self._filled(spelled, item, depth + 1) for item in value]
        return value

    def _unknown(self, spelled: str, key: str, shape: Shape, *, top: bool) -> None:
        if top and key in _ELSEWHERE:
            self._complain(spelled, "is not a setting of the plugin", _ELSEWHERE[key])
            return
        known = sorted({_camel(name) for name in shape})
        if top:
            known += [*ALIASES, *WITHOUT_EFFECT, *DRAFTS, "preset", "timeoutMs", *_dotted(self._shape)]
            known += [_camel(name) for name in self._shape["active"]]
        near = difflib.get_close_matches(key[:64], known, n=1, cutoff=0.0)
        self._complain(spelled[:80], "is not a known setting", f"did you mean {near[0]}?")

    def _complain(self, field: str, problem: str, fix: str) -> None:
        self.issues.append(SettingsIssue(field, problem, fix))


def glob_of(pattern: str) -> str:
    r"""Return the glob pattern, as the relayer matches it, for a simple regular expression over paths; "" if it is not simple.

    The expression may be a JavaScript literal (``/memory\/drafts\//``) or a plain path.

    Example:
        >>> glob_of("^drafts/.*")
        'drafts/**'
    """
    source = _plain_pattern(pattern)
    begins = source.startswith("^")
    parts, at = [], 0
    source = source.removeprefix("^")
    while at < len(source):
        found = _GLOBBED.match(source, at)
        if found is None:
            return ""
        any_text = {None: "", ".": "?"}.get(found[2], "*")
        parts.append(any_text or found[1] or found[3] or "")
        at = found.end()
    ends = source.endswith("$")
    text = "".join(parts)
    return f"{'' if begins else '*'}{text}{'' if ends else '*'}" if text else ""


def _plain_pattern(pattern: str) -> str:
    literal = _LITERAL.fullmatch(pattern)
    return literal["body"] if literal else pattern


def _written(path: Path) -> str:
    return ".".join(map(_camel, path))


def _dotted(shape: Shape) -> Iterator[str]:
    for name, inner in shape.items():
        if isinstance(inner, dict):
            yield from (f"{_camel(name)}.{_camel(child)}" for child in inner)


def merged_into(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with the values of another one merged into it, recursively."""
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        merged[key] = merged_into(below, value) if both and isinstance(below, Mapping) else value
    return merged


def _snake(key: str) -> str:
    return _CAMEL.sub(r"_\1", key).lower()


def _camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)
