"""The generator of docs/features.md: what it reads, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import features
import pytest

ROWS = "id\tplace\ttitle\nCP-01\tplugin\tFirst\nCP-02\trelayer\tSecond\nCP-03\tcli\tThird\n"


@pytest.mark.parametrize(
    ("source", "tests"),
    [
        ('@pytest.mark.row("CP-01")\nasync def test_a(): ...\ndef test_b(): ...\n', ["test_a"]),
        (
            '@pytest.mark.row("CP-01")\nclass TestA:\n    def test_b(self): ...\n    def test_c(self): ...\n',
            ["TestA::test_b", "TestA::test_c"],
        ),
        ('pytestmark = [pytest.mark.row("CP-01")]\ndef test_a(): ...\n', ["test_a"]),
        (
            '@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.row("CP-01"))])\ndef test_a(n): ...\n',
            ["test_a"],
        ),
    ],
    ids=["function", "class", "module", "parameter"],
)
def test_a_marker_counts_for_each_test_below_it(source: str, tests: list[str]) -> None:
    proofs = features.proofs_of(source, "tests/test_x.py")
    assert [(one.feature, one.test) for one in proofs] == [
        ("CP-01", f"tests/test_x.py::{name}") for name in tests
    ]


@pytest.mark.parametrize(
    "source",
    [
        'CASES = [pytest.param(1, marks=pytest.mark.row("CP-01"))]\n',
        '@pytest.mark.row("CP-01")\ndef helper(): ...\n',
        "ROW = 1\n@pytest.mark.row(ROW)\ndef test_a(): ...\n",
    ],
    ids=["in a constant", "on a function that is no test", "not a string"],
)
def test_a_marker_that_would_be_lost_is_refused(source: str) -> None:
    with pytest.raises(features.FeatureError):
        features.proofs_of(source, "tests/test_x.py")


def test_a_level_is_read_and_any_other_word_refused() -> None:
    source = '@pytest.mark.row("CP-01", level="e2e")\n@pytest.mark.row("CP-02")\ndef test_a(): ...\n'
    proofs = features.proofs_of(source, "tests/test_x.py")
    assert [(proof.feature, proof.whole) for proof in proofs] == [("CP-01", True), ("CP-02", False)]
    for other in ('level="unit"', 'tier="e2e"', 'level="e2e", more=1'):
        with pytest.raises(features.FeatureError, match="level"):
            features.proofs_of(f'@pytest.mark.row("CP-01", {other})\ndef test_a(): ...\n', "tests/test_x.py")


def _page(source: str, gaps: dict[str, str]) -> str:
    return features.render(features.read_features(ROWS), features.proofs_of(source, "tests/test_x.py"), gaps)


def test_the_page_counts_and_lists_what_is_shown_in_part_and_not_yet() -> None:
    source = '@pytest.mark.row("CP-01", level="e2e")\n@pytest.mark.row("CP-02")\ndef test_a(): ...\n'
    page = _page(source, {"CP-02": "the rest", "CP-03": "not built"})
    assert "**1 of 3 rows are shown end to end.**" in page
    assert "| memory-core-plus (CP) | 3 | 1 | 0 | 1 | 1 |" in page
    assert "| CP-01 | First | end to end | **`tests/test_x.py::test_a`** |" in page
    assert "| CP-02 | Second | in part | missing: the rest<br>`tests/test_x.py::test_a` |" in page
    assert "| CP-03 | Third | not yet | missing: not built |" in page


def test_a_gap_keeps_a_row_in_part_whatever_its_tests_say() -> None:
    source = '@pytest.mark.row("CP-01", level="e2e")\ndef test_a(): ...\n'
    page = _page(source, {"CP-01": "half of it", "CP-02": "all", "CP-03": "all"})
    assert "| CP-01 | First | in part | missing: half of it<br>**`tests/test_x.py::test_a`** |" in page


def test_a_row_that_is_not_shown_end_to_end_needs_its_gap() -> None:
    source = '@pytest.mark.row("CP-01")\ndef test_a(): ...\n'
    with pytest.raises(features.FeatureError, match="CP-01, CP-02: add level"):
        _page(source, {"CP-03": "all"})


@pytest.mark.parametrize(
    ("source", "gaps"),
    [
        ('@pytest.mark.row("CP-99")\ndef test_a(): ...\n', {"CP-01": "a", "CP-02": "a", "CP-03": "a"}),
        ("", {"CP-01": "a", "CP-02": "a", "CP-03": "a", "CP-99": "a"}),
    ],
    ids=["by a marker", "by a gap"],
)
def test_a_feature_that_does_not_exist_is_refused(source: str, gaps: dict[str, str]) -> None:
    with pytest.raises(features.FeatureError, match="CP-99"):
        _page(source, gaps)


@pytest.mark.parametrize(
    "gaps", ["CP-01\tx\n", "id\tmissing\nCP-01\t\n", "id\tmissing\nCP-01\ta\nCP-01\tb\n"]
)
def test_gaps_that_are_not_in_form_are_refused(gaps: str) -> None:
    with pytest.raises(features.FeatureError):
        features.read_gaps(gaps)


@pytest.mark.parametrize(
    "rows",
    [
        "CP-01\tplugin\tFirst\n",
        ROWS + "CP-01\tplugin\tAgain\n",
        ROWS + "CP-04\tmoon\tX\n",
        ROWS + "CP-04\tplugin\n",
    ],
    ids=["no header", "repeated id", "unknown place", "missing field"],
)
def test_rows_that_are_not_in_form_are_refused(rows: str) -> None:
    with pytest.raises(features.FeatureError):
        features.read_features(rows)


def test_every_system_has_all_of_its_rows() -> None:
    rows = features.read_features(features.FEATURES.read_text(encoding="utf-8"))
    counts = {system: sum(row.id.startswith(f"{system}-") for row in rows) for system in features.SYSTEMS}
    assert counts == {"CP": 54, "AR": 28, "MW": 53, "MS": 32, "AM": 31, "OC": 13}


def test_a_test_counts_only_as_it_was_when_its_run_was_recorded(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    file = tmp_path / "tests" / "test_x.py"
    source = '@pytest.mark.row("CP-01", level="e2e")\ndef test_a():\n    start()\n'
    records = {"tests/test_x.py::test_a": {"text": features.digests_of(source)["test_a"]}}

    def state(text: str, records: dict[str, dict[str, str]]) -> str:
        file.write_text(text)
        return str(features.state_of("CP-01", features.collect(tmp_path, records), {}))

    assert state(source, records) == "end to end"
    assert state(source, {}) == "not recorded"
    assert state(source.replace("start()", "pass"), records) == "not recorded"
    assert state(f"@pytest.mark.skip\n{source}", records) == "not recorded"
    assert state(source.replace("    start()", "    # As it was.\n    start()"), records) == "end to end"
