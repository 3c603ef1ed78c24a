"""Every block of Python on the pages about frameworks runs as it stands, and the matrix has a test for each cell."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import test_frameworks
from page_blocks import ROOT, blocks_of
from test_frameworks import FRAMEWORKS, is_installed

from relayer.testing.local_relayer import LocalRelayer

PAGES = ROOT / "docs/integrations"
COLUMNS = ("recall", "capture", "tools", "users apart", "relayer away", "erased is gone")


@pytest.mark.tier("all")
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_blocks_of_a_page_print_what_they_say(
    name: str, relayer: LocalRelayer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_installed(FRAMEWORKS[name]):
        pytest.skip(f"{name} is not installed; make test-integrations installs it")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MEMRELAY_URL", relayer.url)
    monkeypatch.delenv("MEMRELAY_SECRET", raising=False)
    for block in blocks_of(f"docs/integrations/{name}.md", "python"):
        printed: list[str] = []

        def note(*values: object, into: list[str] = printed) -> None:
            into.append(" ".join(map(str, values)))

        exec(compile(block.text, block.name, "exec"), {"__name__": "__main__", "print": note})
        said = re.findall(r"^ *print\(.*\)  # (.*)$", block.text, re.MULTILINE)
        assert said
        assert printed == said


def test_the_matrix_has_a_row_for_each_framework_and_a_test_for_each_column() -> None:
    page = (PAGES / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| \[[^]]+\]\((\w+)\.md\) \|((?: yes \|)+)$", page, re.MULTILINE)
    assert [name for name, _ in rows] == list(FRAMEWORKS)
    assert {cells.count("yes") for _, cells in rows} == {len(COLUMNS)}
    assert {f"test_{column.replace(' ', '_')}" for column in COLUMNS} <= set(vars(test_frameworks))
    packages = {path.parent.name for path in (ROOT / "memrelay/integrations").glob("*/__init__.py")}
    assert packages == set(FRAMEWORKS)
    assert {path.stem for path in PAGES.glob("*.md")} == {*FRAMEWORKS, "README"}
