"""Every block of Python on the pages that newcomers read runs as it stands, and prints what it says that it prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from page_blocks import blocks_of

PAGES = ("README.md", "docs/python-api.md", "docs/mem0.md")
BLOCKS = [pytest.param(block.text, id=block.name) for page in PAGES for block in blocks_of(page, "python")]


@pytest.fixture
def a_users_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared_relayer: str) -> None:
    """A home without anything in it, and a relayer where the plugin looks for one."""
    for name in ("MEMRELAY_SECRET", "MEMRELAY_SECRET_FILE", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MEMRELAY_URL", shared_relayer)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("a_users_machine")
@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_runs_and_prints_what_it_says(block: str) -> None:
    said = re.findall(r"^ *print\(.*\)  # (.*)$", block, re.MULTILINE)
    assert said
    assert _printed(block)[: len(said)] == said


@pytest.mark.usefixtures("a_users_machine")
def test_the_first_example_of_a_turn_recalls_what_it_captured() -> None:
    assert "oat milk coffee" in _printed(BLOCKS[1].values[0])[-1]


def _printed(block: object) -> list[str]:
    """Run a block, and return what it printed itself: a relayer in this process logs to standard output."""
    printed: list[str] = []

    def note(*values: object) -> None:
        printed.append(" ".join(map(str, values)))

    exec(compile(str(block), "the block", "exec"), {"__name__": "__main__", "print": note})
    return printed


def test_every_page_has_blocks() -> None:
    assert {str(block.id).partition(":")[0] for block in BLOCKS} == set(PAGES)
