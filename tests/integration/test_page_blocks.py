"""What a page for newcomers shows is typed as it stands, on a machine with nothing on it, and ends as the page says."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_blocks import Block, Machine, blocks_of

PAGES = ("README.md", "docs/quickstart.md", "docs/tutorial.md", "docs/commands.md")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (tmp_path / "home").mkdir()
    machine = Machine(tmp_path / "home", port)
    yield machine
    machine.end()


def blocks(page: str) -> list[Block]:
    return blocks_of(page, "sh", "python")


@pytest.mark.tier("all")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_are_run_in_their_order_and_end_as_it_says(machine: Machine, page: str) -> None:
    assert any(block.printed for block in blocks(page))
    for block in blocks(page):
        machine.run(block)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_page_is_of_a_kind_that_is_run(page: str) -> None:
    kinds = {block.language for block in blocks_of(page, "", "bash", "console", "shell")}
    assert kinds == set()


def test_a_line_that_is_not_printed_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    wrong = Block("page", 1, "sh", "echo one; echo two\n", "", ("one", "three"))
    with pytest.raises(AssertionError, match="three"):
        Machine(tmp_path / "home", 1).run(wrong)
    with pytest.raises(AssertionError, match="ended with 3"):
        Machine(tmp_path / "home", 1).run(Block("page", 1, "sh", "exit 3\n", "", ()))
