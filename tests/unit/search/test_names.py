import pytest

from relayer.search.terms import names


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("What did Caroline research?", ("Caroline",)),
        ("When is Maria's sister visiting Porto?", ("Maria", "Porto")),
        ("Thanks. What about the NATO summit?", ("NATO",)),
        ("Which of O\u2019Brien's letters arrived?", ()),
        ("What was discussed in the Zürich office?", ("Zürich",)),
    ],
)
def test_a_capital_inside_an_english_sentence_marks_a_name(query, found):
    assert names(query) == found


@pytest.mark.parametrize(
    "query",
    [
        "What did she research?",
        "Where do I live? My street, please. Thanks!",
        "I think I'm late, and I've lost my keys.",
        "What happened on Monday in May?",
        "",
    ],
)
def test_the_start_of_a_sentence_the_calendar_and_the_first_person_are_no_names(query):
    assert names(query) == ()


@pytest.mark.parametrize(
    "query",
    [
        "Was hat meine Schwester zum Geburtstag bekommen?",
        "Wo ist der Schlüssel für die Werkstatt?",
        "What The Best Coffee Makers Of The Year Are",
        "咖啡 Maria",
        "DEPLOY STAGING CLUSTER",
    ],
)
def test_spelling_says_nothing_in_other_languages_and_in_titles(query):
    assert names(query) == ()
