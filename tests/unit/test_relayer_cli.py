"""The ``memrelay`` command, as far as it needs no relayer."""

from __future__ import annotations

import importlib.metadata
import sys

import pytest
from typer.testing import CliRunner

from relayer import cli

RUN = CliRunner()


def test_a_missing_package_is_told_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    for name in [name for name in sys.modules if name.split(".")[0] == "relayer" and name != "relayer"]:
        if name.startswith(("relayer.server_commands", "relayer.bootstrap", "relayer.http")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("relayer.server_commands", raising=False)
    ended = RUN.invoke(cli.app, ["serve"])
    assert ended.exit_code == 2
    assert "pip install 'memrelay[relayer]'" in ended.output
    assert len(ended.output.splitlines()) == 1


def test_a_missing_module_of_our_own_is_no_matter_of_installing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "relayer.server_commands", None)
    monkeypatch.delattr("relayer.server_commands", raising=False)
    ended = RUN.invoke(cli.app, ["serve"])
    assert isinstance(ended.exception, ImportError)


def test_a_wrong_setting_is_one_line_and_exit_code_2() -> None:
    ended = RUN.invoke(cli.app, ["serve", "--rate-limits", "sometimes"])
    assert ended.exit_code == 2
    assert ended.output.splitlines() == [
        "memrelay: --rate-limits (MEMRELAY_RATE_LIMITS): Input should be 'on' or 'off'"
    ]


def test_a_sheet_needs_a_key(tmp_path) -> None:
    ended = RUN.invoke(cli.app, ["keys", "recovery", "--data", str(tmp_path)])
    assert ended.exit_code == 2
    assert "no relayer key yet" in ended.output


def test_a_command_of_the_plugin_is_handed_over_with_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    entry = importlib.metadata.EntryPoint("memrelay-gateway", "plugin_probe:main", "console_scripts")
    probe = type(sys)("plugin_probe")
    probe.main = lambda: seen.append(list(sys.argv))
    monkeypatch.setitem(sys.modules, "plugin_probe", probe)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: [entry])
    monkeypatch.setattr(sys, "argv", ["memrelay"])
    ended = RUN.invoke(cli.app, ["search", "green umbrellas", "--limit", "3", "--help"])
    assert ended.exit_code == 0, ended.output
    assert seen == [["memrelay-gateway", "search", "green umbrellas", "--limit", "3", "--help"]]


def test_without_the_plugin_s_command_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: [])
    ended = RUN.invoke(cli.app, ["list"])
    assert ended.exit_code == 2
    assert "memrelay-gateway is not installed" in ended.output
