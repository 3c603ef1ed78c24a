"""The pictures of docs/performance.md are those of the numbers beside them."""

from __future__ import annotations

import json

import pytest

from bench.performance_plots import FOLDER, draw

MEASURED = json.loads((FOLDER / "measured.json").read_text("utf-8"))
PAGE = (FOLDER.parent / "performance.md").read_text("utf-8")


# Looking for fonts starts a process.
@pytest.mark.tier("all")
@pytest.mark.parametrize("name", MEASURED)
def test_a_picture_shows_the_numbers_that_are_kept_and_stands_on_the_page(name, tmp_path):
    assert f"(performance/{name}.svg)" in PAGE
    drawn = draw(name, MEASURED[name], tmp_path).read_text("utf-8")
    kept = (FOLDER / f"{name}.svg").read_text("utf-8")
    # Labels are comments of what draws them, whichever its version; numbers of paths may differ in their last digit.
    labels = [line for line in drawn.splitlines() if line.strip().startswith("<!-- ")]
    assert labels
    assert labels == [line for line in kept.splitlines() if line.strip().startswith("<!-- ")]
