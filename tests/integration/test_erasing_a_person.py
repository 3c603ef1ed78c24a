"""One person's words are listed, hidden and erased by the id of the person, and nobody else's."""

from __future__ import annotations

import pytest
from plugin_site import PluginSite
from typed_commands import run_gateway

from gateway_plugin.hosts.openclaw.turns import host_turn

GROUP, BOB, ALICE = "agent:main:telegram:group:-1001", "222", "111"
IN_GROUP = "My locker at the club has the number forty-one."
IN_PRIVATE = "My brother Enno repairs organs in Leer."
OF_ALICE = "My boat is moored at the northern pier."
OF_ALICE_IN_PRIVATE = "My doctor is called Sørensen."


@pytest.fixture
def site(shared_relayer, secret, tmp_path):
    with PluginSite(tmp_path, shared_relayer, secret) as one:
        yield one


def says(plugin, text, sender, key):
    host = host_turn({"channel": "telegram", "senderId": sender, "trigger": "user"})
    turn = [{"role": "user", "content": text}, {"role": "assistant", "content": "Noted, thank you."}]
    assert plugin.after_turn(turn, session_key=key, host=host).queued


def test_what_a_person_said_in_groups_and_in_a_direct_chat_goes_and_the_rest_stays(site):
    plugin = site.plugin(owners=["telegram:777"], capture={"storeTranscript": True})
    says(plugin, f"Bob ({BOB}): {IN_GROUP}", BOB, GROUP)
    says(plugin, f"Alice ({ALICE}): {OF_ALICE}", ALICE, GROUP)
    says(plugin, IN_PRIVATE, BOB, f"agent:main:telegram:direct:{BOB}")
    says(plugin, OF_ALICE_IN_PRIVATE, ALICE, f"agent:main:telegram:direct:{ALICE}")
    assert plugin.flush(90)
    others = {OF_ALICE, OF_ALICE_IN_PRIVATE}
    assert set(site.texts()) == others | {IN_GROUP, IN_PRIVATE}
    bob = ("--sender", f"Telegram:{BOB}")
    listed = site.json("list", *bob)
    assert ({one["text"] for one in listed["memories"]}, listed["total"]) == ({IN_GROUP, IN_PRIVATE}, 2)
    for known in ("telegram:22", "discord:222", "telegram:-1001"):
        assert site.json("list", "--sender", known)["total"] == 0

    assert site.json("delete", *bob, "--dry-run")["matched"] == 2
    would = site.json("erase", *bob)
    assert (would["dry_run"], would["senders"], would["matched"] >= 2) == (True, [f"telegram:{BOB}"], True)
    assert set(site.texts()) == others | {IN_GROUP, IN_PRIVATE}

    done = site.json("erase", *bob, "--yes")
    assert len(done["erasures"]) == 1
    assert set(site.texts()) == others
    states = [word for state in ("live", "superseded", "forgotten") for word in ("--state", state)]
    assert site.json("list", *bob, *states)["total"] == 0
    assert site.json("erase", *bob)["matched"] == 0
    assert "nothing of telegram:222 is stored at the relayer" in site.command("erase", *bob, "--yes").stdout


def test_while_the_relayer_is_away_what_waits_here_goes_and_the_rest_is_said_to_remain(tmp_path, secret):
    with PluginSite(tmp_path, "http://127.0.0.1:9", secret) as site:
        # A host may give the id with its platform.
        says(site.plugin(), f"Bob ({BOB}): {IN_GROUP}", f"telegram:{BOB}", GROUP)
        would = run_gateway(site.environment, "erase", "--sender", f"telegram:{BOB}")
        assert (would.returncode, "erased" in would.stderr) == (3, False)
        for waiting in (1, 0):
            done = run_gateway(site.environment, "erase", "--sender", f"telegram:{BOB}", "--yes")
            assert (done.returncode, done.stdout) == (3, "")
            assert "no relayer answers" in done.stderr
            assert f"undelivered turns that are erased on this machine: {waiting};" in done.stderr
            assert "what the relayer stores is not erased" in done.stderr
        assert site.json("outbox", "status")["waiting"] == 0


def test_what_waits_for_a_former_address_of_the_relayer_goes_too(tmp_path, secret):
    with PluginSite(tmp_path, "http://127.0.0.1:9", secret) as former:
        says(former.plugin(), f"Bob ({BOB}): {IN_GROUP}", BOB, GROUP)
        says(former.plugin(), f"Alice ({ALICE}): {OF_ALICE}", ALICE, GROUP)
    with PluginSite(tmp_path, "http://127.0.0.1:19", secret) as site:
        assert sum(site.json("outbox", "status")["other_outboxes"].values()) == 2
        run_gateway(site.environment, "erase", "--sender", f"telegram:{BOB}", "--yes")
        assert sum(site.json("outbox", "status")["other_outboxes"].values()) == 1
