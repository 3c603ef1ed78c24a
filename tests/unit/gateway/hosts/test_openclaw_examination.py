"""What doctor finds in OpenClaw's configuration: one failing check for each thing that keeps memory from working."""

from __future__ import annotations

import json

import pytest

from gateway_plugin import __version__
from gateway_plugin.errors import SettingsError
from gateway_plugin.hosts.openclaw.config import (
    CONFIG_VARIABLE,
    HostConfig,
    command_environment,
    config_path,
    read_config,
    settings_block,
)
from gateway_plugin.hosts.openclaw.examination import bridge_program, check_config
from gateway_plugin.hosts.openclaw.manifest import FOLDER
from gateway_plugin.settings.model import load_settings


@pytest.fixture
def failing(tmp_path):
    """Writes a configuration, as the installer leaves it but for some values, and returns what doctor finds wrong with it."""

    def run(environ=None, **changed):
        block = settings_block(url="http://127.0.0.1:8787", command="/bin/x", consent=True)
        plugins = block["plugins"] | {"load": {"paths": [str(FOLDER)]}}
        whole = {"plugins": plugins} | {key: value for key, value in changed.items() if key != "plugins"}
        whole["plugins"] = {**plugins, **changed.get("plugins", {})}
        (tmp_path / "openclaw.json").write_text(json.dumps(whole))
        surroundings = {"OPENCLAW_STATE_DIR": str(tmp_path), **(environ or {})}
        checks = check_config(read_config(surroundings), surroundings)
        return {check.name.removeprefix("openclaw "): check for check in checks if not check.ok}

    return run


def entries(**changed):
    block = settings_block(url="http://127.0.0.1:8787", command="/bin/x", consent=True)
    known = block["plugins"]["entries"]
    return {"entries": known | {"memrelay": known["memrelay"] | changed}}


def test_what_the_settings_command_prints_is_found_in_order(failing):
    assert failing() == {}


@pytest.mark.parametrize(
    ("environ", "whole", "warned"),
    [
        ({}, {}, True),
        ({"OPENCLAW_TRAJECTORY": "1"}, {}, True),
        ({"OPENCLAW_TRAJECTORY": "off"}, {}, False),
        ({}, {"env": {"vars": {"OPENCLAW_TRAJECTORY": "0"}}}, False),
        ({}, {"env": {"OPENCLAW_TRAJECTORY": "0"}}, False),
    ],
)
def test_a_host_that_keeps_whole_prompts_in_the_clear_is_warned_of(tmp_path, environ, whole, warned):
    (tmp_path / "openclaw.json").write_text(json.dumps(whole))
    surroundings = {"OPENCLAW_STATE_DIR": str(tmp_path), **environ}
    checks = check_config(read_config(surroundings), surroundings)
    [check] = [check for check in checks if check.name == "openclaw flight recorder"]
    assert (check.ok, check.warning) == (True, warned)
    assert "env.vars.OPENCLAW_TRAJECTORY off" in check.fix


def test_the_hosts_file_of_variables_switches_the_recorder_off_too(tmp_path):
    (tmp_path / "openclaw.json").write_text("{}")
    (tmp_path / ".env").write_text("OTHER=1\nexport OPENCLAW_TRAJECTORY='false'\n")
    surroundings = {"OPENCLAW_STATE_DIR": str(tmp_path)}
    checks = check_config(read_config(surroundings), surroundings)
    [check] = [check for check in checks if check.name == "openclaw flight recorder"]
    assert not check.warning


@pytest.mark.row("CP-03")
def test_a_slot_that_another_plugin_holds_is_named_with_its_holder_and_the_way_out(failing):
    check = failing(plugins={"slots": {"memory": "memory-lancedb"}})["memory slot"]
    assert (check.name, check.found) == ("openclaw memory slot", "held by memory-lancedb")
    assert "plugins.slots.memory" in check.fix
    assert "--sidecar" in check.fix


def test_the_newer_name_of_the_slot_decides(failing):
    assert "memory slot" in failing(plugins={"slots": {"memory": "memrelay", "memory.recall": "memory-core"}})


@pytest.mark.row("CP-04", "CP-07")
def test_a_second_owner_of_the_tools_is_named(failing):
    [check] = failing(plugins=entries(config={"url": "http://127.0.0.1:8787"})).values()
    assert check.name == "openclaw tool owners"
    assert "memory-core" in check.found
    assert "plugins.entries.memrelay.config.dreaming.enabled false" in check.fix


def test_a_second_owner_that_the_host_does_not_load_is_none(failing):
    only = {"entries": {"memrelay": entries()["entries"]["memrelay"]}, "allow": ["memrelay"]}
    assert failing(plugins=only) == {}


@pytest.mark.row("CP-06")
@pytest.mark.parametrize(
    ("plugins", "why"),
    [
        (entries(enabled=False), "plugins.entries.memrelay.enabled is false"),
        ({"deny": ["memrelay"]}, "plugins.deny names it"),
        ({"allow": ["memory-core"]}, "plugins.allow does not name it"),
        ({"enabled": False}, "plugins.enabled is false"),
    ],
)
def test_a_plugin_that_is_not_loaded_is_told_why_and_how_to_enable_it(failing, plugins, why):
    check = failing(plugins=plugins)["plugin"]
    assert check.found == why
    assert "openclaw plugins enable memrelay" in check.fix


@pytest.mark.row("MW-02")
@pytest.mark.parametrize(
    ("tools", "agents"),
    [
        ({"allow": ["read"]}, {}),
        ({"deny": ["memory_search"]}, {}),
        ({}, {"ops": {"tools": {"allow": ["read"]}}}),
    ],
)
def test_tools_that_a_list_hides_are_named_with_the_list(failing, tools, agents):
    [check] = failing(tools=tools, agents={"entries": agents}).values()
    assert check.name == "openclaw tools"
    assert "tools.allow" in check.found or "tools.deny" in check.found


def test_a_list_that_adds_the_tools_hides_nothing(failing):
    assert failing(tools={"allow": ["read"], "alsoAllow": ["memory_search"]}) == {}


def test_a_variable_that_is_not_set_is_named(failing):
    config = {"url": "http://127.0.0.1:8787", "key": "${OUR_SECRET}", "dreaming": {"enabled": False}}
    assert failing(plugins=entries(config=config))["variables"].found == "not set here: OUR_SECRET"
    assert failing({"OUR_SECRET": "7b" * 32}, plugins=entries(config=config)) == {}


@pytest.mark.row("CP-05")
def test_a_copy_of_another_version_is_named_with_both(failing, tmp_path):
    copy = tmp_path / "extensions" / "memrelay"
    copy.mkdir(parents=True)
    (copy / "openclaw.plugin.json").write_text(json.dumps({"id": "memrelay", "version": "0.0.9"}))
    [check] = failing().values()
    assert check.name == "openclaw installed"
    assert ("0.0.9" in check.found, __version__ in check.found) == (True, True)


def test_no_copy_at_all_is_told_how_to_install_one(failing):
    assert "plugins install" in failing(plugins={"load": {"paths": []}})["installed"].fix


def test_the_sidecar_is_asked_neither_for_the_slot_nor_for_tools(failing):
    told = {"memrelay-sidecar": {"enabled": True, "hooks": {"allowConversationAccess": True}}}
    assert set(failing(plugins={"entries": told, "slots": {}})) == {"installed"}


def test_comments_and_last_commas_are_read_as_the_host_reads_them(tmp_path):
    text = '{ // the "gateway"\n "plugins": { "slots": {"memory": "memrelay",}, /* a, } */ "x": "http://a//b, }" },\n}'
    (tmp_path / "openclaw.json").write_text(text)
    config = read_config({"OPENCLAW_CONFIG_PATH": str(tmp_path / "openclaw.json")})
    assert (config.slot, config.plugins["x"]) == ("memrelay", "http://a//b, }")


@pytest.mark.parametrize("content", [None, "{", b"\xff"])
def test_a_configuration_that_cannot_be_read_is_named_and_nothing_of_it_repeated(tmp_path, content):
    file = tmp_path / "openclaw.json"
    if content is not None:
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(SettingsError, match=r"openclaw\.json"):
        read_config({"OPENCLAW_STATE_DIR": str(tmp_path)})


def test_the_configuration_is_looked_for_where_the_host_looks(tmp_path):
    home = {"HOME": str(tmp_path)}
    assert config_path(home) == tmp_path / ".openclaw/openclaw.json"
    assert config_path(home | {"OPENCLAW_CONFIG_PATH": "/etc/oc.json"}).name == "oc.json"


def test_the_bridge_is_the_program_that_the_host_would_run(tmp_path):
    (tmp_path / "openclaw.json").write_text(
        json.dumps({"plugins": entries(config={"command": ["/bin/y", "-m"]})})
    )
    config = read_config({"OPENCLAW_STATE_DIR": str(tmp_path)})
    assert bridge_program(config, {}) == ("/bin/y", "-m")


def test_an_installed_package_names_its_program_where_the_settings_do_not(tmp_path):
    copy = tmp_path / "state" / "extensions" / "memrelay"
    copy.mkdir(parents=True)
    (copy / "package.json").write_text(json.dumps({"memrelay": {"command": "/opt/bin/memrelay-gateway"}}))
    environ = {"OPENCLAW_STATE_DIR": str(tmp_path / "state")}
    assert bridge_program(HostConfig(tmp_path, {}), environ) == ("/opt/bin/memrelay-gateway",)
    assert bridge_program(HostConfig(tmp_path, {}), {}) == ("memrelay-gateway",)


def told(**config):
    return {CONFIG_VARIABLE: json.dumps(config)}


@pytest.mark.parametrize(
    "config",
    [
        {"serverUrl": "http://127.0.0.1:1", "privateKey": "7b" * 32, "agent": "ops"},
        {"url": "http://127.0.0.1:1", "key": "7b" * 32, "agent": "ops"},
        {"url": "http://127.0.0.1:1", "key": "7b" * 32, "agent": "ops", "recall": {"maxResults": 3}},
    ],
)
def test_a_command_of_the_host_understands_every_spelling_that_the_plugin_does(config):
    assert command_environment(told(**config)) == {
        "MEMRELAY_URL": "http://127.0.0.1:1", "MEMRELAY_AGENT": "ops", "MEMRELAY_SECRET": "7b" * 32,
    }  # fmt: skip


@pytest.mark.parametrize(
    "config",
    [{"defaultNamespace": "home"}, {"namespace.default": "home"}, {"namespace": {"default": "home"}}],
)
def test_a_command_of_the_host_finds_the_default_agent_where_the_plugin_does(config):
    assert command_environment(told(**config)) == {"MEMRELAY_DEFAULT_NAMESPACE": "home"}


@pytest.mark.parametrize(
    ("profile", "config", "expected"),
    [
        ("dev", {}, "dev"),
        ("dev", {"namespace": {"default": "home"}}, "dev"),
        ("dev", {"namespace.profile": "default"}, "default"),
        ("dev", {"namespace": {"profile": "work"}}, "work"),
        ("dev", {"recall": {"maxResult": 3}}, "dev"),
        ("Default", {}, None),
        (" ", {}, None),
    ],
)
def test_a_command_of_the_host_reads_the_profile_that_the_plugin_does(profile, config, expected):
    found = command_environment(told(**config) | {"OPENCLAW_PROFILE": profile})
    assert found.get("MEMRELAY_PROFILE") == expected


def test_a_wrong_setting_elsewhere_sends_a_command_to_no_other_relayer():
    found = command_environment(told(url="http://127.0.0.1:1", agent="ops", recall={"maxResult": 3}))
    assert found == {"MEMRELAY_URL": "http://127.0.0.1:1", "MEMRELAY_AGENT": "ops"}


def test_a_reference_to_the_environment_is_resolved_for_a_command():
    environ = told(key={"source": "env", "id": "OURS"}) | {"OURS": "7b" * 32}
    assert command_environment(environ) == {"MEMRELAY_SECRET": "7b" * 32}


def test_a_reference_that_only_the_gateway_resolves_is_refused_rather_than_another_account_used():
    with pytest.raises(SettingsError, match=r"config\.key.*MEMRELAY_SECRET"):
        command_environment(told(key={"source": "exec", "id": "vault"}))
    assert command_environment(told(key={"source": "exec"}) | {"MEMRELAY_SECRET": "7b" * 32}) == {}


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_without_settings_of_the_plugin_a_command_is_memrelay_gateways_own(text):
    assert command_environment({CONFIG_VARIABLE: text}) == {}


@pytest.mark.row("AM-15")
@pytest.mark.parametrize(
    ("llm", "version", "told"),
    [
        ({}, "", False),
        ({}, "2026.9.2", False),
        ({}, "2026.9.1", True),
        ({}, "2026.10.0-beta.1", False),
        ({"allowAgentIdOverride": True}, "2026.9.1", False),
        ({"allowAgentIdOverride": False}, "2026.9.6", True),
        ({"allowedCompletionModels": ["a/b"]}, "2026.9.6", True),
    ],
)
def test_the_setting_that_lets_active_mode_ask_another_agents_model_is_named_where_it_is_needed(
    tmp_path, llm, version, told
):
    active = {"recall": {"mode": "active"}, "active": {"agents": ["a", "b"]}, "hostModel": {"enabled": True}}
    agents = {"agents": {"entries": {"a": {}, "b": {}}}}
    config = HostConfig(tmp_path, agents | {"plugins": entries(llm=llm, config=active)}, version)
    needs = config.active_needs(load_settings(active, {}))
    assert ("memrelay.llm.allowAgentIdOverride true" in needs) is told
