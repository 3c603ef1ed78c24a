"""Which pairs of statements are a change, and what of a text tells it."""

from __future__ import annotations

import numpy as np
import pytest

from relayer.extraction.changes import (
    LINKED,
    SURE,
    Relation,
    _readers,
    likelihood,
    may_follow,
    relation_of,
    statement_of,
    told_by,
)

NEAR = 0.6


def chance(old: str, new: str, cosine: float = NEAR) -> float:
    return likelihood(statement_of(old), statement_of(new), cosine)


def relation(old: str, new: str, cosine: float = NEAR) -> Relation:
    return relation_of(old, statement_of(new), cosine)[0]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("driving the old polo", "polo died, got a skoda now"),
        ("ich arbeite bei der post", "hab bei der post gekündigt, bin jetzt im baumarkt"),
        ("vivo en ruzafa con mi primo", "me mudé, ahora vivo en benimaclet"),
        ("je travaille à la mairie", "j'ai quitté la mairie, je travaille dans une librairie maintenant"),
        ("il corso è il martedì", "il corso l'hanno spostato al giovedì"),
        ("trabalho no hospital", "saí do hospital, agora trabalho numa clínica"),
        ("mijn baas is anouk", "anouk is weg, mijn nieuwe baas is joris"),
        ("do pracy jeżdżę tramwajem", "już nie jeżdżę tramwajem, kupiłem rower"),
        ("езжу на калине", "калину продал, взял рено"),
        ("müdürüm emre", "emre ayrıldı, yeni müdürüm deniz"),  # noqa: RUF001 - Turkish
        ("بروح الشغل بالباص", "بطلت الباص، صرت أروح الشغل بالدراجة"),
        ("मैं बैंक में काम करता हूँ", "बैंक छोड़ दिया, अब स्कूल में काम करता हूँ"),
        ("我住在老房子", "老房子卖了 现在住新房子"),
        ("上司は西田さん", "西田さんが異動して、今の上司は大林さん"),
        ("팀장님은 정민수 님", "정민수 님 퇴사해서 이제 팀장님은 한지우 님"),
    ],
)
def test_a_new_state_of_the_same_is_a_change_in_every_language(old, new):
    assert chance(old, new) >= LINKED
    assert relation(old, new) is not Relation.NONE


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("rack 7 of bs-1 has the spare fans", "rack 49 of bs-7 has the spare disks"),
        ("my sister lives in Ghent", "my other sister lives in Bruges"),
        ("meine tochter hat montags flöte", "mein sohn hat donnerstags schwimmen"),
        ("我姐在青岛", "我弟在大连"),
        ("長女は水泳", "次女はピアノ"),
    ],
)
def test_like_sentences_about_different_things_replace_nothing(old, new):
    assert chance(old, new) < SURE
    assert relation(old, new) is not Relation.REPLACES


@pytest.mark.parametrize(
    "text", ["", "🙂", "a", "\ud800x", "\u202eשלמ 123 abc", "不" * 100_000, "a " * 50_000]
)
def test_any_text_can_be_read(text):
    read = statement_of(text)
    assert 0.0 <= likelihood(read, read, float(bool(text))) <= 1.0


def test_marks_and_endings_make_no_difference():
    assert statement_of("Przeniosłem się").cues == statement_of("przeniosłem sie").cues == {"changed"}
    assert statement_of("zug Él").words == statement_of("zug el").words


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Nora waters the plants.", "Nora no longer waters the plants."),
        ("My manager is Petra.", "My manager is now Ravi instead of Petra."),
        ("The budget is 40,000 euros.", "The budget was raised from 40,000 to 55,000 euros."),
        ("Our tracker is Redmine.", "We replaced Redmine with Linear."),
        ("The exam is on 3 May.", "The exam was postponed to 10 May."),
        ("My favourite tea is sencha.", "Changed my mind: my favourite tea is assam."),
        ("vivo en Bremen", "ya no vivo en Bremen"),
    ],
)
def test_a_change_replaces_even_where_it_repeats_the_old_statement(old, new):
    assert relation(old, new) is Relation.REPLACES


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("I'm vegetarian.", "My brother is not vegetarian anymore."),
        ("I live in Bremen.", "I live in Bremen with two cats."),
        ("I like sencha.", "I like assam."),
        ("Do we meet at 9:30?", "We meet at 10:00."),
        ("Nora waters the plants. " * 30, "Nora no longer waters the plants."),
    ],
)
def test_other_people_more_detail_and_long_texts_are_left_alone(old, new):
    assert relation(old, new) is Relation.NONE


def test_of_more_than_one_sentence_nothing_is_replaced():
    old, new = "Nora waters the plants.", "Nora no longer waters the plants."
    assert relation(old, new) is Relation.REPLACES
    assert relation(f"{old} I have two cats.", new) is not Relation.REPLACES


@pytest.mark.parametrize(
    ("old", "new", "cosine"),
    [
        ("The rent is 900 euros.", "The rent is 950 euros.", 0.97),
        ("Mira leads the lab.", "Nora leads the lab.", 0.64),
        ("The door is open.", "The door is closed.", 0.92),
        ("We serve it hot.", "We serve it cold.", 0.86),
        ("We drop the index nightly.", "We keep the index nightly.", 0.87),
        ("You add the flag.", "You remove the flag.", 0.85),
    ],
)
def test_other_values_and_opposites_without_a_word_of_change_conflict(old, new, cosine):
    assert relation(old, new, cosine) is Relation.CONFLICTS


def _model() -> str:
    (model,) = _readers()
    return model


def test_a_vector_that_tells_a_change_raises_what_words_leave_open():
    old, new = statement_of("the gym is in the old mill"), statement_of("we train at the harbour hall")
    direction = _readers()[_model()].direction
    told, silent = (told_by(np.array(sign * direction, np.float32), _model()) for sign in (1.0, -1.0))
    assert told is not None
    assert silent is not None
    assert may_follow(old, new, NEAR, told)
    assert not may_follow(old, new, NEAR, silent)
    assert not may_follow(old, new, NEAR)


def test_the_length_of_a_vector_does_not_matter():
    direction = _readers()[_model()].direction
    one, other = (told_by(np.array(length * direction, np.float32), _model()) for length in (0.5, 2.0))
    assert one is not None
    assert other is not None
    assert one.logit == pytest.approx(other.logit)


def test_without_a_vector_or_for_another_model_words_decide():
    assert told_by(None, _model()) is None
    assert told_by(np.ones(384, np.float32), "ab" * 32) is None
