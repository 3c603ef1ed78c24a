from __future__ import annotations

from gateway_plugin.errors import RelayerRefused, SettingsError, SettingsIssue


def test_a_refusal_carries_what_the_caller_decides_on():
    refused = RelayerRefused("wrong_namespace_key", "another secret made it", status=409, request_id="r-1")
    assert (refused.code, refused.detail, refused.status, refused.request_id) == (
        "wrong_namespace_key",
        "another secret made it",
        409,
        "r-1",
    )
    assert "409 wrong_namespace_key" in str(refused)
    assert "r-1" in str(refused)


def test_a_settings_error_says_every_issue_on_its_own_line():
    error = SettingsError(SettingsIssue("a", "is wrong", "mend it"), SettingsIssue("", "is no object", ""))
    assert str(error) == "a: is wrong; mend it\nis no object"
    assert len(error.issues) == 2
