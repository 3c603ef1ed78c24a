"""What ``/dreaming`` answers in a chat of OpenClaw, and what it writes into the host's configuration."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from openclaw_node import NODE, PluginInNode

pytestmark = pytest.mark.skipif(NODE is None, reason="needs Node.js")
Typed = Callable[..., tuple[str, dict[str, Any]]]


@pytest.fixture
def typed(tmp_path: Path) -> Typed:
    """Returns what the owner is answered in a direct chat, and the plugin's settings in the configuration afterwards."""

    def run(words: str, written: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        own = written or {}
        body = f"""
        const draft = {{ plugins: {{ entries: {{ memrelay: {{ config: {json.dumps(own)} }} }} }} }};
        known.runtime = {{ config: {{ mutateConfigFile: async ({{ mutate }}) => mutate(draft) }} }};
        await up();
        const ctx = {{ args: "{words}", sessionKey: "agent:main:main", gatewayClientScopes: ["operator.admin"] }};
        answers.text = (await commands.dreaming(ctx)).text;
        answers.config = draft.plugins.entries.memrelay.config;
        """
        host = {"plugins": {"slots": {"memory": "memrelay"}}}
        _, answers = PluginInNode(tmp_path)(body, config=own | {"dreaming": {"enabled": False}}, host=host)
        return answers["text"], answers["config"]

    return run


def test_switching_dreaming_on_says_what_will_happen_and_what_will_not(typed: Typed) -> None:
    text, config = typed("on", {"consolidation": {"schedule": "30 4 * * *"}})
    assert config == {"consolidation": {"schedule": "30 4 * * *", "enabled": True}}
    assert text.startswith("Dreaming is on as soon as OpenClaw has read its configuration again.\n")
    assert "schedule: 30 4 * * *, local time" in text
    assert "pinned: what 3 turns and 3 different questions needed" in text
    assert "repeated and replaced memories: proposed, not removed (consolidation.apply is false)" in text
    assert "MEMORY.md, DREAMS.md: not written; to write them: /dreaming on files" in text


def test_dreaming_with_files_writes_them_too_and_off_stops_both(typed: Typed) -> None:
    text, config = typed("on files")
    assert config == {"consolidation": {"enabled": True, "writeFiles": True}}
    assert "MEMORY.md, DREAMS.md: written" in text
    text, config = typed("off files", config)
    assert config == {"consolidation": {"enabled": True, "writeFiles": False}}
    assert text.startswith("Dreaming stays on")
    text, config = typed("off", config)
    assert config == {"consolidation": {"enabled": False, "writeFiles": False}}
    assert text.startswith("Dreaming is off as soon as")
    assert "Nothing is pinned, proposed or written" in text


def test_settings_that_are_spelled_with_dots_are_replaced_and_not_contradicted(typed: Typed) -> None:
    dotted = {"consolidation.enabled": False, "consolidation.apply": True}
    text, config = typed("on", dotted)
    assert config == {"consolidation.apply": True, "consolidation": {"enabled": True}}
    assert "repeated and replaced memories: removed" in text


def test_another_word_changes_nothing_and_the_commands_are_shown(typed: Typed) -> None:
    for words in ("on everything", "on files now"):
        text, config = typed(words)
        assert config == {}
        assert "/dreaming on files" in text
