# ruff: noqa: RUF001 - fifteen languages are the point
"""A question that names a time gets what was said then first, in the prompt of a turn and in a search."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from plugin_site import PluginSite, recall

# The same kind of event in each month of a year, so that only the time tells them apart.
EVENTS = {
    month: f"We had dinner with the {name} family and talked about the garden."
    for month, name in enumerate(
        [
            "Alder", "Birch", "Cedar", "Dogwood", "Elm", "Fir", "Gorse", "Hazel", "Ivy", "Juniper", "Kapok",
            "Larch",
        ],
        1,
    )
}  # fmt: skip


@pytest.fixture(scope="module")
def site(shared_relayer: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PluginSite]:
    """A gateway with the year's events, of which the tests only ask."""
    place = tmp_path_factory.mktemp("events")
    with PluginSite(place, shared_relayer, secrets.token_hex(32)) as made:
        lines = [
            f'{{"text": "{text}", "occurred_at": "{datetime(2025, month, 14, 19, tzinfo=UTC).isoformat()}"}}'
            for month, text in EVENTS.items()
        ]
        file = place / "events.jsonl"
        file.write_text("\n".join(lines) + "\n")
        made.command("import", str(file))
        yield made


@pytest.mark.parametrize(
    ("question", "month"),
    [
        ("With which family did we have dinner in October?", 10),
        ("With which family did we have dinner on 14 February 2025?", 2),
        ("Mit welcher Familie haben wir im Mai zu Abend gegessen?", 5),
        ("我们8月和哪一家吃了晚饭？", 8),
    ],
)
def test_the_memory_of_the_named_time_comes_first(site: PluginSite, question: str, month: int) -> None:
    found = site.json("search", question, "--floor", "0")["memories"]
    assert found[0]["text"] == EVENTS[month]


@pytest.mark.parametrize("month", EVENTS)
def test_a_turn_gets_the_memory_of_the_named_time(site: PluginSite, month: int) -> None:
    name = datetime(2025, month, 1, tzinfo=UTC).strftime("%B")
    shown = recall(site.plugin(), f"Which family did we have dinner with in {name}?").text
    assert EVENTS[month] in next(line for line in shown.splitlines() if "dinner" in line)
