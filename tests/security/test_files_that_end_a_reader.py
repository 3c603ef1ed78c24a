"""JSON that is nested too deeply, or with a number too long, costs its own file or line and no other."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pytest
from plugin_site import PluginSite, own_relayer
from typed_commands import run_gateway

DEEP = "[" * 200_000 + "]" * 200_000
WIDE = "9" * 5_000
HOSTILE = {
    "deep": f'{{"text": "The hostile one.", "x": {DEEP}}}',
    "wide": f'{{"text": "The hostile one.", "x": {WIDE}}}',
    "deep by objects": '{"a":' * 100_000,
    "wide below zero": f"-{WIDE}",
}
GOOD = "The ferry to Hiddensee leaves from berth nine every morning."
LOGGED = "Remember that the lighthouse of Dornbusch is painted in spring."


@pytest.fixture(scope="module")
def relayer():
    with own_relayer() as running:
        yield running


@pytest.fixture
def site(relayer, tmp_path):
    return PluginSite(tmp_path / "home", relayer.url, secrets.token_hex(32))


@pytest.fixture(params=HOSTILE)
def hostile(request) -> str:
    return HOSTILE[request.param]


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_an_import_of_a_folder_leaves_the_file_out_and_names_it(site, tmp_path, hostile, name):
    folder = tmp_path / "exports"
    folder.mkdir()
    (folder / name).write_text(hostile)
    (folder / "b.jsonl").write_text(json.dumps({"text": GOOD}))
    done = run_gateway(site.environment, "import", folder)
    assert name in done.stderr
    assert done.returncode == 1
    assert site.texts() == [GOOD]


def test_a_folder_is_indexed_but_for_the_file(site, tmp_path, hostile):
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.json").write_text(hostile)
    (folder / "a.jsonl").write_text(hostile)
    (folder / "b.md").write_text(GOOD)
    done = run_gateway(site.environment, "index", folder)
    assert "a.json:" in done.stdout + done.stderr
    assert "a.jsonl:" in done.stdout + done.stderr
    assert site.texts() == [GOOD]


def test_a_line_of_a_session_log_costs_the_log_nothing_else(site, tmp_path, hostile):
    folder = tmp_path / "sessions"
    folder.mkdir()
    message = {"type": "message", "id": "m1", "message": {"role": "user", "content": LOGGED}}
    (folder / "s.jsonl").write_text(f"{hostile}\n{json.dumps(message)}\n")
    done = run_gateway(site.environment, "index", "--sessions", folder)
    assert done.returncode == 0, done.stderr
    assert site.texts() == [LOGGED]
    told = run_gateway(site.environment, "transcript", folder / "s.jsonl")
    assert LOGGED in told.stdout


def test_a_backup_is_judged_by_its_seal(site, tmp_path, hostile):
    backup = tmp_path / "backup.jsonl"
    backup.write_text(f"{json.dumps({'text': GOOD})}\n{hostile}\n")
    done = run_gateway(site.environment, "import", backup, "--as-backup")
    assert done.returncode not in {0, 70}
    assert str(backup) in done.stderr


def test_what_this_machine_knows_of_its_files_is_made_again(site, tmp_path, hostile):
    note = tmp_path / "note.md"
    note.write_text(GOOD)
    site.command("index", note)
    (known,) = [
        file for file in Path(site.environment["XDG_STATE_HOME"]).rglob("*.json") if "index" in file.name
    ]
    known.write_text(hostile)
    assert run_gateway(site.environment, "index", note).returncode == 0
    assert site.texts() == [GOOD]
