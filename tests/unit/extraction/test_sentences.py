# ruff: noqa: RUF001 - fifteen languages are the point
"""Sentence borders, masks and language guesses: spans always point into the message."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayer.extraction.words import (
    Phrases,
    clean,
    guess_language,
    is_question,
    mask_non_prose,
    split_sentences,
    words_of,
)


def sentences(text):
    return [text[start:end] for start, end in split_sentences(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("It runs v1.2.3 on port 8.5 now", ["It runs v1.2.3 on port 8.5 now"]),
        ("Ask Dr. Lee, e.g. today. Then go.", ["Ask Dr. Lee, e.g. today.", "Then go."]),
        ("- first item\n2. second item\n> quoted", ["first item", "second item", "quoted"]),
        ("我喜欢茶。你呢？", ["我喜欢茶。", "你呢？"]),
        ('He said "stop." Then left.', ['He said "stop."', "Then left."]),
        ("Wait... what?!", ["Wait...", "what?!"]),
        ("closed from 22.12. bis 6.1., all of us", ["closed from 22.12. bis 6.1., all of us"]),
        ("Neuer Termin 20. Oktober", ["Neuer Termin 20. Oktober"]),
        ("le kiné (M. Perrault) dit non. Voilà", ["le kiné (M. Perrault) dit non.", "Voilà"]),
        ("12 bd. Foch, env. 60 m². Merci", ["12 bd. Foch, env. 60 m².", "Merci"]),
        (
            "I work in HR. I like modern art. Tests run on the staging env. So",
            ["I work in HR.", "I like modern art.", "Tests run on the staging env.", "So"],
        ),
        ("I take vitamin D. It helps", ["I take vitamin D.", "It helps"]),
        ("milk, eggs etc. and bread. etc. Then", ["milk, eggs etc. and bread.", "etc.", "Then"]),
        ("Er kommt am 22.12. Danach nicht", ["Er kommt am 22.12.", "Danach nicht"]),
        ("!!! ... ???", []),
    ],
)
def test_sentences_end_where_people_end_them(text, expected):
    assert sentences(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "our vicar is Rev. Green, 5 St. Mary's Rd. Apt. 4, gym on Tue. and Thu. at 7",
        "my boss is J. Kowalski and my dentist is Dr. A. Patel",
        "ich wohne im 3. Stock in der Hauptstr. 5 bei Fr. Weber, Tel. 0561 123, Training Mo. und Do. 16 Uhr",
        "j'habite 12 av. Foch, bât. B, esc. 2, tél. 06 12 34, l'avv. Martin",
        "vivo en av. san martin 345 p. 3 dto. b, en mendoza",
        "la dra. Gómez, atiende en av. Rivadavia 1234, dpto. B, tel. +54 4555 1020",
        "abito al 5, int. 4, il mio avvocato è l'avv. Bianchi, lun. 10:00",
        "moro na r. das Flores 12, apto. 3, bl. B, com a dra. Ana, tel. (11) 9999",
        "ik woon op de Kerkstr. 5, mw. Jansen is de juf, di. 10 uur",
        "wychowawczyni hani to p. Kowalska, os. Słoneczne 5 m. 3, tel. 601222333",
        "chodze na basen pon. i śr. o 6:30, al. jana pawla ii 3",
        "живу на ул. Ленина, д. 5, кв. 3, корп. 2, г. Москва, врач А. Петрова",
        "taşındım: eryaman 3. etap, 310. sokak no 14 daire 6",
        "Atatürk Mah. Gül Sok. No: 5 D. 3, ege üniv. tıp fak. 2. sınıf, Op. Dr. Selin Kaya, op. dr. Can",
        "3. kattayız, asansör yok",
        "دكتور الاسنان بتاعي د. أحمد سمير في ش. التحرير رقم ٩",
        "مديري الجديد اسمه م. شريف",
        "मेरे डॉक्टर डॉ. शर्मा हैं, मकान नं. 5",
    ],
)
def test_addresses_names_and_titles_are_not_cut(text):
    assert sentences(text) == [text]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It is 3 m. Then it ends", ["It is 3 m.", "Then it ends"]),
        ("I work in PR. My new OS. It is good", ["I work in PR.", "My new OS.", "It is good"]),
        ("So do I. Then we went out. Thanks", ["So do I.", "Then we went out.", "Thanks"]),
        ("I love the sun. no. that is all", ["I love the sun.", "no.", "that is all"]),
        ("The rent is 800. it goes up", ["The rent is 800.", "it goes up"]),
        ("lubię sok. Piję go. De melk is op. Morgen", ["lubię sok.", "Piję go.", "De melk is op.", "Morgen"]),
    ],
)
def test_words_that_are_also_abbreviations_end_sentences(text, expected):
    assert sentences(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("・牛乳\n・卵\n①米\n② 味噌", ["牛乳", "卵", "米", "味噌"]),
        ("1. milk\n\n2. bread", ["milk", "bread"]),
        ("taşındık. 3. kattayız", ["taşındık.", "3. kattayız"]),
        ("yeni ev\n3. kattayız", ["yeni ev", "3. kattayız"]),
    ],
)
def test_a_number_with_a_dot_is_a_mark_of_a_list_only_next_to_another_one(text, expected):
    assert sentences(text) == expected


@given(st.text())
def test_spans_are_ordered_and_inside_the_text(text):
    spans = split_sentences(text)
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))


@pytest.mark.parametrize("text", ["Is it?", 'He asked "is it?"', "真的吗？", "حقا؟", "really?!", "(why?)"])
def test_a_question_is_recognised_by_its_mark(text):
    assert is_question(text)


def test_a_question_mark_inside_is_no_question():
    assert not is_question("The ?-operator returns early.")


@given(st.text(alphabet="ab.`~<>&;{}()/ \n#$:=-https01"))
def test_a_mask_keeps_every_offset(text):
    masked = mask_non_prose(text)
    assert len(masked) == len(text)
    assert all(new in (old, " ", "0") for old, new in zip(text, masked, strict=True))


@pytest.mark.parametrize(
    "text",
    [
        "I run `make check` before every push.",
        "if you ask me, tea (green) beats coffee",
        "The price is 5 < 10 euros.",
        "Ich nehme [Ramipril] & [ASS 100] (morgens) + [Simvastatin] (abends)",
        "Miete: 1.250 € (kalt) + 240 € (NK) = 1.490 €",
        "- **Nüsse**: ja\n- [ ] Milch\n- *花生*(少)",
    ],
)
def test_speech_about_code_is_not_masked(text):
    assert mask_non_prose(text) == text


def test_the_bars_of_a_table_are_masked_and_its_words_are_not():
    assert mask_non_prose("| a | b |\n|---|---|\n| 5 mg | 1 | 0 |").split() == ["a", "b", "5", "mg", "1", "0"]


@pytest.mark.parametrize(
    "line",
    [
        "x = a[0] + b[1]",
        "const tea = [1, 2, 3]",
        "    [a, b] = f(x)",
        "a*b*c + d*e",
        "**kwargs, *args",
        "if (a && b) return;",
    ],
)
def test_code_with_brackets_and_asterisks_is_masked(line):
    assert not mask_non_prose(line).strip()


def test_text_after_a_closed_fence_is_prose_again():
    assert mask_non_prose("```\nx\n```\nI like it").strip() == "I like it"


def test_cleaning_folds_line_ends_and_drops_noise():
    assert clean("\ufeffa\r\nb\rc\u200b\x00 ") == "a\nb\nc"


@pytest.mark.parametrize(
    ("text", "lang"),
    [
        ("The build is red because the cache was not there", "en"),
        ("Wir haben das nicht mit dem Team besprochen", "de"),
        ("Nós usamos o servidor que está na sala", "pt"),
        ("Ik heb het nog niet met hem besproken", "nl"),
        ("Spotkanie jest we wtorek i nie ma go w kalendarzu", "pl"),
        ("Готово, релиз в пятницу", "ru"),
        ("API は来週リリースします", "ja"),
        ("kubectl rollout", "und"),
        ("12345", "und"),
        ("", "und"),
    ],
)
def test_a_language_is_guessed_or_left_open(text, lang):
    assert guess_language(text) == lang


def test_phrases_match_whole_words_and_prefer_the_longest():
    phrases = Phrases("let me, let me know")
    assert phrases.length_at(words_of("Let me know soon"), 0) == 3
    assert phrases.length_at(words_of("outlet me know"), 0) == 0


def test_typographic_apostrophes_read_like_plain_ones():
    assert [word.lower for word in words_of("I’m here")] == ["i'm", "here"]


@pytest.mark.parametrize("step", [split_sentences, mask_non_prose, words_of, clean])
@pytest.mark.parametrize(
    "unit", [".", "。", "a'", "<a", "{ ", "```\n", "http://", "\u0301", "a.", "&#1", "A. ", "\n3. ", "3. "]
)
def test_256_kib_without_an_end_take_linear_time(step, unit, thorough):
    size = 256 * 1024 if thorough else 64 * 1024
    text = unit * (size // len(unit)) + "x"
    started = time.process_time()
    step(text)
    assert time.process_time() - started < (3 if thorough else 1)
