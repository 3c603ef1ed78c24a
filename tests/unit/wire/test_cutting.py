import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayer.wire.passages import cut

SENTENCES = {
    "English": "The ferry leaves at noon. ",
    "German": "Die Fähre fährt über den Fluß. ",
    "Chinese": "渡船中午离开港口。",
    "Hindi": "नाव दोपहर को निकलती है। ",
}


def parts(text, size):
    return [text[start:end] for start, end in cut(text, size)]


@given(st.text(), st.integers(4, 100))
def test_passages_leave_nothing_out_and_none_is_larger_than_it_may_be(text, size):
    found = parts(text, size)
    assert "".join(found) == text
    assert all(0 < len(part.encode()) <= size for part in found)


@pytest.mark.parametrize("language", SENTENCES)
def test_a_text_is_cut_behind_a_sentence(language):
    found = parts(SENTENCES[language] * 40, 400)
    assert len(found) > 1
    assert all(part.endswith(SENTENCES[language]) for part in found)


def test_a_paragraph_is_a_better_end_than_a_later_sentence():
    paragraph = "The ferry leaves at noon. " * 14
    assert parts(f"{paragraph}\n\nIt is late. It is green. {paragraph}", 400)[0] == f"{paragraph}\n\n"


def test_all_but_the_last_are_three_quarters_full():
    found = parts("a line\n" + "word " * 400, 400)
    assert all(len(part.encode()) >= 296 for part in found[:-1])


def test_what_has_no_end_is_cut_all_the_same():
    assert [len(part) for part in parts("a" * 1000, 400)] == [400, 400, 200]
