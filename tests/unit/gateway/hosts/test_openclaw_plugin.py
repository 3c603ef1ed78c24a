"""The shipped plugin: its files agree with the code, and its manifest takes what the settings take."""

from __future__ import annotations

import json
import re
import runpy
import tarfile
from pathlib import Path

import pytest

from gateway_plugin.hosts.openclaw.config import core_config, settings_block, settings_steps
from gateway_plugin.hosts.openclaw.manifest import (
    FOLDER,
    config_schema,
    manifest,
    package_files,
    sidecar_manifest,
    tool_file,
    write_package,
)
from gateway_plugin.settings.crosswalk import ALIASES, PRESETS
from gateway_plugin.settings.model import load_settings, safe_load
from gateway_plugin.tools.arguments import TOOL_NAMES


def shipped(name):
    return json.loads((FOLDER / name).read_text("utf-8"))


@pytest.mark.parametrize(("name", "made"), [("openclaw.plugin.json", manifest), ("tools.json", tool_file)])
def test_shipped_files_are_what_the_code_makes(name, made):
    assert shipped(name) == made(), "run: python -m gateway_plugin.hosts.openclaw.manifest"


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
def test_the_module_writes_both_files_when_it_is_run(monkeypatch):
    written = {}
    monkeypatch.setattr(Path, "write_bytes", lambda path, content: written.update({path.name: content}))
    runpy.run_module("gateway_plugin.hosts.openclaw.manifest", run_name="__main__")
    assert written == {name: (FOLDER / name).read_bytes() for name in ("openclaw.plugin.json", "tools.json")}


@pytest.mark.row("MW-23", "CP-43")
def test_every_tool_that_is_registered_is_declared():
    declared = shipped("openclaw.plugin.json")["contracts"]["tools"]
    assert tuple(declared) == (*TOOL_NAMES, "intent")
    assert [tool["name"] for tool in shipped("tools.json")["tools"]] == declared


@pytest.mark.row("CP-02", "MW-01")
def test_the_plugin_asks_for_the_memory_slot():
    assert (manifest()["id"], manifest()["kind"]) == ("memrelay", "memory")


@pytest.mark.row("AR-24", "MW-03", "AR-22")
def test_the_sidecar_asks_for_neither_the_slot_nor_tools():
    files = package_files(sidecar=True)
    told = json.loads(files["openclaw.plugin.json"])
    assert told == sidecar_manifest()
    assert not {"kind", "contracts", "toolMetadata", "skills"} & told.keys()


def settings_of(schema, prefix=""):
    """Every dotted name that a person can set."""
    for name, inner in schema["properties"].items():
        yield f"{prefix}{name}"
        if "properties" in inner:
            yield from settings_of(inner, f"{prefix}{name}.")


@pytest.mark.row("CP-17")
def test_every_setting_has_a_label_and_a_help_and_no_hint_is_about_nothing():
    told = shipped("openclaw.plugin.json")
    assert set(told["uiHints"]) == set(settings_of(told["configSchema"]))
    assert [
        name for name, hint in told["uiHints"].items() if not (hint["label"] and len(hint["help"]) > 10)
    ] == []


@pytest.mark.row("CP-17", "MW-27")
def test_every_name_of_the_secret_is_marked_as_one_and_nothing_else_is():
    hints = shipped("openclaw.plugin.json")["uiHints"]
    assert {name for name, hint in hints.items() if hint.get("sensitive")} == {"key", "privateKey"}


def test_a_hint_tells_bounds_and_default_of_the_setting_itself():
    assert "(1 to 100); by default 10" in manifest()["uiHints"]["recall.maxResults"]["help"]


def test_the_secret_is_marked_as_one_and_may_be_a_reference():
    told = manifest()
    assert told["uiHints"]["key"]["sensitive"] is True
    assert {"path": "key", "expected": "string", "ownerKind": "capability"} in told["configContracts"][
        "secretInputs"
    ]["paths"]
    assert {"type": "object"} in told["configSchema"]["properties"]["key"]["anyOf"]


@pytest.mark.row("CP-10")
def test_the_host_accepts_every_key_that_the_plugin_accepts():
    properties = config_schema()["properties"]
    assert set(ALIASES) <= set(properties)
    assert set(properties["preset"]["enum"]) == set(PRESETS)
    assert load_settings({"autoRecall": True, "autoCapture": True}, {}).recall.enabled


def test_the_schema_refers_to_nothing_outside_itself_and_requires_nothing():
    text = json.dumps(config_schema())
    assert "$ref" not in text
    assert "required" not in config_schema()


@pytest.mark.row("MS-13")
def test_the_skill_ships_and_names_only_tools_that_exist():
    text = package_files()["skills/memory-recall/SKILL.md"].decode()
    assert text.startswith("---\nname: memory-recall\n")
    named = {word.strip("`,:.") for word in text.split() if word.startswith("`memory_")}
    assert named <= set(TOOL_NAMES)
    assert {"memory_search", "memory_get", "memory_transcript"} <= named


@pytest.mark.row("AR-26")
def test_the_package_names_the_oldest_host_that_it_works_on():
    told = shipped("package.json")["openclaw"]
    assert told["compat"]["pluginApi"] == told["install"]["minHostVersion"] == ">=2026.3.11"


@pytest.mark.parametrize("sidecar", [False, True])
def test_the_package_holds_what_the_program_reads_and_is_the_same_each_time(tmp_path, sidecar):
    file = write_package(tmp_path, sidecar=sidecar)
    first = file.read_bytes()
    assert write_package(tmp_path, sidecar=sidecar).read_bytes() == first
    with tarfile.open(file) as archive:
        names = set(archive.getnames())
    code = {"index.js", "bridge.js", "chat.js", "kept.js", "log.js", "model.js", "runs.js", "workspace.js"}
    wanted = code | {"tools.json", "package.json", "openclaw.plugin.json"}
    assert {f"package/{name}" for name in wanted} <= names


def test_the_program_needs_nothing_but_node():
    for file in FOLDER.glob("*.js"):
        imported = re.findall(r'^import .* from "(.*)";', file.read_text(), re.MULTILINE)
        assert all(name.startswith(("node:", "./")) for name in imported), file.name


@pytest.mark.parametrize("key", ["${NOT_SET}", {"source": "env", "provider": "default", "id": "NOT_SET"}])
def test_a_secret_that_refers_to_nothing_names_the_variable_in_one_line(key):
    error = safe_load(core_config({"key": key}, {}), {}).error
    assert str(error).startswith("key: ")
    assert "NOT_SET, which is not set" in str(error)
    assert "\n" not in str(error)


def test_without_consent_the_settings_leave_conversation_access_out():
    block = settings_block(url="http://127.0.0.1:8787", command="/bin/x", consent=False)
    assert "hooks" not in block["plugins"]["entries"]["memrelay"]


@pytest.mark.row("MS-07", "CP-03", "CP-07")
def test_with_consent_the_settings_hold_slot_access_and_no_second_memory():
    plugins = settings_block(url="http://127.0.0.1:8787", command="/bin/x", consent=True)["plugins"]
    assert plugins["slots"] == {"memory": "memrelay"}
    assert plugins["entries"]["memrelay"]["hooks"] == {"allowConversationAccess": True}
    assert plugins["entries"]["memrelay"]["config"]["dreaming"] == {"enabled": False}


def test_the_sidecars_settings_leave_the_slot_to_whom_it_belongs():
    block = settings_block(url="http://127.0.0.1:8787", command="/bin/x", consent=True, sidecar=True)
    assert set(block["plugins"]) == {"entries"}
    assert "memrelay-sidecar" in settings_steps(block, "x.tgz")


@pytest.mark.parametrize("sidecar", [False, True])
def test_a_package_names_the_program_that_made_it_and_the_folder_of_the_source_names_none(sidecar):
    told = json.loads(
        package_files(sidecar=sidecar, command="/opt/venv/bin/memrelay-gateway")["package.json"]
    )
    assert told["memrelay"] == {"command": "/opt/venv/bin/memrelay-gateway"}
    assert "memrelay" not in shipped("package.json")


def test_settings_without_a_relayer_leave_it_to_the_one_of_this_machine():
    block = settings_block(url=None, command="/bin/x", consent=True)
    assert block["plugins"]["entries"]["memrelay"]["config"] == {
        "command": "/bin/x",
        "dreaming": {"enabled": False},
    }
