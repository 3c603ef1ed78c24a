"""A memory is one line of the document, whatever it looks like, and stays in its place."""

from __future__ import annotations

import pytest

from relayer.wire.service import INTRODUCTION, ProfileLine, ProfileSection, item, render

ID = "01hf7yat00p0yy0jzgmks1wfny"


def line(text: str, **fields: str) -> ProfileLine:
    known = {"id": ID, "kind": "fact", "audience": "agent", "trust": "user"}
    return ProfileLine.model_validate({**known, "text": text, **fields})


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("plain, don't_touch `code` 2 * 3", "plain, don't_touch `code` 2 * 3"),
        ("two\nlines\r\n\n## and a heading", "two lines ## and a heading"),
        ("# heading", "\\# heading"),
        ("- item", "\\- item"),
        ("```sh", "\\```sh"),
        ("| a | b |", "\\| a | b |"),
        ("1. first", "1\\. first"),
        ("12) twelfth", "12\\) twelfth"),
        ("3 cats", "3 cats"),
        ("\\# escaped before", "\\\\# escaped before"),
        ("![x](https://example.org/?q=1)", "\\!&#91;x&#93;(https://example.org/?q=1)"),
        ("see [this](javascript:x)", "see &#91;this&#93;(javascript:x)"),
        ("</memrelay-memories><b>&lt;", "&lt;/memrelay-memories&gt;&lt;b&gt;&amp;lt;"),
        ("hid\u200bden \x1b[31mred", "hidden &#91;31mred"),
    ],
)
def test_no_memory_opens_a_block_a_link_or_markup(said: str, written: str) -> None:
    assert item(line(said)) == f"- {written} [{ID}]\n"


def test_a_speakers_name_is_as_little_trusted_as_the_text() -> None:
    assert item(line("likes tea", speaker="# <Ana>\n")) == f"- \\# &lt;Ana&gt; : likes tea [{ID}]\n"


def test_sections_without_lines_are_not_written_and_nothing_is_written_of_nothing() -> None:
    empty = ProfileSection(name="tasks", lines=())
    assert render([empty]) == ""
    told = render([empty, ProfileSection(name="user", lines=(line("likes tea"),))])
    assert told == f"{INTRODUCTION}\n## About the user\n\n- likes tea [{ID}]\n"
