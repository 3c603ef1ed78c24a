"""The generator of docs/features.md: what it reads, and what it refuses."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

_PATH = Path(__file__).resolve().parents[1] / "features.py"
ROWS = "id\tplace\ttitle\nCP-01\tplugin\tFirst\nCP-02\trelayer\tSecond\n"


def _load() -> ModuleType:
    import sys

    spec = importlib.util.spec_from_file_location("memrelay_features", _PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


features = _load()


def _tests(source: str) -> list[tuple[str, str]]:
    return [(proof.feature, proof.test) for proof in features.proofs_of(source, "tests/test_x.py")]


def test_a_marker_on_a_function_counts_for_it() -> None:
    source = '@pytest.mark.row("CP-01")\nasync def test_a(): ...\ndef test_b(): ...\n'
    assert _tests(source) == [("CP-01", "tests/test_x.py::test_a")]


def test_a_marker_on_a_class_counts_for_each_of_its_tests() -> None:
    source = '@pytest.mark.row("CP-01")\nclass TestA:\n    def test_b(self): ...\n    def test_c(self): ...\n'
    assert _tests(source) == [
        ("CP-01", "tests/test_x.py::TestA::test_b"),
        ("CP-01", "tests/test_x.py::TestA::test_c"),
    ]


def test_a_marker_of_the_module_counts_for_every_test() -> None:
    source = 'pytestmark = [pytest.mark.row("CP-02")]\ndef test_a(): ...\n'
    assert _tests(source) == [("CP-02", "tests/test_x.py::test_a")]


def test_a_marker_on_a_parameter_counts_for_its_test() -> None:
    source = '@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.row("CP-02"))])\ndef test_a(n): ...\n'
    assert _tests(source) == [("CP-02", "tests/test_x.py::test_a")]


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


def test_the_page_counts_and_lists_what_is_shown_and_what_is_not() -> None:
    page = features.render(
        features.read_features(ROWS),
        features.proofs_of('@pytest.mark.row("CP-01")\ndef test_a(): ...\n', "tests/test_x.py"),
    )
    assert "**1 of 2 rows are shown by a test.**" in page
    assert "| CP-01 | First | `tests/test_x.py::test_a` |" in page
    assert "| CP-02 | Second | not yet: the relayer |" in page


def test_a_marker_that_names_no_feature_is_refused() -> None:
    with pytest.raises(features.FeatureError, match="CP-99"):
        features.render(features.read_features(ROWS), [features.Proof("CP-99", "tests/test_x.py::test_a")])


@pytest.mark.parametrize(
    "rows",
    [
        "CP-01\tplugin\tFirst\n",
        ROWS + "CP-01\tplugin\tAgain\n",
        ROWS + "CP-03\tmoon\tX\n",
        ROWS + "CP-03\tplugin\n",
    ],
    ids=["no header", "repeated id", "unknown place", "missing field"],
)
def test_rows_that_are_not_in_form_are_refused(rows: str) -> None:
    with pytest.raises(features.FeatureError):
        features.read_features(rows)


def test_every_system_has_all_of_its_rows() -> None:
    rows = features.read_features(features.FEATURES.read_text(encoding="utf-8"))
    counts = {system: sum(row.id.startswith(f"{system}-") for row in rows) for system in features.SYSTEMS}
    assert counts == {"CP": 50, "AR": 27, "MW": 52, "MS": 31, "AM": 29}
