"""Two gateways with one secret write at once: every turn arrives, and each once."""

from __future__ import annotations

import secrets
import threading

import pytest
from plugin_site import PluginSite, own_relayer

TURNS = 12


@pytest.fixture(scope="module")
def relayer():
    with own_relayer() as running:
        yield running


@pytest.mark.parametrize("folders", [1, 2], ids=["one machine", "two machines"])
def test_what_both_capture_arrives_once(relayer, tmp_path, folders):
    secret = secrets.token_hex(32)
    sites = [PluginSite(tmp_path / f"home-{number % folders}", relayer.url, secret) for number in range(2)]
    texts = [
        [f"Gateway {name} saw ship number {turn} pass the harbour light." for turn in range(TURNS)]
        for name in "AB"
    ]
    # What both are told is captured by both where they share no outbox, and stored once.
    both = "The harbour light was painted red by Ingeborg in spring."
    gate = threading.Barrier(2)

    def work(number: int) -> None:
        plugin = sites[number].plugin()
        gate.wait()
        for text in (*texts[number], both):
            plugin.after_turn([{"role": "user", "content": text}], session_key=f"agent:main:s{number}")
        assert plugin.flush(60)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    with sites[0], sites[1]:
        found = sites[0].texts("main")
        assert sorted(found) == sorted([*texts[0], *texts[1], both])
