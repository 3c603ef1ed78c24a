"""From each of five earlier plugins, with its documented settings and its data, to a recall of an old memory in the real gateway."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from e2e_relayer import Relayer
from memwal_server import MemWalServer
from openclaw_gateway import BRIDGE, Gateway
from openclaw_install import Installed
from stub_model import StubModel, said, system
from test_original_settings import BLOCKS

MEMWAL_KEY = "7b" * 32
IDS = {
    "memory-core-plus": "memory-core-plus",
    "auto-recall": "openclaw-auto-recall",
    "memwal": "memory-memwal",
    "memsearch": "memsearch",
    "active-memory": "active-memory",
}
FACTS = {
    name: f"Our {boat} was built by {builder} in the yard of {town}."
    for name, (boat, builder, town) in {
        "memory-core-plus": ("sailing dinghy", "Fredrika Holm", "Marstrand"),
        "auto-recall": ("rowing skiff", "Anselm Okafor", "Whitby"),
        "memwal": ("fishing smack", "Ingrid Falk", "Stavanger"),
        "memsearch": ("racing yacht", "Tomas Brandt", "Kiel"),
        "active-memory": ("harbour tug", "Marta Silva", "Setubal"),
    }.items()
}
QUESTIONS = {
    name: f"Who built {fact.partition(' was ')[0].replace('Our', 'our')}?" for name, fact in FACTS.items()
}


def memory_file(workspace: Path, fact: str) -> None:
    """MEMORY.md and a day's notes, as memory-core and everything that extends it keep them."""
    (workspace / "memory").mkdir(parents=True, exist_ok=True)
    (workspace / "MEMORY.md").write_text("# Memory\n\n- The office closes at six on Fridays.\n")
    (workspace / "memory" / "2026-05-01.md").write_text(f"# 2026-05-01\n\n- {fact}\n")


def memsearch_file(workspace: Path, fact: str) -> None:
    folder = workspace / ".memsearch" / "memory"
    folder.mkdir(parents=True)
    (folder / "2026-05-01.md").write_text(
        "# 2026-05-01\n\n## Session 14:30\n\n### 14:30\n<!-- session:abc transcript:/srv/sessions/abc.jsonl -->\n"
        f"- {fact}\n- OpenClaw replied that it is noted.\n"
    )


def nothing(_workspace: Path, _fact: str) -> None:
    """MemWal's data are at its service."""


DATA: dict[str, Callable[[Path, str], None]] = {
    "memory-core-plus": memory_file,
    "auto-recall": memory_file,
    "memwal": nothing,
    "memsearch": memsearch_file,
    "active-memory": memory_file,
}


def former_plugins(name: str, config: dict[str, Any]) -> dict[str, Any]:
    """The ``plugins`` part as the plugin's own documentation has it."""
    plugins: dict[str, Any] = {"entries": {IDS[name]: {"enabled": True, "config": config}}}
    if name in {"memory-core-plus", "memwal", "memsearch"}:
        plugins["slots"] = {"memory": IDS[name]}
    return plugins


@pytest.mark.row("MW-53", "AR-28", "CP-24", "MS-22", level="e2e")
@pytest.mark.parametrize("name", IDS)
def test_an_old_memory_is_recalled_after_the_move(
    openclaw: Installed, relayer: Relayer, model: StubModel, tmp_path: Path, name: str
) -> None:
    fact, question = FACTS[name], QUESTIONS[name]
    with MemWalServer(MEMWAL_KEY, {"default": [fact]} if name == "memwal" else {}) as service:
        block = BLOCKS[name] | ({"serverUrl": service.url} if name == "memwal" else {})
        host = Gateway(
            openclaw,
            tmp_path,
            model.url,
            plugins=former_plugins(name, block),
            environment={"MY_MEMORY_SECRET": MEMWAL_KEY},
        )
        DATA[name](tmp_path / "ws" / "main", fact)
        moved = subprocess.run(
            [str(BRIDGE), "migrate", "--from", name, "--url", relayer.url],
            capture_output=True, text=True, env=host.environment, input="y\n", check=False,
        )  # fmt: skip
    assert moved.returncode == 0, moved.stdout + moved.stderr
    assert "left behind: " in moved.stdout
    assert MEMWAL_KEY not in moved.stdout + moved.stderr
    assert host.config()["plugins"]["entries"][IDS[name]]["enabled"] is False
    valid = host.cli("config", "validate")
    assert valid.returncode == 0, valid.stdout + valid.stderr
    host.start()
    try:
        host.chat(question, user="after-the-move")
        request = model.asked(question)[-1]
        # active-memory put what it found into the system prompt, the others before or behind the question.
        assert fact in (system(request) if name == "active-memory" else said(request))
        assert _loaded_once(host)
    finally:
        host.stop()


def _loaded_once(host: Gateway) -> bool:
    """Tell whether this plugin answers alone: nothing else is loaded that owns its tools."""
    log = host.log_text()
    return "registered hooks: auto-recall" in log and "plugin tool name conflict" not in log


@pytest.mark.row("MW-53")
def test_the_move_is_shown_whole_and_done_only_on_a_yes(
    openclaw: Installed, relayer: Relayer, model: StubModel, tmp_path: Path
) -> None:
    host = Gateway(openclaw, tmp_path, model.url, plugins=former_plugins("memsearch", BLOCKS["memsearch"]))
    before = host.config()
    command = [str(BRIDGE), "migrate", "--from", "memsearch", "--url", relayer.url]
    done = subprocess.run(
        command, capture_output=True, text=True, env=host.environment, input="n\n", check=False
    )
    assert done.returncode == 1
    assert json.loads(host.config_file.read_text()) == before
    assert "left behind: provider" in done.stdout
