"""The documents stay as short as they were made, show each picture, and can draw it again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
# What can be read from top to bottom in an afternoon. Raise it for a subject that is new, not for a page that grows.
MOST_WORDS = 21_500
# Pages that fit a screen or two, whatever docs/ holds.
MOST_OF_A_PAGE = {"README.md": 500, "CONTRIBUTING.md": 750}
PICTURES = {".svg", ".png", ".jpg", ".gif", ".webp"}


def _words(page: Path) -> int:
    """Count what is read: not the blocks of code, nor what stands for the lines of a table."""
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    return sum(bool(re.search(r"\w", word)) for word in text.split())


def _pages() -> list[Path]:
    """Return the pages of docs/ that somebody writes: not the generated one, and not the records of decisions."""
    return [page for page in DOCS.rglob("*.md") if page.name != "features.md" and page.parent.name != "adr"]


def _pictures() -> list[Path]:
    return sorted(file for file in DOCS.rglob("*") if file.suffix in PICTURES)


def test_the_documents_are_short() -> None:
    words = {page.relative_to(DOCS).as_posix(): _words(page) for page in _pages()}
    longest = sorted(words.items(), key=lambda page: -page[1])[:5]
    assert sum(words.values()) <= MOST_WORDS, f"say it once, or shorter; the longest pages: {longest}"


@pytest.mark.parametrize("page", MOST_OF_A_PAGE)
def test_what_everybody_reads_first_is_short(page: str) -> None:
    assert _words(ROOT / page) <= MOST_OF_A_PAGE[page]


@pytest.mark.parametrize("picture", _pictures(), ids=lambda file: str(file.relative_to(DOCS)))
def test_a_picture_is_drawn_by_a_script_from_numbers_beside_it_and_stands_on_a_page(picture: Path) -> None:
    assert list(picture.parent.glob("*.json")), "the numbers that it shows"
    scripts = [file.read_text("utf-8") for file in (ROOT / "bench").glob("*.py")]
    by_name = [script for script in scripts if f'"{picture.name}"' in script and "savefig" in script]
    by_folder = [
        script for script in scripts if f'"docs" / "{picture.parent.name}"' in script and "savefig" in script
    ]
    assert by_name or by_folder, "what draws it"
    place = picture.relative_to(DOCS).as_posix()
    assert any(f"({place})" in page.read_text("utf-8") for page in DOCS.glob("*.md"))


def test_there_are_pictures_and_each_that_a_page_shows_is_there_or_is_drawn_in_the_page() -> None:
    shown = [
        (page, link)
        for page in [*DOCS.rglob("*.md"), *ROOT.glob("*.md")]
        for link in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text("utf-8"))
    ]
    assert {(page.parent / link).resolve() for page, link in shown} == set(_pictures()) != set()
