"""The figures and the picture of docs/quality.md are those of the numbers beside them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bench.evidence import plot_evidence
from bench.quality_curve import plot
from bench.report import Section

FOLDER = Path(__file__).parents[3] / "docs" / "quality"
PAGE = (FOLDER.parent / "quality.md").read_text("utf-8")
PARTS = json.loads((FOLDER / "quality.json").read_text("utf-8"))["parts"]
CURVE = "Evidence recall and unwanted injection by floor, in percent"
BLOCKS = "Evidence in a block of at most so many tokens, in percent"
SIDE_BY_SIDE = "Side by side, one namespace each"
# The names of systems in the tables of the page, where they differ from those of the measurement.
SYSTEMS = {
    "default floor": "memrelay, floor 0.3",
    "without conversation and speaker": "memrelay, without conversation and speaker",
    "Chroma 1.5.9, vectors": "Chroma, vectors",
    "LanceDB 0.40.0, hybrid": "LanceDB, hybrid",
    "mem0 2.2.1, `infer=False`": "mem0, infer=False",
}
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


def test_other_systems_are_measured_on_the_same_questions():
    shown = _rows("| one namespace each | r@5 | r@10 | MRR |")
    assert len(shown) > 3
    for system, numbers in shown.items():
        part = PARTS[SIDE_BY_SIDE][SYSTEMS.get(system, system)]
        assert numbers == [round(part[key], 1) for key in ("r@5", "r@10", "MRR")]


def test_evidence_in_a_block_is_what_was_measured():
    shown = _rows("| in a block of | 50 | 100 | 200 | 400 | 800 | 1600 tokens |")
    assert len(shown) > 3
    for system, numbers in shown.items():
        part = PARTS[BLOCKS][SYSTEMS.get(system, system)]
        assert numbers == [
            round(part[budget]["evidence"], 1) for budget in ("50", "100", "200", "400", "800", "1600")
        ]


# Looking for fonts starts a process.
@pytest.mark.tier("all")
@pytest.mark.parametrize(("draw", "part"), [(plot, CURVE), (plot_evidence, BLOCKS)])
def test_the_picture_shows_the_numbers_that_are_kept(draw, part, tmp_path):
    (drawn,) = draw([Section(part, (), [], PARTS[part])], tmp_path)
    assert f"(quality/{drawn.name})" in PAGE
    shown, kept = (_numbers(file.read_text("utf-8")) for file in (drawn, FOLDER / drawn.name))
    assert len(shown) > 100
    assert shown == pytest.approx(kept, abs=0.1)


def _numbers(picture: str) -> list[float]:
    """Return the coordinates of every line that is drawn; what draws may round the last digit otherwise."""
    paths = re.findall(r'<path[^>]* d="([^"]+)"', picture)
    return [float(number) for path in paths for number in re.findall(r"-?\d+\.\d+|-?\d+", path)]
