"""Verify: what is sound is called sound, and every kind of damage is found and named."""

from __future__ import annotations

import pytest
from operator_site import ROOT

from relayer.access.accounts import Accounts
from relayer.access.store_keys import FleetKeys
from relayer.domain.operations import Origin, Put, Stored
from relayer.errors import WrongRelayerKey
from relayer.log.erasure import ErasureReports, ErasureStage, NamespaceEraser, namespace_report, report_of
from relayer.log.namespace_log import NamespaceLog
from relayer.log.objects import Layout
from relayer.operator.catalogue import Flaw, read_catalogue
from relayer.operator.verify import verify_store

SECRET = ROOT.agent("researcher").secret
TEXTS = [
    f"the {word} kettle is on the {number}th shelf" for number, word in enumerate(("red", "blue", "green"))
]


async def flaws(site, **options):
    report = await verify_store(site.ports, **options)
    found = [*report.findings, *(item for space in report.namespaces for item in space.findings)]
    return [
        (item.flaw, item.key.partition("/wal/")[2].lstrip("0")) for item in found if not item.flaw.harmless
    ]


async def test_a_store_in_use_is_sound_before_and_after_compaction(site):
    await site.say(*TEXTS)
    before = await verify_store(site.ports)
    await site.compact()
    await site.say("the kettle moved")
    after = await verify_store(site.ports, secrets=[SECRET])
    assert before.sound
    assert after.sound
    assert [space.memories for space in (*before.namespaces, *after.namespaces)] == [3, 4]
    assert [space.inner_seals for space in (*before.namespaces, *after.namespaces)] == [None, 4]


async def test_accounts_are_found_without_being_named(site):
    await site.say(*TEXTS)
    catalogue = await read_catalogue(site.ports)
    assert catalogue.accounts == (ROOT.account,)
    assert [item.pointer.name for item in catalogue.namespaces] == ["researcher"]


async def test_another_agents_secret_checks_no_inner_seal(site):
    await site.say(*TEXTS)
    report = await verify_store(site.ports, secrets=[ROOT.agent("coder").secret])
    assert report.namespaces[0].inner_seals is None


@pytest.mark.parametrize("slot", [0, 1, 2])
async def test_a_flipped_bit_in_an_entry_is_found_with_its_number(site, slot):
    await site.say(*TEXTS)
    await site.flip((await site.wal())[slot])
    assert await flaws(site) == [(Flaw.DAMAGED, str(slot + 1))]


async def test_an_absent_entry_is_found_when_later_ones_are_there(site):
    await site.say(*TEXTS)
    await site.drop([(await site.wal())[1]])
    assert await flaws(site) == [(Flaw.ABSENT, "2")]


async def test_an_entry_of_another_history_is_found(site):
    await site.say(TEXTS[0])
    first = await site.wal()
    other = await site.bytes_of(first[0])
    await site.drop(first)
    await site.say(TEXTS[1], TEXTS[2])
    await site.replace(first[0], other)
    assert await flaws(site) == [(Flaw.DAMAGED, "2")]


@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
async def test_a_damaged_segment_is_found_with_the_entries_that_it_held(site, damage):
    await site.say(*TEXTS)
    await site.compact()
    key = (await site.manifest()).segments[0].key
    if damage == "flip":
        await site.flip(key)
    elif damage == "cut":
        await site.replace(key, (await site.bytes_of(key))[:-10])
    else:
        await site.drop([key])
    report = await verify_store(site.ports)
    found = [item for item in report.namespaces[0].findings if not item.flaw.harmless]
    assert [(item.key, item.first_seq, item.last_seq) for item in found] == [(key, 1, 3)]
    assert not report.sound


@pytest.mark.parametrize("which", ["manifest", "keyring", "pointer", "account"])
async def test_a_damaged_small_object_is_found(site, which):
    await site.say(*TEXTS)
    listed = await site.listed()
    key = {
        "manifest": Layout.manifest(listed.incarnation),
        "keyring": Layout.keyring(listed.incarnation),
        "pointer": listed.key,
        "account": f"{listed.key.partition('/ns/')[0]}/account",
    }[which]
    await site.flip(key)
    report = await verify_store(site.ports)
    found = [*report.findings, *(item for space in report.namespaces for item in space.findings)]
    assert (Flaw.DAMAGED, key) in [(item.flaw, item.key) for item in found]
    assert not report.sound


async def test_names_below_a_lost_account_object_are_verified_when_its_id_is_given(site):
    await site.say(*TEXTS)
    account = (await site.listed()).key.partition("/ns/")[0] + "/account"
    await site.drop([account])
    unknown = await verify_store(site.ports)
    known = await verify_store(site.ports, known=[ROOT.account])
    assert {item.flaw for item in unknown.findings} == {Flaw.NO_ACCOUNT, Flaw.NO_NAME}
    assert [(item.flaw, item.key) for item in known.findings] == [(Flaw.ABSENT, account)]
    assert "repair --apply" in known.findings[0].fix
    assert known.namespaces[0].memories == 3


@pytest.mark.parametrize("attack", ["deleted", "put back"])
async def test_an_account_object_without_its_newest_revocations_is_found_and_mended(site, attack):
    await site.say(*TEXTS)
    account = (await site.listed()).key.partition("/ns/")[0] + "/account"
    before = await site.bytes_of(account)
    await site.revoke("researcher")
    await (site.drop([account]) if attack == "deleted" else site.replace(account, before))
    found = (await verify_store(site.ports)).findings
    expected = Flaw.ABSENT if attack == "deleted" else Flaw.DAMAGED
    assert [(item.flaw, item.key) for item in found] == [(expected, account)]

    await Accounts(site.ports).mend(ROOT.account)
    assert (await verify_store(site.ports)).sound
    await site.drop([account.replace("account", "revoked")])  # and it holds without the other one
    assert not await site.admits("researcher")
    assert await site.admits("coder")


async def test_a_body_under_another_key_is_found_only_with_the_secret(site):
    await site.say(*TEXTS)
    listed = await site.listed()
    keyring = Layout.keyring(listed.incarnation)
    swapped = await site.bytes_of(keyring)
    # A second namespace's words under the first one's log: every outer seal is right.
    log = NamespaceLog(site.ports, listed.account, listed.pointer)
    await log.start()
    await log.append([Put(Origin(b"a" * 32, b"n" * 16), Stored(b"r" * 16, b"c" * 32, swapped))])
    await log.close()
    assert await flaws(site) == []
    assert await flaws(site, secrets=[SECRET]) == [(Flaw.WRONG_SEAL, "4")]


async def test_what_nobody_names_is_reported_and_harmless(site):
    await site.say(*TEXTS)
    await site.compact(entries=2)
    manifest = await site.manifest()
    await site.store.create(manifest.segments[0].key[:-1] + "0", b"an upload that lost its race")
    report = await verify_store(site.ports)
    assert [item.flaw for item in report.namespaces[0].findings] == [Flaw.LEFT_OVER]
    assert report.sound


async def test_verifying_writes_nothing(site):
    await site.say(*TEXTS)
    await site.compact()
    before = await site.everything()
    await verify_store(site.ports, secrets=[SECRET])
    assert await site.everything() == before


async def test_what_is_left_of_a_namespace_that_is_being_erased_is_no_damage(site):
    await site.say(*TEXTS)
    listed = await site.listed()
    report = namespace_report(listed.account, listed.pointer, site.clock.now_ms())
    seen = await ErasureReports(site.ports).begin(report)
    erased = await NamespaceEraser(site.ports).run(seen)
    assert erased.report.stage is ErasureStage.DESTROYED  # its entries stay for an hour
    assert (await verify_store(site.ports)).sound
    await site.say("the name is used again")
    again = await verify_store(site.ports)
    assert again.sound
    assert [item.flaw for item in again.findings] == [Flaw.LEFT_OVER]
    late = (await site.keys(f"ns/{listed.incarnation.hex()}/wal/"))[-1]
    await site.clock.advance(3600)
    seen = await ErasureReports(site.ports).find(listed.account, listed.incarnation)
    assert (await NamespaceEraser(site.ports).run(seen)).report.stage is ErasureStage.CONFIRMED
    assert (await verify_store(site.ports)).findings == []
    await site.store.create(late, b"of a relayer that had been stopped for hours")
    much_later = await verify_store(site.ports)
    assert much_later.sound
    assert [item.flaw for item in much_later.findings] == [Flaw.LEFT_OVER]


@pytest.mark.parametrize("confirmed", [False, True])
async def test_a_report_that_does_not_open_is_damage_and_the_rest_is_looked_at(site, confirmed):
    await site.say(*TEXTS)
    listed, reports = await site.listed(), ErasureReports(site.ports)
    report = namespace_report(listed.account, listed.pointer, 1)
    await (reports.conclude(report) if confirmed else reports.begin(report))
    [key] = await site.keys("erased/" if confirmed else "erasing/")
    await site.flip(key)
    report = await verify_store(site.ports)
    assert [(item.flaw, item.key) for item in report.findings] == [(Flaw.DAMAGED, key)]
    assert report.namespaces[0].memories == 3


async def test_a_log_of_segments_alone_that_lost_its_manifest_is_damaged_not_unfinished(site):
    await site.say(*TEXTS)
    await site.compact()
    await site.collect()
    key = Layout.manifest((await site.listed()).incarnation)
    await site.drop([key])
    report = await verify_store(site.ports)
    assert [(item.flaw, item.key) for item in report.namespaces[0].findings] == [(Flaw.ABSENT, key)]


async def test_an_erased_memory_does_not_excuse_that_the_name_of_its_namespace_is_lost(site):
    ids = await site.say(*TEXTS)
    await site.erase(ids[0])
    listed, replica = await site.listed(), await site.replica()
    [erasure] = replica.state.erasures.known
    await ErasureReports(site.ports).begin(report_of(listed.account, "researcher", replica, erasure))
    await site.drop([listed.key])
    report = await verify_store(site.ports)
    assert [item.flaw for item in report.findings] == [Flaw.NO_NAME]


async def test_a_key_pair_of_the_relayers_that_does_not_open_is_damage_and_can_be_removed(site):
    await FleetKeys(site.ports).start()
    [key] = await site.keys("fleet/")
    assert (await verify_store(site.ports)).findings == []
    await site.flip(key)
    with pytest.raises(WrongRelayerKey, match=f"{key} .* remove it"):
        await FleetKeys(site.ports).start()
    [finding] = (await verify_store(site.ports)).findings
    assert (finding.flaw, finding.key, "remove it" in finding.fix) == (Flaw.DAMAGED, key, True)
    await site.drop([key])
    await FleetKeys(site.ports).start()
