"""The ``memrelay`` command, as far as it needs no relayer."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from gateway_plugin import cli as gateway_cli
from relayer import cli
from relayer.commands import account_work, deferred, operator_work, server
from relayer.settings.config import GROUPS, RelayerSettings

RUN = CliRunner()


def _without(module: str, *options: str, data: str | Path = "/dev/null") -> subprocess.CompletedProcess[str]:
    """Run ``memrelay serve`` in a process in which a module cannot be imported."""
    code = (
        "import sys; sys.modules[sys.argv[1]] = None; sys.argv[1:2] = ['serve', '--port', '0'];"
        "from relayer.__main__ import main; main()"
    )
    return subprocess.run(
        [sys.executable, "-c", code, module, "--data", str(data), *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("package", ["aiohttp", "pydantic_settings", "structlog", "msgspec"])
def test_a_missing_package_is_told_with_the_command_that_installs_it(package: str) -> None:
    ended = _without(package)
    assert ended.returncode == 2
    assert "pip install '.[relayer]'" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_spans_without_the_extra_end_the_start_with_the_command_that_installs_it(tmp_path: Path) -> None:
    ended = _without("opentelemetry", "--otlp-url", "http://127.0.0.1:4318", data=tmp_path)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1] == (
        "memrelay: --otlp-url needs OpenTelemetry's exporter: pip install '.[relayer,otlp]' in a clone of memrelay"
    )


def test_a_missing_module_of_our_own_is_no_matter_of_installing() -> None:
    ended = _without("relayer.http.server")
    assert ended.returncode == 70
    assert ended.stderr.startswith("memrelay: a defect ended this command: ModuleNotFoundError at relayer/")
    assert ended.stderr.count("\n") == 1


def test_a_wrong_setting_is_one_line_and_exit_code_2() -> None:
    ended = RUN.invoke(cli.app, ["serve", "--rate-limits", "sometimes"])
    assert ended.exit_code == 2
    assert ended.output.splitlines() == [
        "memrelay: --rate-limits (MEMRELAY_RATE_LIMITS): Input should be 'on' or 'off'"
    ]


def _help(*arguments: str) -> str:
    ended = RUN.invoke(cli.app, [*arguments], env={"COLUMNS": "400"})
    assert ended.exit_code == 0, ended.output
    return ended.output


def test_every_setting_is_an_option_of_serve_but_keys_and_their_files() -> None:
    shown = set(re.findall(r"--([a-z0-9-]+) ", _help("serve", "--help")))
    keys = {name for name in RelayerSettings.model_fields if re.search("(key|token)(_file)?$", name)} - {
        "tls_key"
    }
    assert len(keys) == 9
    assert shown == {name.replace("_", "-") for name in RelayerSettings.model_fields if name not in keys} | {
        "help"
    }


def test_the_help_has_groups_with_defaults_and_units() -> None:
    shown = _help("serve", "-h")
    assert shown == _help("serve", "--help")
    for group in GROUPS:
        assert group.__doc__.rstrip(".") in shown
    assert re.search(r"--model-timeout +SECONDS\|12h +For one answer. Default: 1m.", shown)
    assert re.search(r"--cache-bytes +BYTES\|512M +Maximum memory of open namespaces. Default: 512M.", shown)
    assert "on or off. Default: on." in shown


def test_a_command_takes_the_settings_that_it_is_about() -> None:
    shown = set(re.findall(r"--([a-z0-9-]+) ", _help("store", "probe", "-h")))
    assert shown == {"data", "store", "endpoint-url", "region", "config", "json", "help"}


@pytest.mark.parametrize("app", [cli.app, gateway_cli.app])
def test_every_command_of_both_programs_is_explained_by_a_letter(app: typer.Typer) -> None:
    for arguments in ([], ["keys"], ["version"]):
        ended = RUN.invoke(app, [*arguments, "-h"])
        assert ended.exit_code == 0, ended.output
        assert "Usage:" in ended.output


def test_the_list_of_the_operators_commands_says_what_their_functions_say() -> None:
    summaries = {name: getattr(operator_work, name).__doc__.partition("\n")[0] for name in deferred._COMMANDS}
    assert summaries == deferred._COMMANDS
    summaries = {
        name: getattr(account_work, name).__doc__.partition("\n")[0] for name in deferred._ACCOUNT_COMMANDS
    }
    assert summaries == deferred._ACCOUNT_COMMANDS
    for _, _, function, summary, _ in cli._SERVER_COMMANDS:
        assert summary == getattr(server, function).__doc__.partition("\n")[0]


def test_the_list_of_commands_needs_no_package_of_the_extra() -> None:
    extra = ("numpy", "msgspec", "pydantic", "usearch", "onnxruntime")
    listed = f"import sys, relayer.cli; print([one for one in {extra} if one in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", listed], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"


def test_a_key_is_no_option() -> None:
    ended = RUN.invoke(cli.app, ["serve", "--relayer-key", "5e" * 32])
    assert ended.exit_code == 2
    assert "No such option" in ended.output
    assert "5e5e" not in ended.output


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
