"""`migrate` reads what others may have written: a host's configuration and its workspace. Each ends in a sentence."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

import pytest
from plugin_site import own_relayer
from typed_commands import machine, run_gateway

NOTE = "The sailing dinghy of the Okafor family lies at berth forty-one."
ENTRIES = {"memory-core-plus": {"enabled": True, "config": {"autoRecall": True}}}
GOOD = json.dumps({"plugins": {"entries": ENTRIES, "slots": {"memory": "memory-core-plus"}}})
HOSTILE = {
    "empty": b"",
    "binary": bytes(range(256)),
    "UTF-16": GOOD.encode("utf-16"),
    "truncated": GOOD.encode()[:-5],
    "deep": b'{"plugins":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    "deep JSON5": b"{plugins:" + b"[" * 5_000 + b"]" * 5_000 + b"}",
    "many digits": b'{"plugins": {"entries": ' + b"9" * 5_000 + b"}}",
    "a list": b"[1, 2]",
    "entries in a list": json.dumps({"plugins": {"entries": [1]}}).encode(),
}


@pytest.fixture(scope="module")
def relayer():
    with own_relayer() as running:
        yield running


@pytest.fixture
def file(tmp_path) -> Path:
    made = tmp_path / ".openclaw" / "openclaw.json"
    (made.parent / "workspace" / "memory").mkdir(parents=True)
    (made.parent / "workspace" / "MEMORY.md").write_text(f"- {NOTE}\n")
    return made


@pytest.fixture
def migrated(relayer, file, tmp_path):
    environment = machine(tmp_path, relayer.url, secrets.token_hex(32)) | {"OPENCLAW_CONFIG_PATH": str(file)}

    def run(*arguments):
        return run_gateway(environment, *(arguments or ("migrate", "--from", "memory-core-plus", "--yes")))

    return run


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_configuration_that_is_none_is_left_as_it_is(file, migrated, content):
    file.write_bytes(content)
    done = migrated()
    assert done.returncode not in {0, 70}, done.stdout
    assert 0 < len(done.stderr) < 2000
    assert file.read_bytes() == content


def test_what_of_a_workspace_leads_elsewhere_or_is_none_is_left_out(file, migrated, tmp_path):
    file.write_text(GOOD)
    outside = tmp_path / "outside.md"
    outside.write_text("The sailing club of the neighbours has 4711 members.")
    notes = file.parent / "workspace" / "memory"
    (notes / "link.md").symlink_to(outside)
    (notes / "binary.md").write_bytes(bytes(range(256)))
    (notes / "utf16.md").write_text("A note in another encoding.", encoding="utf-16")
    os.mkfifo(notes / "pipe.md")
    (notes / "loop").symlink_to(notes)
    done = migrated()
    assert done.returncode not in {0, 70}
    assert "binary.md" in done.stdout + done.stderr
    listed = json.loads(migrated("list", "--json", "--agent", "main").stdout)["memories"]
    assert [one["text"] for one in listed] == [NOTE]
