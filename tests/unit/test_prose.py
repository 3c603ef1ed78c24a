"""What `make check` notices in the pages, and what it leaves alone."""

from __future__ import annotations

import prose
import pytest
from proselint.checks import __register__
from proselint.registry import CheckRegistry


@pytest.fixture(scope="module", autouse=True)
def registered():
    CheckRegistry().register_many(__register__)


def test_a_word_that_stands_twice_and_a_cliche_are_named_with_their_line():
    found = prose.complaints(
        "page.md", "All is well.\n\nThis is is a page.\n\nIt is, in a word, good.\n", set()
    )
    assert any(line.startswith("page.md:3:") and "is is" in line for line in found)
    assert any(line.startswith("page.md:5:") for line in found)


def test_code_is_no_prose_and_a_word_of_the_field_is_known():
    text = "Run it:\n\n```sh\nthe the\n```\n\nThe `the the` of it. A very short page.\n"
    assert prose.complaints("page.md", text, {"very"}) == []
    assert len(prose.complaints("page.md", text, set())) == 1
