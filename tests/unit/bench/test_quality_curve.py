import pytest

from bench.quality_curve import DEFAULT_FLOOR, Asked, curve_section, plot


def asked() -> Asked:
    answers = Asked()
    answers.answerable = [(["a", "b"], [0.9, 0.2], ["b"]), (["c"], [0.1], ["c"])]
    answers.others["unrelated"] = [0.0, 0.1, 0.5, 0.0]
    answers.others["near"] = [0.3]
    answers.others["never said"] = []
    return answers


def test_a_floor_keeps_what_has_that_relevance():
    assert asked().at(0.0).means()["r@10"] == 100.0
    assert asked().at(0.2).means()["r@10"] == 50.0
    assert asked().at(0.3).means()["r@10"] == 0.0


def test_a_question_is_silent_when_nothing_is_left_of_its_answer():
    assert asked().silent(0.0) == 0.0
    assert asked().silent(0.3) == 0.5


def test_a_prompt_injects_when_its_best_memory_reaches_the_floor():
    assert asked().injected(DEFAULT_FLOOR) == {"unrelated": 0.25, "near": 1.0, "never said": 0.0}


def test_without_a_floor_only_what_has_any_relevance_injects():
    assert asked().injected(0.0)["unrelated"] == 0.5


@pytest.mark.tier("all")  # drawing looks for fonts
def test_the_plot_is_the_same_for_the_same_numbers_and_left_out_without_them(tmp_path):
    first, second = (plot([curve_section(asked())], tmp_path / name) for name in ("one", "two"))
    assert first[0].read_bytes() == second[0].read_bytes()
    assert plot([], tmp_path / "none") == []
    assert not (tmp_path / "none").exists()
