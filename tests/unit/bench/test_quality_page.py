"""The figures and the picture of docs/quality.md are those of the numbers beside them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bench.quality_curve import plot
from bench.report import Section

FOLDER = Path(__file__).parents[3] / "docs" / "quality"
PAGE = (FOLDER.parent / "quality.md").read_text("utf-8")
PARTS = json.loads((FOLDER / "quality.json").read_text("utf-8"))["parts"]
CURVE = "Evidence recall and unwanted injection by floor, in percent"
RECALL = "Evidence recall through the HTTP API, in percent"
ROWS = {"floor 0": "floor 0", "default floor 0.3": "floor 0.3"} | {
    name: f"floor 0, {name.replace(' ', '_')}"
    for name in ("single hop", "multi hop", "temporal", "open domain")
}


def _rows(header: str) -> dict[str, list[float]]:
    """Return the numbers of the table under a header, by what stands in its first column."""
    table = PAGE.partition(f"{header}\n")[2].partition("\n\n")[0]
    cells = [[cell.strip("* ") for cell in line.strip("|").split("|")] for line in table.splitlines()[1:]]
    return {name: [float(number) for number in numbers] for name, *numbers in cells}


def test_evidence_recall_is_what_was_measured():
    measured = PARTS[RECALL]
    shown = _rows("| | n | r@5 | r@10 | r@20 | MRR |")
    assert shown.keys() == ROWS.keys()
    for name, (questions, *shares) in shown.items():
        part = measured[ROWS[name]]
        assert questions == part.get("questions", measured["floor 0"]["questions"])
        assert shares == [round(part[key], 1) for key in ("r@5", "r@10", "r@20", "MRR")]


def test_what_each_floor_lets_pass_is_what_was_measured():
    shown = _rows("| floor | r@10 | silent | unrelated | near | never said |")
    assert len(shown) > 3
    for floor, numbers in shown.items():
        point = PARTS[CURVE][str(float(floor))]
        assert numbers == [
            round(point[key], 1) for key in ("r@10", "silent", "unrelated", "near", "never said")
        ]


# Looking for fonts starts a process.
@pytest.mark.tier("all")
def test_the_picture_shows_the_numbers_that_are_kept(tmp_path):
    (drawn,) = plot([Section(CURVE, (), [], PARTS[CURVE])], tmp_path)
    assert f"(quality/{drawn.name})" in PAGE
    shown, kept = (_numbers(file.read_text("utf-8")) for file in (drawn, FOLDER / drawn.name))
    assert len(shown) > 100
    assert shown == pytest.approx(kept, abs=0.1)


def _numbers(picture: str) -> list[float]:
    """Return the coordinates of every line that is drawn; what draws may round the last digit otherwise."""
    paths = re.findall(r'<path[^>]* d="([^"]+)"', picture)
    return [float(number) for path in paths for number in re.findall(r"-?\d+\.\d+|-?\d+", path)]
