import pytest

from bench.evidence import BUDGETS, LINES, BudgetScores, evidence_section, plot_evidence

# Of ten tokens.
LINE = "forty bytes of a line, ten of its tokens"


def scored(*rankings: tuple[list[str], list[str], list[str]]) -> BudgetScores:
    scores = BudgetScores()
    for lines, ids, evidence in rankings:
        scores.add(lines, ids, evidence)
    return scores


def test_a_block_has_the_first_lines_that_fit_its_budget():
    scores = scored(([LINE] * 6, list("abcdef"), ["b", "e"]))
    assert list(scores.shares().values())[:3] == [50.0, 100.0, 100.0]
    assert list(scores.tokens().values())[:3] == [20.0, 50.0, 60.0]


def test_a_line_that_does_not_fit_ends_the_block():
    scores = scored(([LINE, LINE * 6, LINE], list("abc"), ["c"]))
    assert scores.shares()[50] == 0.0
    assert scores.tokens()[50] == 10.0
    assert scores.shares()[100] == 100.0


def test_bytes_are_counted_and_not_characters():
    assert scored((["ü" * 50], ["a"], ["a"])).tokens()[25] == 25.0
    assert scored((["ü" * 51], ["a"], ["a"])).tokens()[25] == 0.0


def test_lines_after_the_thirtieth_do_not_count():
    ids = [str(at) for at in range(LINES + 1)]
    scores = scored((["line"] * len(ids), ids, [ids[LINES - 1], ids[LINES]]))
    assert scores.shares()[BUDGETS[-1]] == 50.0
    assert scores.tokens()[BUDGETS[-1]] == LINES


def test_questions_count_equally_and_those_without_an_answer_as_zero():
    scores = scored(([LINE], ["a"], ["a"]), ([LINE], ["a"], ["a", "b"]), ([], [], ["c"]))
    assert scores.shares()[25] == pytest.approx(50.0)
    assert scores.tokens()[25] == pytest.approx(20 / 3)


def test_the_table_has_a_row_for_each_system_and_ends_with_the_size_of_its_largest_block():
    section = evidence_section({"memrelay": scored(([LINE], ["a"], ["a"]))})
    assert section.rows == [("memrelay", *["100.0"] * len(BUDGETS), "10")]
    assert section.data["memrelay"]["25"] == {"evidence": 100.0, "tokens": 10.0}


@pytest.mark.tier("all")  # drawing looks for fonts
def test_the_plot_is_the_same_for_the_same_numbers_and_left_out_without_them(tmp_path):
    section = evidence_section({"memrelay": scored(([LINE], ["a"], ["a"]))})
    first, second = (plot_evidence([section], tmp_path / name) for name in ("one", "two"))
    assert first[0].read_bytes() == second[0].read_bytes()
    assert plot_evidence([], tmp_path / "none") == []
    assert not (tmp_path / "none").exists()
