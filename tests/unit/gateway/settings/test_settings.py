from __future__ import annotations

import math
import re
import time
from datetime import datetime
from pathlib import Path

import pytest

import gateway_plugin
from gateway_plugin.errors import SettingsError
from gateway_plugin.settings.crosswalk import ALIASES, PRESETS
from gateway_plugin.settings.model import (
    DEFAULT_URL,
    CaptureStrategy,
    Format,
    NamespaceScope,
    PluginSettings,
    PromptPosition,
    RecallMode,
    load_settings,
    next_time,
    safe_load,
)
from relayer.settings.config import RelayerSettings

KEY = "ab" * 32


def at(settings: PluginSettings, path: str) -> object:
    value: object = settings
    for part in path.split("."):
        value = getattr(value, part)
    return value


def refused(config: object, **environ: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings(config, environ)
    return str(caught.value)


def test_the_defaults_need_no_configuration_at_all():
    settings = load_settings(None, {})
    assert settings == load_settings({}, {}) == PluginSettings()
    assert settings.url == DEFAULT_URL == "http://127.0.0.1:8787"
    assert settings.recall.mode is RecallMode.DIRECT
    assert settings.recall.position is PromptPosition.APPEND
    assert settings.namespace.scope is NamespaceScope.AGENT
    assert not settings.disabled


CROSSWALK = [
    ("autoRecall", False, "recall.enabled"),
    ("enabled", False, "recall.enabled"),
    ("autoRecallMaxResults", 7, "recall.max_results"),
    ("maxResults", 7, "recall.max_results"),
    ("maxRecallResults", 7, "recall.max_results"),
    ("top_k", 7, "recall.max_results"),
    ("minRelevance", 0.4, "recall.min_score"),
    ("minScore", 0.4, "recall.min_score"),
    ("autoRecallMinPromptLength", 5, "recall.min_prompt_length"),
    ("maxTokens", 500, "recall.max_tokens"),
    ("requestTimeoutMs", 1900, "recall.deadline_ms"),
    ("timeoutMs", 900, "recall.deadline_ms"),
    ("SKIP_PATTERNS", ("^x",), "recall.skip_patterns"),
    ("autoCapture", False, "capture.enabled"),
    ("autoCaptureMaxMessages", 4, "capture.max_messages"),
    ("captureMaxMessages", 4, "capture.max_messages"),
    ("defaultNamespace", "home", "namespace.default"),
    ("serverUrl", "https://memory.example", "url"),
    ("accountId", "0x" + "1" * 64, "account_id"),
]


@pytest.mark.row("CP-11")
@pytest.mark.row("CP-12")
@pytest.mark.row("CP-13")
@pytest.mark.row("CP-14")
@pytest.mark.row("CP-15")
@pytest.mark.row("AR-08")
@pytest.mark.row("MW-29")
@pytest.mark.parametrize(("key", "value", "path"), CROSSWALK)
def test_every_key_of_the_replaced_plugins_sets_ours(key, value, path):
    assert at(load_settings({key: value}, {}), path) == value
    assert at(PluginSettings(), path) != value


def test_the_crosswalk_table_of_these_tests_is_complete():
    assert set(ALIASES) - {"privateKey"} <= {row[0] for row in CROSSWALK}


ACTIVE_KEYS = {
    "agents": ("main",), "allowedChatTypes": ("direct", "group"), "allowedChatIds": ("1",), "deniedChatIds": ("2",),
    "queryMode": "full", "promptStyle": "strict", "promptAppend": "x", "promptOverride": "y", "model": "m",
    "modelFallback": "n", "modelFallbackPolicy": "resolved-only", "thinking": "low", "fastMode": True,
    "toolsAllow": ("memory_search",), "setupGraceTimeoutMs": 5, "maxSummaryChars": 300, "recentUserTurns": 1,
    "recentAssistantTurns": 0, "recentUserChars": 100, "recentAssistantChars": 90, "cacheTtlMs": 2000,
    "circuitBreakerMaxTimeouts": 5, "circuitBreakerCooldownMs": 9000, "logging": True, "persistTranscripts": True,
    "transcriptDir": "traces/am",
}  # fmt: skip


@pytest.mark.parametrize("nested", [False, True])
def test_every_key_of_active_memory_is_accepted_flat_and_nested(nested):
    config = {"active": ACTIVE_KEYS} if nested else ACTIVE_KEYS
    settings = load_settings(config, {})
    for key, value in ACTIVE_KEYS.items():
        assert at(settings, "active." + re.sub(r"([A-Z])", r"_\1", key).lower()) == value, key


def test_active_memorys_own_keys_ask_for_active_mode_and_its_timeout_is_then_meant():
    settings = load_settings({"agents": ["main"], "timeoutMs": 4000}, {})
    assert settings.recall.mode is RecallMode.ACTIVE
    assert (settings.deadline_ms, settings.recall.deadline_ms) == (4000, 2000)
    stays = load_settings({"agents": ["main"], "recall": {"mode": "direct"}}, {})
    assert stays.recall.mode is RecallMode.DIRECT


def test_the_deadline_is_2_seconds_direct_and_15_active():
    assert load_settings({}, {}).deadline_ms == 2000
    assert load_settings({"recall": {"mode": "active"}}, {}).deadline_ms == 15_000


@pytest.mark.parametrize("spelling", ["recall.maxResults", "recall.max_results"])
def test_dotted_keys_and_snake_case_are_accepted(spelling):
    assert load_settings({spelling: 9}, {}).recall.max_results == 9
    head, _, tail = spelling.partition(".")
    assert load_settings({head: {tail: 9}}, {}).recall.max_results == 9


@pytest.mark.row("CP-16")
def test_the_safe_form_returns_settings_or_their_error():
    good, bad = safe_load({"maxResults": 3}, {}), safe_load([], {})
    assert (good.success, good.error) == (True, None)
    assert good.settings == load_settings({"maxResults": 3}, {})
    assert (bad.success, bad.settings) == (False, None)
    assert isinstance(bad.error, SettingsError)
    assert "config must be an object" in str(bad.error)


@pytest.mark.parametrize("word", ["false", "Off", "no", "0", ""])
def test_text_that_says_no_never_switches_capture_on(word):
    assert "autoCapture" in refused({"autoCapture": word})


@pytest.mark.parametrize(
    ("config", "field", "near"),
    [
        ({"recal": {}}, "recal", "recall"),
        ({"recall": {"maxResult": 3}}, "recall.maxResult", "maxResults"),
        ({"autoRecal": True}, "autoRecal", "autoRecall"),
        ({"querymode": "full"}, "querymode", "queryMode"),
        ({"recall.minScor": 1}, "recall.minScor", "minScore"),
        ({"recall": {"coldStart": {"enable": 1}}}, "recall.coldStart.enable", "enabled"),
        ({"minRelevanc": 0.1}, "minRelevanc", "minRelevance"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(config, field, near):
    message = refused(config)
    assert message.startswith(f"{field}: is not a known setting")
    assert message.endswith(f"did you mean {near}?")


def test_a_key_that_belongs_elsewhere_says_where():
    assert "MEMRELAY_DISABLE" in refused({"disabled": False}, MEMRELAY_DISABLE="1")


@pytest.mark.row("MS-15")
@pytest.mark.parametrize("provider", ["onnx", "openai", "google", "voyage", "ollama", "something-newer"])
def test_memsearchs_provider_is_accepted_and_noted_as_unused(provider):
    settings = load_settings({"provider": provider, "autoCapture": True, "autoRecall": True}, {})
    assert settings.unused == ("provider",)
    assert settings.model_copy(update={"unused": ()}) == load_settings({}, {})


@pytest.mark.row("AR-20")
@pytest.mark.parametrize(
    ("config", "drafts"),
    [
        ({"DRAFT_PATH_PENALTY": 0.4}, [("*memory/drafts/*", 0.4), ("*memory/draft-*.md", 0.4)]),
        ({"DRAFT_PATH_PATTERNS": [r"/memory\/drafts\//", r"/memory\/draft-.*\.md$/"]},
         [("*memory/drafts/*", 0.15), ("*memory/draft-*.md", 0.15)]),
        ({"DRAFT_PATH_PATTERNS": ["^scratch./"], "DRAFT_PATH_PENALTY": 0}, [("scratch?/*", 0)]),
        ({"DRAFT_PATH_PATTERNS": []}, []),
    ],
)  # fmt: skip
def test_the_constants_of_auto_recalls_source_are_penalties_of_sources(config, drafts):
    found = [(one.match, one.penalty) for one in load_settings(config, {}).recall.source_penalties]
    assert found == [*drafts, ("trust:tool", 0.15), ("transcript:*", 0.15)]


@pytest.mark.row("AR-20")
def test_a_draft_pattern_that_only_javascript_reads_is_refused_with_our_own_setting_as_the_fix():
    message = refused({"DRAFT_PATH_PATTERNS": [r"memory\/(a|b)+"]})
    assert message.startswith("DRAFT_PATH_PATTERNS: ")
    assert "recall.sourcePenalties" in message
    assert "DRAFT_PATH_PATTERNS" in refused({"DRAFT_PATH_PATTERNS": "memory/"})


@pytest.mark.row("AR-18")
def test_skip_patterns_that_were_copied_as_literals_of_javascript_mean_what_they_say():
    settings = load_settings({"SKIP_PATTERNS": ["/^ping$/i", "^pong", "/only a path"]}, {})
    assert settings.recall.skip_patterns == ("^ping$", "^pong", "/only a path")


@pytest.mark.row("MW-29")
@pytest.mark.parametrize(
    ("key", "least", "most", "path"),
    [
        ("maxRecallResults", 1, 20, "recall.max_results"),
        ("requestTimeoutMs", 1000, 60_000, "recall.deadline_ms"),
        ("captureMaxMessages", 1, 50, "capture.max_messages"),
        ("minRelevance", 0, 1, "recall.min_score"),
    ],
)
def test_memwals_bounds_are_those_of_its_own_names(key, least, most, path):
    assert at(load_settings({key: least}, {}), path) == least
    assert at(load_settings({key: most}, {}), path) == most
    assert ": " in refused({key: least - 1})
    assert ": " in refused({key: most + 1})


def test_a_time_out_that_only_a_model_may_take_is_active_modes():
    settings = load_settings({"timeoutMs": 90_000}, {})
    assert (settings.active.timeout_ms, settings.deadline_ms) == (90_000, 2000)


@pytest.mark.parametrize(
    ("key", "path", "most"),
    [
        ("autoRecallMaxResults", "recall.max_results", 100),
        ("autoCaptureMaxMessages", "capture.max_messages", 50),
        ("autoRecallMinPromptLength", "recall.min_prompt_length", 10_000),
    ],
)
def test_a_count_of_memory_core_plus_beyond_ours_is_our_most(key, path, most):
    assert at(load_settings({key: 10**9}, {}), path) == most


def test_two_spellings_that_contradict_each_other_are_refused_and_equal_ones_are_not():
    assert "contradicts autoRecall" in refused({"autoRecall": True, "recall": {"enabled": False}})
    assert load_settings({"autoRecall": False, "enabled": False}, {}).recall.enabled is False


@pytest.mark.row("MW-29")
@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"maxRecallResults": 0}, "maxRecallResults"),
        ({"minRelevance": 1.5}, "recall.minScore"),
        ({"minRelevance": math.nan}, "recall.minScore"),
        ({"captureMaxMessages": 51}, "capture.maxMessages"),
        ({"requestTimeoutMs": "soon"}, "recall.deadlineMs"),
        ({"accountId": "me"}, "accountId"),
        ({"defaultNamespace": 'a"b'}, "namespace.default"),
        ({"defaultNamespace": "a\nb"}, "namespace.default"),
        ({"recall": {"skipPatterns": ["ok", "(a+)+"]}}, "recall.skipPatterns.1"),
        ({"capture": {"strategy": "never"}}, "capture.strategy"),
        ({"transcriptDir": "../up"}, "active.transcriptDir"),
        ({"transcriptDir": "/abs"}, "active.transcriptDir"),
        ({"recall": {"sourcePenalties": [{"match": "x", "penalty": 2}]}}, "recall.sourcePenalties.0.penalty"),
    ],
)
def test_a_wrong_value_is_refused_under_its_field_with_a_fix(config, field):
    message = refused(config)
    assert message.startswith(f"{field}: ")
    assert "; " in message


def test_all_wrong_fields_are_told_at_once():
    assert len(refused({"recall": {"maxResults": 0, "minScore": 2}, "url": "x"}).splitlines()) == 3


@pytest.mark.row("MW-27")
def test_a_variable_that_is_not_set_is_named_and_one_that_is_set_is_used():
    message = refused({"privateKey": "${MY_KEY}"}, MY_KEY="")
    assert message.startswith("privateKey: names the environment variable MY_KEY, which is not set")
    settings = load_settings({"privateKey": "${MY_KEY}"}, {"MY_KEY": KEY})
    assert settings.key is not None
    assert settings.key.get_secret_value() == KEY
    assert load_settings({"defaultNamespace": "$${HOME}"}, {}).namespace.default == "${HOME}"


@pytest.mark.row("MW-27")
def test_a_key_is_neither_shown_nor_repeated_in_an_error():
    assert KEY not in repr(load_settings({"key": KEY}, {}))
    assert "swordfish" not in refused({"key": "swordfish"})
    assert "swordfish" not in refused(
        {"recall": {"maxResults": "swordfish"}, "url": "swordfish", "accountId": "swordfish"}
    )


@pytest.mark.parametrize(
    "url",
    [
        "https://memory.example", "https://memory.example:8443/base", "http://127.0.0.1:8787", "http://localhost",
        "http://[::1]:80", "http://127.9.9.9",
    ],
)  # fmt: skip
def test_encrypted_and_loopback_addresses_are_accepted(url):
    assert load_settings({"url": url + "/"}, {}).url == url


@pytest.mark.parametrize(
    "url",
    [
        "http://memory.example", "http://10.0.0.1:8787", "http://localhost.evil.example", "http://127.0.0.1.evil.example",
        "http://0.0.0.0", "ftp://x", "memory.example", "", "https://", "https://u:p@memory.example", "https://x/?a=b",
        "https://x/#f", "https://x y", "https://x:99999", "https://[::1", "file:///etc/passwd", "https://x/" + "a" * 3000,
    ],
)  # fmt: skip
def test_other_addresses_are_refused(url):
    assert refused({"url": url}).startswith("url: ")


def test_the_hosts_configuration_wins_over_the_environment_and_the_environment_over_defaults():
    environ = {"MEMRELAY_URL": "https://env.example", "MEMRELAY_AGENT": "envy"}
    assert load_settings({}, environ).url == "https://env.example"
    assert load_settings({}, environ).agent == "envy"
    both = load_settings({"serverUrl": "https://host.example", "agent": "hosty"}, environ)
    assert (both.url, both.agent) == ("https://host.example", "hosty")
    assert refused({}, MEMRELAY_URL="http://env.example").startswith("url: ")


@pytest.mark.row("MS-27")
@pytest.mark.parametrize(
    ("word", "off"),
    [
        ("1", True), ("true", True), ("YES", True), ("anything", True), ("0", False), ("false", False), ("", False),
    ],
)  # fmt: skip
def test_the_kill_switch_is_thrown_by_anything_that_does_not_say_no(word, off):
    assert load_settings({}, {"MEMRELAY_DISABLE": word}).disabled is off
    assert load_settings({}, {"MEMSEARCH_DISABLE": word}).disabled is off


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_recalls_five_memories_as_its_original_does_unless_a_setting_says_otherwise(name):
    assert load_settings({"preset": name}, {}).recall.max_results == (10 if name == "memrelay" else 5)
    assert load_settings({"preset": name, "recall.maxResults": 7}, {}).recall.max_results == 7


def test_presets_bring_what_their_plugin_did():
    assert load_settings({"preset": "memory-core-plus"}, {}).recall.min_prompt_length == 5
    assert load_settings({"preset": "auto-recall"}, {}).recall.min_score == 0.5
    assert not load_settings({"preset": "auto-recall"}, {}).capture.enabled
    assert load_settings({"preset": "memwal"}, {}).recall.format is Format.MEMWAL
    assert load_settings({"preset": "active-memory", "timeoutMs": 3000}, {}).deadline_ms == 3000
    assert "preset" in refused({"preset": "mem0"})


def test_settings_cannot_be_changed_after_they_were_read():
    settings = load_settings({}, {})
    with pytest.raises(ValueError, match="frozen"):
        settings.recall.max_results = 9


def test_the_defaults_are_those_of_the_crosswalk():
    settings = PluginSettings()
    capture = settings.capture
    assert (capture.max_messages, capture.min_length, capture.max_length) == (10, 2, 64_000)
    assert (capture.strategy, capture.debounce_ms) == (CaptureStrategy.AGENT_END, 5000)
    recall = settings.recall
    assert (recall.max_results, recall.min_score) == (10, 0.3)
    assert (recall.min_prompt_length, recall.max_tokens) == (10, 768)
    active = settings.active
    assert (active.max_summary_chars, active.recent_user_turns, active.recent_assistant_turns) == (220, 2, 1)
    assert (active.recent_user_chars, active.recent_assistant_chars) == (220, 180)
    assert active.cache_ttl_ms == 15_000


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("MEMRELAY_URLL", "MEMRELAY_URL"),
        ("MEMRELAY_DISABLED", "MEMRELAY_DISABLE"),
        ("MEMRELAY_SECERT", "MEMRELAY_SECRET"),
        ("MEMRELAY_SECRETFILE", "MEMRELAY_SECRET_FILE"),
        ("memrelay_agent", "MEMRELAY_AGENT"),
        ("MEMRELAY_DEFAULT_NAMESPACES", "MEMRELAY_DEFAULT_NAMESPACE"),
    ],
)
def test_a_misspelt_variable_is_refused_with_the_nearest_one(written, meant):
    with pytest.raises(SettingsError) as caught:
        load_settings({}, {written: "5e5e"})
    assert str(caught.value) == f"{written}: is not a setting; did you mean {meant}?"
    load_settings({}, {written: ""})


def test_variables_of_a_relayer_and_of_others_are_left_alone():
    relayers = [f"MEMRELAY_{name.upper()}" for name in RelayerSettings.model_fields]
    links = ["MEMRELAY_SERVICE_HOST", "MEMRELAY_PORT_8787_TCP_ADDR", "MEMRELAY_E2E", "MEMRELAY_SKILL"]
    load_settings({}, dict.fromkeys([*relayers, *links], "1"))


def test_every_variable_that_the_plugin_reads_is_known():
    plugin = Path(gateway_plugin.__file__).parent
    named = {
        name
        for file in plugin.rglob("*.*")
        if file.suffix in {".py", ".js"}
        for name in re.findall(r"MEMRELAY_[A-Z_]+[A-Z]", file.read_text(encoding="utf-8"))
    }
    load_settings({}, dict.fromkeys(named, "http://127.0.0.1:1"))


# Cron lines: when the next time is, and what is no cron line.
def local(text: str) -> float:
    return datetime.fromisoformat(text).astimezone().timestamp()


@pytest.mark.parametrize(
    ("line", "moment", "due"),
    [
        ("0 3 * * *", "2026-05-04 02:59:59", "2026-05-04 03:00"),
        ("0 3 * * *", "2026-05-04 03:00", "2026-05-05 03:00"),
        ("0 12 1 * 7", "2026-05-04 00:00", "2026-05-10 12:00"),
    ],
)
def test_the_next_time_is_the_first_one_that_fits_behind_a_moment(line: str, moment: str, due: str) -> None:
    assert next_time(line, local(moment)) == local(due)


@pytest.mark.parametrize(
    ("moment", "due"),
    [
        # 2:30 does not exist on 29 March, and twice on 25 October.
        ("2026-03-28 03:00+01:00", "2026-03-29 03:30+02:00"),
        ("2026-10-25 01:00+02:00", "2026-10-25 02:30+02:00"),
        ("2026-10-25 02:30+02:00", "2026-10-26 02:30+01:00"),
        ("2026-10-25 02:10+01:00", "2026-10-26 02:30+01:00"),
    ],
)
def test_a_day_on_which_clocks_are_set_has_the_time_once(
    monkeypatch: pytest.MonkeyPatch, moment: str, due: str
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert next_time("30 2 * * *", local(moment)) == local(due)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "line",
    [
        "", "0 3 * *", "60 3 * * *", "* * * * * *", "0 0 31 2 *",
    ],
)  # fmt: skip
def test_what_is_no_schedule_is_refused_by_name(line: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings({"consolidation": {"schedule": line}}, {})
    assert "consolidation.schedule" in str(refused.value)
