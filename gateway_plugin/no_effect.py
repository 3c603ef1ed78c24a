"""Settings that are accepted, so that a configuration of an earlier plugin keeps working, and that change nothing here.

Nobody should look for the effect of a setting that has none: the command line and the chat say which of them are set.
"""

from __future__ import annotations

from typing import Final

from gateway_plugin.settings import PluginSettings

REASONS: Final = {
    "active.fastMode": "the model is the relayer's; how fast it is served is set there",
    "active.toolsAllow": "the relayer searches for the model, which is given no tools",
    "accountId": "the account is the one of this gateway's secret",
}
"""Why each has no effect, and what to use instead where there is something."""


def without_effect(settings: PluginSettings, account: str) -> tuple[str, ...]:
    """Return a sentence for each setting that was made and changes nothing, without its value.

    Args:
        settings: those of the gateway.
        account: the account of the gateway's secret; an ``accountId`` that says the same is no surprise.
    """
    told = {
        "active.fastMode": settings.active.fast_mode,
        "active.toolsAllow": "tools_allow" in settings.active.model_fields_set,
        "accountId": settings.account_id is not None and settings.account_id.lower() != account,
    }
    return tuple(f"{name} has no effect: {REASONS[name]}" for name, is_set in told.items() if is_set)
