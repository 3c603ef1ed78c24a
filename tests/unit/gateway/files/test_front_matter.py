"""The front matter of a Markdown page: tags, metadata, date, and the names before each line."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from gateway_plugin.files.markdown import read_markdown

BERLIN = ZoneInfo("Europe/Berlin")
PAGE = """\
---
title: Heron
aliases: [staging db, "port database"]
tags: [ops/database, "#harbour"]
date: 2026-02-03
owner: Ana
since: 2024
nested: {left: out}
---
# Heron

Runs on port 5433.

## Backups
- Every night at two.
"""


def test_it_becomes_tags_metadata_date_and_the_names_before_each_line():
    first, second = read_markdown(PAGE, "wiki/heron.md", BERLIN)
    assert first.text == "Heron (staging db, port database): Runs on port 5433."
    assert second.text == "Heron (staging db, port database): Backups: Every night at two."
    assert first.tags == second.tags == ("ops/database", "harbour")
    assert first.metadata == {
        "title": "Heron",
        "aliases": ["staging db", "port database"],
        "date": "2026-02-03",
        "owner": "Ana",
        "since": 2024,
    }
    written = round(datetime(2026, 2, 3, tzinfo=BERLIN).timestamp() * 1000)
    assert (first.occurred_at, first.source.reference) == (written, "wiki/heron.md#12")


def test_an_obsidian_page_with_other_names_is_titled_by_its_file():
    (item,) = read_markdown("---\nalias: staging db\ntags: ops, harbour\n---\nPort 5433.\n", "Heron.md", UTC)
    assert (item.text, item.tags) == ("Heron (staging db): Port 5433.", ("ops", "harbour"))


@pytest.mark.parametrize(
    "front",
    [
        "tags: [a",
        "- a\n- list",
        "a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]",
        "tags: {a: b}",
        f"k: {'9' * 40}",
        "- " * 200,
    ],
)
def test_front_matter_that_says_nothing_usable_is_passed_over(front):
    (item,) = read_markdown(f"---\n{front}\n---\nPort 5433.\n", "heron.md", UTC)
    assert (item.text, item.tags) == ("Port 5433.", ())
    assert item.source.reference == f"heron.md#{front.count(chr(10)) + 4}"


def test_metadata_stays_within_its_bounds_and_takes_no_reserved_name():
    many = "\n".join(f"field{number}: {'x' * 200}" for number in range(90))
    (item,) = read_markdown(f"---\nsession: mine\n{many}\n---\nPort 5433.\n", "heron.md", UTC)
    assert "session" not in item.metadata
    assert 10 < len(item.metadata) < 21


def test_trigger_phrases_are_found_with_their_line_and_kept_with_its_weight():
    line = (
        "- Keep the gateway on loopback. <!-- trigger: network setup; loopback --> <!-- importance: 9 -->\n"
    )
    (item,) = read_markdown(line, "MEMORY.md", UTC)
    assert item.text == "Keep the gateway on loopback. (network setup)"
    assert item.metadata == {"triggers": ["network setup", "loopback"], "importance": 9}
    (plain,) = read_markdown("- Plain. <!-- importance: 99 -->\n", "MEMORY.md", UTC)
    assert (plain.text, plain.metadata) == ("Plain.", {})


def test_a_line_is_noted_for_its_repositories_unless_it_is_about_the_user():
    line = "- Sign with cosign. <!-- project: GitHub.com/Harbour/heron; path:/srv/Quay -->\n"
    (item,) = read_markdown(line, "MEMORY.md", UTC)
    assert item.text == "Sign with cosign."
    assert item.metadata == {"project_scope": "github.com/Harbour/heron; path:/srv/Quay"}
    (own,) = read_markdown(line, "USER.md", UTC)
    assert (own.text, own.metadata) == ("Sign with cosign.", {})
    (unclear,) = read_markdown("- Sign with cosign. <!-- project: -->\n", "MEMORY.md", UTC)
    assert unclear.metadata == {"project_scope": "!"}
