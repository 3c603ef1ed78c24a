"""Every picture of the documents is shown on a page, and a script in bench/ draws it from numbers next to it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PICTURES = {".svg", ".png", ".jpg", ".gif", ".webp"}


def _pictures() -> list[Path]:
    return sorted(file for file in DOCS.rglob("*") if file.suffix in PICTURES)


@pytest.mark.parametrize("picture", _pictures(), ids=lambda file: str(file.relative_to(DOCS)))
def test_a_picture_is_drawn_by_a_script_from_numbers_beside_it_and_stands_on_a_page(picture: Path) -> None:
    assert list(picture.parent.glob("*.json")), "the numbers that it shows"
    scripts = [file.read_text("utf-8") for file in (ROOT / "bench").glob("*.py")]
    by_name = [script for script in scripts if f'"{picture.name}"' in script and "drawing(" in script]
    by_folder = [
        script for script in scripts if f'"docs" / "{picture.parent.name}"' in script and "drawing(" in script
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
