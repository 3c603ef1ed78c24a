"""Every block of Python on the pages for programs passes ``mypy --strict``, as it would in a user's program.

One process checks all of them. The blocks of a framework that is not installed are left out; `run_each.py` installs each.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from page_blocks import Block, blocks_of
from run_each import STRICT
from test_frameworks import FRAMEWORKS, is_installed

# Each page with the module that its blocks need.
PAGES = {
    "README.md": "memrelay",
    "docs/python-api.md": "relayer.testing",
    "docs/mem0.md": "memrelay",
    **{f"docs/integrations/{name}.md": module for name, module in FRAMEWORKS.items()},
}


@pytest.fixture
def blocks() -> list[Block]:
    return [
        block for page, module in PAGES.items() if is_installed(module) for block in blocks_of(page, "python")
    ]


def type_check(blocks: list[Block], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run mypy over blocks, each of which is a module named after its page and number."""
    names = [re.sub(r"\W", "_", block.name) + ".py" for block in blocks]
    for name, block in zip(names, blocks, strict=True):
        (folder / name).write_text(block.text, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", f"--cache-dir={Path(sys.prefix) / 'mypy'}", *STRICT, *names]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.timeout(600)
def test_every_page_is_well_typed(blocks: list[Block], tmp_path: Path) -> None:
    done = type_check(blocks, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"no issues found in {len(blocks)} source files" in done.stdout


@pytest.mark.timeout(600)
def test_an_argument_of_a_wrong_type_would_be_noticed(tmp_path: Path) -> None:
    text = 'from memrelay import Memory\n\nMemory(agent="support").add("I take tea.", metadata="tea")\n'
    done = type_check([Block("a page", 1, "python", text, "", ())], tmp_path)
    assert done.returncode == 1
    assert 'a_page_1.py:3: error: Argument "metadata"' in done.stdout


def test_no_page_silences_a_type_checker() -> None:
    silenced = [
        block.name for page in PAGES for block in blocks_of(page, "python") if "type: ignore" in block.text
    ]
    assert silenced == []
