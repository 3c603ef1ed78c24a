"""``memrelay-gateway migrate``: shown, asked, imported, written; the second time nothing changes."""

from __future__ import annotations

import json
import secrets
import stat

import pytest
from memwal_server import ACCOUNT, MemWalServer
from typed_commands import machine, run_gateway

MEMWAL_KEY = "7a" * 32
NOTE = "The sailing dinghy of the Okafor family lies at berth forty-one."
HOST_TOKEN = "tok-4711-abcdefghijkl"


@pytest.fixture
def home(tmp_path, shared_relayer):
    """A machine with a host: its folders, and a function that types a command."""
    return Home(tmp_path, shared_relayer)


class Home:
    def __init__(self, place, url):
        self.file = place / ".openclaw" / "openclaw.json"
        self.workspace = place / ".openclaw" / "workspace"
        self.environment = machine(place, url, secrets.token_hex(32)) | {
            "OPENCLAW_CONFIG_PATH": str(self.file)
        }
        (self.workspace / "memory").mkdir(parents=True)
        (self.workspace / "MEMORY.md").write_text(f"- {NOTE}\n")

    def write(self, entries, **plugins):
        gateway = {"mode": "local", "auth": {"mode": "token", "token": HOST_TOKEN}}
        self.file.write_text(json.dumps({"gateway": gateway, "plugins": {"entries": entries, **plugins}}))
        self.file.chmod(0o600)

    def run(self, *arguments, code=0):
        done = run_gateway(self.environment, *arguments)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    @property
    def plugins(self):
        return json.loads(self.file.read_text())["plugins"]

    def memories(self, agent="main"):
        listed = json.loads(self.run("list", "--json", "--agent", agent, "--limit", 100))
        return sorted(one["text"] for one in listed["memories"])


CORE_PLUS = {"memory-core-plus": {"enabled": True, "config": {"autoRecall": True, "autoRecallMaxResults": 7}}}


@pytest.mark.row("MW-53", "CP-10", level="e2e")
def test_the_settings_move_the_memories_come_and_a_second_time_changes_nothing(home):
    home.write(CORE_PLUS, slots={"memory": "memory-core-plus"}, allow=["memory-core-plus", "telegram"])
    before = home.file.read_text()
    shown = home.run("migrate", "--from", "memory-core-plus", "--yes")
    plugins = home.plugins
    assert plugins["slots"] == {"memory": "memrelay"}
    assert plugins["allow"] == ["telegram", "memrelay"]
    assert plugins["entries"]["memory-core-plus"] == {**CORE_PLUS["memory-core-plus"], "enabled": False}
    assert plugins["entries"]["memrelay"]["config"]["dreaming"] == {"enabled": False}
    assert "memory-core" not in plugins["entries"]
    entry = plugins["entries"]["memrelay"]
    assert entry["hooks"] == {"allowConversationAccess": True}
    assert entry["config"]["preset"] == "memory-core-plus"
    assert entry["config"]["autoRecallMaxResults"] == 7
    assert home.memories() == [NOTE]
    assert HOST_TOKEN not in shown
    copies = [path for path in home.file.parent.iterdir() if "before-memrelay" in path.name]
    assert [path.read_text() for path in copies] == [before]
    assert {stat.S_IMODE(path.stat().st_mode) for path in (*copies, home.file)} == {0o600}
    again = home.run("migrate", "--from", "memory-core-plus", "--yes")
    assert "nothing to change" in again
    assert home.plugins == plugins
    assert home.memories() == [NOTE]


def test_without_a_yes_and_with_dry_run_nothing_is_changed_and_nothing_is_sent(home):
    home.write(CORE_PLUS)
    before = home.file.read_text()
    home.run("migrate", "--from", "memory-core-plus", code=1)
    shown = home.run("migrate", "--from", "memory-core-plus", "--dry-run")
    assert '"preset": "memory-core-plus"' in shown
    assert str(home.workspace) in shown
    assert home.file.read_text() == before
    assert sorted(path.name for path in home.file.parent.iterdir()) == ["openclaw.json", "workspace"]
    assert home.memories() == []


def test_a_configuration_in_json5_is_read_and_its_comments_stay_in_the_copy(home):
    home.file.write_text(
        "// mine\n{plugins: {entries: {'memsearch': {enabled: true, config: {provider: 'onnx', autoCapture: false,},},},},}"
    )
    daily = home.workspace / ".memsearch" / "memory"
    daily.mkdir(parents=True)
    (daily / "2026-05-01.md").write_text(
        "# 2026-05-01\n\n## Session 10:00\n\n### 10:00\n<!-- session:a1 transcript:/t.jsonl -->\n"
        "- The crane of the harbour is painted green.\n"
    )
    shown = home.run("migrate", "--from", "memsearch", "--yes")
    assert "left behind: provider: embeddings are computed by the relayer" in shown
    config = home.plugins["entries"]["memrelay"]["config"]
    assert "provider" not in config
    assert (config["autoCapture"], config["preset"]) == (False, "memsearch")
    assert set(home.memories()) == {NOTE, "The crane of the harbour is painted green."}
    assert any("// mine" in path.read_text() for path in home.file.parent.iterdir() if "before" in path.name)


@pytest.mark.row("MW-53", "MW-01", "MW-36", level="e2e")
def test_memwals_memories_come_to_the_agents_that_they_are_of_and_its_key_is_not_taken_over(home):
    kept = {
        "default": ["The harbour master is called Anselm."],
        "Coder Two": ["Builds run on the old mill server."],
    }
    with MemWalServer(MEMWAL_KEY, kept) as service:
        config = {
            "privateKey": "${MEMWAL_KEY}", "accountId": ACCOUNT, "serverUrl": service.url, "maxRecallResults": 6,
            "defaultNamespace": "default",
        }  # fmt: skip
        home.write({"memory-memwal": {"enabled": True, "config": config}})
        whole = json.loads(home.file.read_text())
        whole["agents"] = {"entries": {"main": {}, "Coder Two": {}}}
        home.file.write_text(json.dumps(whole))
        assert "MEMWAL_KEY is not set" in home.run("migrate", "--from", "memwal", "--yes", code=2)
        assert "memrelay" not in home.plugins["entries"]
        # Nothing is imported before all is known that the move needs.
        assert home.memories() == []
        home.environment["MEMWAL_KEY"] = MEMWAL_KEY
        shown = home.run("migrate", "--from", "memwal", "--yes")
    assert set(home.memories()) == {NOTE, *kept["default"]}
    assert home.memories("Coder Two") == kept["Coder Two"]
    entry = home.plugins["entries"]["memrelay"]["config"]
    assert entry["maxRecallResults"] == 6
    assert not {"privateKey", "accountId", "serverUrl"} & set(entry)
    assert MEMWAL_KEY not in shown
    assert all(text not in shown for texts in kept.values() for text in texts)


def test_what_somebody_set_for_memrelay_already_wins_and_a_setting_that_is_not_taken_is_named(home):
    home.write({**CORE_PLUS, "memrelay": {"enabled": False, "config": {"preset": "memwal"}}})
    home.run("migrate", "--from", "memory-core-plus", "--yes", "--no-import")
    entry = home.plugins["entries"]["memrelay"]
    assert (entry["enabled"], entry["config"]["preset"]) == (True, "memwal")
    home.write({"memory-core-plus": {"config": {"autoRecallMaxResults": 5, "someDay": True}}})
    assert "left behind: someDay: has no counterpart" in home.run(
        "migrate", "--from", "memory-core-plus", "--dry-run"
    )
    home.write({"active-memory": {"config": {"queryMode": "sometimes"}}})
    refused = home.run("migrate", "--from", "active-memory", "--yes", code=2)
    assert "active.queryMode" in refused


def test_a_configuration_that_is_spread_over_files_is_refused_with_the_fix(home):
    home.file.write_text(json.dumps({"plugins": {"$include": "./plugins.json5"}}))
    assert "--config PATH" in home.run("migrate", "--from", "memwal", "--yes", code=2)


def test_where_no_relayer_answers_the_host_stays_as_it_was(home):
    home.write(CORE_PLUS)
    before = home.file.read_text()
    home.environment["MEMRELAY_URL"] = "http://127.0.0.1:9"
    assert "no relayer answers" in home.run("migrate", "--from", "memory-core-plus", "--yes", code=3)
    assert home.file.read_text() == before


def test_consent_can_be_kept_back(home):
    home.write(CORE_PLUS)
    home.run("migrate", "--from", "memory-core-plus", "--yes", "--no-import", "--no-conversation-access")
    assert home.plugins["entries"]["memrelay"]["hooks"] == {"allowConversationAccess": False}


def test_another_configuration_can_be_named(home, tmp_path):
    home.write(CORE_PLUS)
    other = tmp_path / "other.json"
    home.file.rename(other)
    home.run("migrate", "--from", "memory-core-plus", "--yes", "--no-import", "--config", other)
    assert not home.file.exists()
    assert "memrelay" in json.loads(other.read_text())["plugins"]["entries"]


@pytest.mark.parametrize(
    "origin", ["memory-core-plus", "auto-recall", "memwal", "memsearch", "active-memory"]
)
def test_a_plugin_that_is_not_installed_is_not_moved_from(home, origin):
    home.write({"telegram": {"enabled": True}})
    before = home.file.read_text()
    refused = home.run("migrate", "--from", origin, "--yes", code=2)
    assert "that plugin is not installed here" in refused
    assert (home.file.read_text(), home.memories()) == (before, [])


def test_a_profile_of_the_host_has_a_configuration_of_its_own(home):
    home.write(CORE_PLUS)
    before = home.file.read_text()
    del home.environment["OPENCLAW_CONFIG_PATH"]
    home.environment["OPENCLAW_PROFILE"] = "dev"
    home.run("init", "--host", "openclaw", "--write", "--allow-conversation-access")
    assert home.file.read_text() == before
    own = home.file.parents[1] / ".openclaw-dev" / "openclaw.json"
    assert "memrelay" in json.loads(own.read_text())["plugins"]["entries"]
