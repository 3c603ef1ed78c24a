"""What the host's interface shows beside each of the plugin's settings, asked of the running gateway as that interface asks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from openclaw_gateway import Gateway

from gateway_plugin.hosts.openclaw.manifest import config_schema

AT = "plugins.entries.memrelay.config"


def settings_of(schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Every dotted name that a person can set."""
    for name, inner in schema.get("properties", {}).items():
        yield f"{prefix}{name}"
        yield from settings_of(inner, f"{prefix}{name}.")


@pytest.mark.row("CP-17", level="e2e")
def test_the_hosts_interface_has_a_label_and_a_help_for_every_setting_and_hides_the_secret(
    gateway: Gateway,
) -> None:
    hints = gateway.call("config.schema", {})["uiHints"]
    settings = list(settings_of(config_schema()))
    assert len(settings) > 100
    unlabelled = [
        name
        for name in settings
        if not hints.get(f"{AT}.{name}", {}).get("label") or len(hints[f"{AT}.{name}"].get("help", "")) < 10
    ]
    assert unlabelled == []
    hidden = {name for name in settings if hints[f"{AT}.{name}"].get("sensitive")}
    assert hidden == {"key", "privateKey"}
    shown_first = {name for name in settings if not hints[f"{AT}.{name}"].get("advanced")}
    assert shown_first == {"url", "key", "autoRecall", "autoCapture"}


@pytest.mark.row("CP-17", level="e2e")
def test_the_secret_is_not_shown_by_the_gateway_that_has_it(gateway: Gateway) -> None:
    secret = gateway.environment["MY_MEMORY_SECRET"]
    plugins = gateway.config()["plugins"]
    entry = plugins["entries"]["memrelay"]
    with_key = entry | {"config": entry["config"] | {"key": secret}}
    gateway.reload(plugins | {"entries": plugins["entries"] | {"memrelay": with_key}})
    try:
        assert secret not in str(gateway.call("config.get", {}))
    finally:
        gateway.reload(plugins)
