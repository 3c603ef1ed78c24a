"""What `make check` and the commit-msg hook refuse in the English of code, pages and commit subjects."""

from __future__ import annotations

import plain_english
import pytest


def test_a_refused_word_is_named_with_its_line_and_its_replacement() -> None:
    found = list(
        plain_english.refused_words("page.md", "First line.\nNobody asks.\n", {"nobody": "no one"}, set())
    )
    assert found == ["page.md:2: write 'no one' for 'nobody'"]


def test_a_word_that_the_table_allows_in_a_file_passes() -> None:
    words = {"stands": "is"}
    assert not list(plain_english.refused_words("a.md", "It stands.", words, {("a.md", "stands")}))
    assert list(plain_english.refused_words("b.md", "It stands.", words, {("a.md", "stands")}))


def test_a_refused_word_inside_another_word_passes() -> None:
    assert not list(
        plain_english.refused_words("a.md", "understands besides", {"stands": "is", "beside": "near"}, set())
    )


@pytest.mark.parametrize("start", ["What", "Whether", "How", "Where", "Who", "Whose"])
def test_a_docstring_that_begins_with_a_relative_clause_is_named(start: str) -> None:
    source = f'def look():\n    """{start} is found."""\n'
    assert list(plain_english.docstrings_and_names("a.py", source)) == [
        f"a.py:1: begin the docstring with a verb or a noun, not with {start!r}"
    ]


def test_a_public_name_of_two_characters_is_named_and_a_private_one_is_not() -> None:
    source = 'class Box:\n    """A box."""\n\n    def of(self):\n        """Return it."""\n\n    def _of(self):\n        pass\n'
    found = list(plain_english.docstrings_and_names("a.py", source))
    assert found == ["a.py:4: 'of' is too short for a public name: use at least 3 characters"]


@pytest.mark.parametrize(
    "message",
    [
        "search: do not rebuild empty indexes",
        "http, fronts: serve all fronts by one pipeline\n\nThe why.",
        "fixup! search: do not rebuild empty indexes",
        'Revert "search: do not rebuild empty indexes"',
    ],
)
def test_a_subject_of_area_and_change_passes(message: str) -> None:
    assert not list(plain_english.subject_complaints(message))


@pytest.mark.parametrize("message", ["", "Fix stuff", "search:", "Search: do it", "search: " + "x" * 70])
def test_any_other_subject_is_refused(message: str) -> None:
    assert list(plain_english.subject_complaints(message))


def test_the_tree_passes() -> None:
    assert list(plain_english.tree_complaints(plain_english.ROOT)) == []
