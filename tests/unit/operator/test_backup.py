"""Backup and restore: what comes back is what was there, less what was erased, wherever either was stopped."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
import pytest
from operator_site import ROOT, Site

from relayer.access.store_keys import probe
from relayer.adapters.memory_store import MemoryStore
from relayer.crypto import RelayerKeys
from relayer.domain.namespace import PointerState
from relayer.domain.operations import Put, decode_operation
from relayer.errors import ConfigurationError, CorruptNamespace, StoreMisconfigured, StoreUnavailable
from relayer.log.collector import Collector
from relayer.log.erasure import ErasureReports, ErasureStage, MemoryEraser, namespace_report, report_of
from relayer.log.objects import Layout, LogPorts, ObjectSealer
from relayer.operator.backup import back_up, prune
from relayer.operator.backup_store import BackupStore
from relayer.operator.catalogue import walk_log
from relayer.operator.restore import restore
from relayer.operator.verify import verify_store
from relayer.testing.local_relayer import RecordingStore
from relayer.wire import codec as ulid

TEXTS = [
    f"the {word} kettle is on shelf {number}" for number, word in enumerate(("red", "blue", "green", "grey"))
]
QUERY = "kettle shelf"
SECRET = ROOT.agent("researcher").secret


class Vault:
    """A backup's store, and fresh stores to restore into."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.store = RecordingStore(MemoryStore(site.clock))

    def place(self, store=None, keys: RelayerKeys | None = None) -> BackupStore:
        ports = self.site.ports
        return BackupStore(LogPorts(store or self.store, ports.clock, ports.randomness, keys or ports.keys))

    async def back_up(self):
        return await back_up(self.site.ports, self.place())

    async def damage(self, name: str, how: str = "damaged") -> None:
        """Put something else in the place of a copy, or nothing."""
        await self.store.delete(name)
        if how == "damaged":
            await self.store.create(name, b"something else")

    async def restored(self, **options) -> Site:
        other = self.site.over(MemoryStore(self.site.clock))
        await restore(self.place(), other.ports, **options)
        await probe(other.ports)
        return other

    async def brings_back(self, **options) -> list[str]:
        """Return what is heard of the kettles in a restored store."""
        return await (await self.restored(**options)).hears(QUERY)


@pytest.fixture
def vault(site) -> Vault:
    return Vault(site)


async def test_a_restored_store_serves_what_was_backed_up(site, vault):
    await site.say(*TEXTS[:3])
    await site.compact(entries=2)
    await site.say(TEXTS[3])
    await site.say("a compass needs no battery", agent="coder")
    await vault.back_up()
    other = await vault.restored()
    assert await other.hears(QUERY) == sorted(TEXTS)
    assert await other.hears("compass battery", agent="coder") == ["a compass needs no battery"]
    assert (await verify_store(other.ports, secrets=[SECRET])).sound
    await other.say("the kettle is on a new shelf")
    assert len(await other.hears(QUERY)) == 5


async def test_a_restored_namespace_is_opened_from_its_stored_index(site, vault):
    await site.say(*TEXTS[:3])
    await site.index()
    await site.say(TEXTS[3])
    await vault.back_up()
    other = await vault.restored()
    assert await other.opened_from() == await site.opened_from() == 3
    assert await other.hears(QUERY) == sorted(TEXTS)
    assert (await verify_store(other.ports)).findings == []
    vault.store.clear()
    await vault.back_up()
    assert not [call for call in vault.store.calls if call.operation == "create" and "/index/" in call.key]


@pytest.mark.parametrize("damage", ["absent", "damaged"])
async def test_a_backup_without_a_whole_index_restores_all_the_same(site, vault, damage):
    await site.say(*TEXTS)
    key = await site.index()
    await vault.back_up()
    [name] = [info.key async for info in vault.store.list("data/") if key in info.key]
    await vault.damage(name, damage)
    other = await vault.restored()
    assert await other.opened_from() == 0
    assert await other.hears(QUERY) == sorted(TEXTS)


async def test_an_index_from_before_an_erasure_is_not_restored(site, vault):
    [first, *_] = await site.say(*TEXTS)
    await site.index()
    await vault.back_up()
    await site.erase(first)
    await vault.back_up()
    other = await vault.restored(number=1)
    assert await other.hears(QUERY) == sorted(TEXTS[1:])
    assert not [key for key in await other.keys() if "/index/" in key]


async def test_what_an_account_took_back_stays_taken_back_also_after_the_restore_of_an_older_run(site, vault):
    await site.say(*TEXTS[:2])
    await vault.back_up()
    await site.revoke("coder")
    assert "revoked" in {key.rpartition("/")[2] for key in await site.keys("acct/")}
    await vault.back_up()
    for options in ({}, {"number": 1}):
        other = await vault.restored(**options)
        assert not await other.admits("coder")
        assert await other.admits("researcher")
        assert (await verify_store(other.ports)).sound


async def test_the_second_backup_copies_what_is_new_and_no_more(site, vault):
    await site.say(*TEXTS[:3])
    await vault.back_up()
    await site.say(TEXTS[3])
    vault.store.clear()
    backup = await vault.back_up()
    written = [call.key for call in vault.store.calls if call.operation == "create" and "data/" in call.key]
    assert [key.partition("/wal/")[2][:20] for key in written] == [f"{4:020d}"]
    assert backup.copied_objects == 1
    assert await vault.brings_back() == sorted(TEXTS)


async def test_an_unchanged_store_reads_two_slots_of_each_log(site, vault):
    await site.say(*TEXTS)
    await vault.back_up()
    counted = site.over(RecordingStore(site.store))
    await back_up(counted.ports, vault.place())
    wal = {call.key[-2:] for call in counted.store.calls if call.operation == "get" and "/wal/" in call.key}
    # The newest entry vouches for all before it; the rest is the window that finds the end.
    assert not {"01", "02", "03"} & wal


async def test_compaction_between_backups_loses_nothing(site, vault):
    await site.say(*TEXTS[:2])
    await vault.back_up()
    await site.compact()
    await site.drop(await site.wal())
    await site.say(*TEXTS[2:])
    await vault.back_up()
    for run, texts in ((1, TEXTS[:2]), (2, TEXTS)):
        other = await vault.restored(number=run)
        assert await other.hears(QUERY) == sorted(texts)


@pytest.mark.parametrize("compacted", [False, True])
async def test_what_was_erased_does_not_come_back_from_an_older_backup(site, vault, compacted):
    ids = await site.say(*TEXTS)
    if compacted:
        await site.compact(entries=2)
    await vault.back_up()
    erased = await sealed_text(site, 1)
    await site.erase(ids[1])
    await vault.back_up()
    other = await vault.restored(number=1)
    assert await other.hears(QUERY) == sorted(text for text in TEXTS if text != TEXTS[1])
    assert not [key for key, data in (await other.everything()).items() if erased in data]
    assert (await verify_store(other.ports, secrets=[SECRET])).sound


async def sealed_text(site, index: int) -> bytes:
    """Return a memory's sealed text, as the log has it."""
    listed, found = await site.listed(), []

    def visit(linked):
        operations = map(decode_operation, linked.entry.operations)
        found.extend(one.stored.sealed for one in operations if isinstance(one, Put))

    await walk_log(site.ports, listed.account, listed.incarnation, lambda: visit)
    return found[index]


@pytest.mark.parametrize("compacted", [False, True])
async def test_an_erasure_is_in_the_ledger_also_when_the_backup_that_saw_it_was_stopped(
    site, vault, compacted
):
    ids = await site.say(*TEXTS)
    await vault.back_up()
    await site.erase(ids[0])
    if compacted:
        await site.compact()
        await site.collect()
    assert await killed(site, vault, after=1)  # the entry or the segment is copied, the ledger is not written
    await vault.back_up()
    other = await vault.restored(number=1)
    assert TEXTS[0] not in await other.hears(QUERY)


class Dying:
    """Passes ``after`` writes on, and is gone."""

    def __init__(self, inner, after: int) -> None:
        self._inner = inner
        self._left = after

    def __getattr__(self, name):
        request = getattr(self._inner, name)
        return partial(self._write, request) if name in {"create", "swap", "purge"} else request

    async def _write(self, request, *given):
        if self._left == 0:
            raise Died
        self._left -= 1
        return await request(*given)


class Died(Exception):
    """Stands for SIGKILL: nothing below catches it."""


async def killed(site, vault, after: int) -> bool:
    try:
        await back_up(site.ports, vault.place(Dying(vault.store, after)))
    except Died:
        return True
    return False


async def test_a_backup_killed_before_any_write_goes_on_and_is_the_same(site, vault):
    await site.say(*TEXTS[:3])
    await site.compact(entries=3)
    await site.say(TEXTS[3])
    after, ended = 0, False
    while not ended:
        vault.store = RecordingStore(MemoryStore(site.clock))
        ended = not await killed(site, vault, after)
        if not ended:
            assert await vault.place().newest("runs") == 0
            await vault.back_up()
        other = await vault.restored()
        assert await other.hears(QUERY) == sorted(TEXTS)
        after += 1
    assert after > 8


async def test_a_restore_killed_before_any_write_is_not_served_and_goes_on(site, vault):
    ids = await site.say(*TEXTS[:3])
    await site.compact(entries=3)
    await site.say(TEXTS[3])
    await vault.back_up()
    erased = await sealed_text(site, 1)
    await site.erase(ids[1])
    await vault.back_up()
    stores = [store async for store in stopped_restores(site, vault, number=1)]
    for again in stores:
        if again is not stores[0]:
            with pytest.raises(StoreMisconfigured, match="being restored"):
                await probe(again.ports)
        await restore(vault.place(), again.ports, number=1)
        await probe(again.ports)
        assert await again.hears(QUERY) == sorted(text for text in TEXTS if text != TEXTS[1])
        assert not [key for key, data in (await again.everything()).items() if erased in data]
        assert (await verify_store(again.ports, secrets=[SECRET])).sound


async def test_a_restore_without_the_newest_ledger_is_refused(site, vault):
    await site.say(*TEXTS)
    await vault.back_up()
    await vault.back_up()
    for name in (await vault.place().names("ledger"))[1:]:
        await vault.store.delete(name)
    with pytest.raises(ConfigurationError, match="--ledger"):
        await vault.restored()


async def test_an_old_copy_of_a_backup_is_restored_with_the_ledger_of_a_newer_one(site, vault):
    ids = await site.say(*TEXTS)
    await vault.back_up()
    old = MemoryStore(site.clock)
    async for info in vault.store.list(""):
        await old.create(info.key, (await vault.store.get(info.key)).data)
    await site.erase(ids[3])
    await vault.back_up()
    other = site.over(MemoryStore(site.clock))
    await restore(vault.place(old), other.ports, ledgers=vault.place())
    assert TEXTS[3] not in await other.hears(QUERY)


async def test_a_store_in_use_is_not_restored_into(site, vault):
    await site.say(*TEXTS)
    await vault.back_up()
    before = await site.everything()
    with pytest.raises(StoreMisconfigured, match="in use"):
        await restore(vault.place(), site.ports)
    assert await site.everything() == before


async def test_another_relayer_key_opens_no_backup(site, vault):
    await site.say(*TEXTS)
    await vault.back_up()
    other = site.over(MemoryStore(site.clock))
    with pytest.raises(CorruptNamespace):
        await restore(vault.place(keys=RelayerKeys.derive(bytes(32))), other.ports)
    assert await other.everything() == {}


@pytest.mark.parametrize("how", ["damaged", "absent"])
async def test_a_damaged_copy_costs_its_own_entry_and_an_older_run_is_named(site, vault, how):
    ids = await site.say(*TEXTS)
    await vault.back_up()
    erased = await sealed_text(site, 3)
    await site.erase(ids[3])
    await vault.back_up()
    name = [key for key in await vault.place().names("data") if "/wal/" in key][1]
    await vault.damage(name, how)
    other = site.over(MemoryStore(site.clock))
    done = await restore(vault.place(), other.ports, number=1)
    await probe(other.ports)
    copy, entries = done.findings
    assert (copy.flaw.value, copy.key[-2:], "--run" in copy.fix) == (how, "02", True)
    assert "1 entries of a log are lost, the first of them is 2" in entries.sentence
    assert await other.hears(QUERY) == sorted([TEXTS[0], TEXTS[2]])
    assert not [key for key, data in (await other.everything()).items() if erased in data]
    assert (await verify_store(other.ports, secrets=[SECRET])).sound
    await other.say("the kettle is on a new shelf")


@pytest.mark.parametrize("kind", ["/seg/", "/manifest", "/keyring"])
async def test_a_restore_without_a_larger_piece_leaves_a_sound_store(site, vault, kind):
    await site.say(*TEXTS[:2])
    await site.compact()
    await site.say(*TEXTS[2:])
    await vault.back_up()
    place = vault.place()
    names = [*await place.names("data"), *await place.names("keyrings")]
    await vault.store.delete(next(name for name in names if kind in name))
    other = site.over(MemoryStore(site.clock))
    done = await restore(vault.place(), other.ports)
    await probe(other.ports)
    assert done.findings
    left = {"/seg/": TEXTS[2:], "/manifest": TEXTS, "/keyring": []}[kind]
    assert await other.hears(QUERY) == sorted(left)
    assert (await verify_store(other.ports, secrets=[SECRET])).sound


async def test_a_backup_whose_ledger_does_not_open_says_what_to_do(site, vault):
    await site.say(*TEXTS)
    await vault.back_up()
    await vault.damage(f"ledger/{1:020d}")
    with pytest.raises(CorruptNamespace, match="begin a new one in another place"):
        await vault.back_up()


async def test_a_damaged_log_keeps_what_the_run_before_had_of_it(site, vault):
    await site.say(*TEXTS)
    await vault.back_up()
    await site.say("the kettle is on a new shelf")
    await site.flip((await site.wal())[4])
    backup = await vault.back_up()
    assert [item.flaw.value for item in backup.findings] == ["damaged"]
    assert await vault.brings_back() == sorted(TEXTS)


async def test_no_keyring_is_kept_of_a_namespace_that_was_erased(site, vault):
    await site.say(*TEXTS)
    await vault.back_up()
    assert len(await vault.place().names("keyrings")) == 1
    listed = await site.listed()
    gone = msgspec.structs.replace(listed.pointer, state=PointerState.ERASED)
    await site.replace(listed.key, ObjectSealer(site.ports).seal_pointer(listed.account, listed.key, gone))
    await vault.back_up()
    assert await vault.place().names("keyrings") == []
    other = await vault.restored(number=1)
    assert not [key for key in await other.keys() if key.startswith("ns/")]


async def test_pruning_keeps_what_the_newest_runs_need_and_forgets_the_rest(site, vault):
    ids = await site.say(*TEXTS)
    await vault.back_up()
    erased = await sealed_text(site, 0)
    await site.erase(ids[0])
    await site.compact()
    await site.drop(await site.wal())
    await vault.back_up()
    await prune(vault.place(), 1)
    assert await vault.place().names("runs") == [f"runs/{2:020d}"]
    kept = [(await vault.store.get(name)).data for name in await vault.place().names("data")]
    assert not [data for data in kept if erased in data]
    assert await vault.brings_back() == sorted(TEXTS[1:])


async def test_two_backups_at_once_do_not_make_one_run_of_two(site, vault):
    await site.say(*TEXTS)
    ended = await asyncio.gather(vault.back_up(), vault.back_up(), return_exceptions=True)
    assert {type(item).__name__ for item in ended} <= {"Backup", "ConfigurationError"}
    assert len(await vault.place().names("runs")) == sum(type(item).__name__ == "Backup" for item in ended)
    assert await vault.brings_back() == sorted(TEXTS)


async def test_a_backup_shows_no_text_and_no_name(site, vault):
    await site.say(*TEXTS)
    await vault.back_up()
    names = [info.key async for info in vault.store.list("")]
    everything = b"".join([(await vault.store.get(name)).data for name in names]) + "".join(names).encode()
    assert b"kettle" not in everything
    assert b"researcher" not in everything


async def test_a_store_that_does_not_answer_ends_a_backup_without_a_run(site, vault):
    await site.say(*TEXTS)

    class Silent(Dying):
        async def create(self, key, data):
            raise StoreUnavailable("away")

    with pytest.raises(StoreUnavailable):
        await back_up(site.ports, vault.place(Silent(vault.store, 0)))
    assert await vault.place().newest("runs") == 0


async def test_an_erasure_that_was_under_way_is_carried_out_by_the_restore(site, vault):
    ids = await site.say(*TEXTS)
    await site.erase(ids[0])
    reports = ErasureReports(site.ports)
    report = report_of((await site.listed()).account, "researcher", await site.replica(), ulid.parse(ids[0]))
    seen = await reports.begin(report)
    await reports.advance(
        seen, msgspec.structs.replace(report, stage=ErasureStage.DESTROYED, epoch=7, destroyed_at=5)
    )
    await vault.back_up()
    other = await vault.restored()
    found = await ErasureReports(other.ports).find(report.account, report.erasure)
    assert found is not None
    assert found.report.stage is ErasureStage.CONFIRMED
    manifest = await other.manifest()
    assert (found.report.epoch, manifest.gc_watermark) == (manifest.gc_epoch, found.report.seq)
    assert await other.hears(QUERY) == sorted(TEXTS[1:])


async def confirmed(site, memory):
    """Erase a memory, and destroy what the store holds of it at once; returns the report."""
    replica = await site.replica()
    erasure = replica.state.erasures.erasure_of(ulid.parse(memory)).erasure
    account = (await site.listed()).account
    seen = await ErasureReports(site.ports).begin(report_of(account, "researcher", replica, erasure))
    collector = Collector(site.ports, account, replica.incarnation, 0)
    done = await MemoryEraser(site.ports, replica, collector.run, 0).run(seen)
    assert done.report.stage is ErasureStage.CONFIRMED
    return done.report


async def unreadable_since(site, vault, memory):
    """Back up a log that was whole the last time, before a memory was erased, and is damaged now."""
    await vault.back_up()
    await site.clock.advance(60)
    await site.erase(memory)
    report = await confirmed(site, memory)
    await site.say("the kettle is on a new shelf")
    await site.flip((await site.wal())[-1])
    backup = await vault.back_up()
    assert [item.flaw.value for item in backup.findings] == ["damaged"]
    return report


async def test_what_was_erased_stays_away_although_its_log_could_not_be_read_since(site, vault):
    ids = await site.say(*TEXTS)
    await unreadable_since(site, vault, ids[0])
    for options in ({}, {"number": 1}):
        other = await vault.restored(**options)
        assert await other.hears(QUERY) == sorted(TEXTS[1:])


async def test_a_report_that_does_not_open_is_said_and_stops_neither_backup_nor_restore(site, vault):
    ids = await site.say(*TEXTS)
    await site.erase(ids[0])
    await confirmed(site, ids[0])
    [key] = await site.keys("erased/")
    await site.flip(key)
    backup = await vault.back_up()
    assert [(item.flaw.value, item.key) for item in backup.findings] == [("damaged", key)]
    assert await vault.brings_back() == sorted(TEXTS[1:])


@pytest.mark.parametrize("lost", ["account", "pointer", "damaged pointer", "manifest"])
async def test_what_makes_a_namespace_exist_is_kept_from_the_run_before_when_it_is_lost(site, vault, lost):
    await site.say(*TEXTS)
    await site.say("the coder has another kettle", agent="coder")
    await vault.back_up()
    listed = await site.listed()
    tag = listed.key.split("/")[1]
    key = {"account": f"acct/{tag}/account", "manifest": f"ns/{listed.incarnation.hex()}/manifest"}
    if lost == "damaged pointer":
        await site.flip(listed.key)
    else:
        await site.drop([key.get(lost, listed.key)])
    backup = await vault.back_up()
    said = [item for item in backup.findings if item.key == key.get(lost, listed.key)]
    assert ["keeps its state of the run before" in item.sentence for item in said] == [True]
    await vault.back_up()
    await prune(vault.place(), 1)
    other = await vault.restored()
    assert await other.hears(QUERY) == sorted(TEXTS)
    assert await other.hears("another kettle", agent="coder") == ["the coder has another kettle"]


async def test_a_namespace_whose_erasure_was_asked_for_comes_back_from_no_run_and_is_not_missed(site, vault):
    await site.say(*TEXTS)
    await vault.back_up()
    listed = await site.listed()
    await ErasureReports(site.ports).begin(namespace_report(listed.account, listed.pointer, 1))
    await vault.back_up()
    other = await vault.restored(number=1)
    assert listed.key not in await other.keys()
    backup = await back_up(other.ports, vault.place())
    assert backup.findings == []


@pytest.mark.parametrize(("slot", "said"), [(1, []), (3, ["damaged"])])
async def test_a_log_that_lost_an_entry_does_not_lose_it_in_the_backup(site, vault, slot, said):
    await site.say(*TEXTS)
    await vault.back_up()
    await site.drop([(await site.wal())[slot]])
    backup = await vault.back_up()
    assert [item.flaw.value for item in backup.findings] == said
    await prune(vault.place(), 1)
    assert await vault.brings_back() == sorted(TEXTS)


@pytest.mark.parametrize("said", ["entry 2 is missing", "no keyring"])
async def test_what_is_missing_already_is_said_by_the_first_backup(site, vault, said):
    await site.say(*TEXTS)
    keyring = Layout.keyring((await site.listed()).incarnation)
    await site.drop([keyring if "keyring" in said else (await site.wal())[1]])
    backup = await vault.back_up()
    assert [said in item.sentence for item in backup.findings] == [True]


async def test_a_run_that_does_not_open_stops_no_later_backup(site, vault):
    await site.say(*TEXTS)
    await vault.back_up()
    await vault.damage(f"runs/{1:020d}")
    backup = await vault.back_up()
    assert [item.key for item in backup.findings] == [f"runs/{1:020d}"]
    assert (await vault.back_up()).findings == []
    assert await vault.brings_back() == sorted(TEXTS)


async def stopped_restores(site, vault, **options):
    """Yield stores in which a restore stopped, before any of its writes."""
    after = 0
    while True:
        memory = MemoryStore(site.clock)
        try:
            await restore(vault.place(), site.over(Dying(memory, after)).ports, **options)
        except Died:
            yield site.over(memory)
            after += 1
        else:
            assert after > 8
            return


async def test_a_restore_goes_on_with_its_run_although_there_is_a_newer_one(site, vault):
    await site.say(*TEXTS[:2])
    await site.say("the coder has another kettle", agent="coder")
    await vault.back_up()
    stores = [store async for store in stopped_restores(site, vault)]
    await site.say(*TEXTS[2:])
    await site.say("the coder has a third kettle", agent="coder")
    await vault.back_up()
    for other in stores[1:]:
        with pytest.raises(StoreMisconfigured, match="another run"):
            await restore(vault.place(), other.ports, number=2)
        assert (await restore(vault.place(), other.ports)).run.number == 1
        assert await other.hears(QUERY) == sorted(TEXTS[:2])
        assert await other.hears("another kettle", agent="coder") == ["the coder has another kettle"]


async def test_what_is_erased_while_a_restore_is_stopped_does_not_come_back(site, vault):
    ids = await site.say(*TEXTS)
    await site.say("the coder has another kettle", agent="coder")
    await vault.back_up()
    texts = [await sealed_text(site, 0)]
    stores = [store async for store in stopped_restores(site, vault)]
    coder = await site.listed("coder")
    await ErasureReports(site.ports).begin(namespace_report(coder.account, coder.pointer, 1))
    await site.erase(ids[0])
    await vault.back_up()
    for other in stores:
        await restore(vault.place(), other.ports, number=1)
        await probe(other.ports)
        assert await other.hears(QUERY) == sorted(TEXTS[1:])
        left = await other.everything()
        assert not [key for key, data in left.items() if coder.incarnation.hex() in key or texts[0] in data]
        assert coder.key not in left
        assert (await verify_store(other.ports, secrets=[SECRET])).sound


async def test_a_restore_of_a_run_that_is_gone_meanwhile_asks_for_an_empty_place(site, vault):
    await site.say(*TEXTS)
    await vault.back_up()
    [*_, other] = [store async for store in stopped_restores(site, vault)]
    await vault.back_up()
    await prune(vault.place(), 1)
    with pytest.raises(ConfigurationError, match="give an empty place"):
        await restore(vault.place(), other.ports)


async def test_pruning_spares_what_the_next_backup_has_copied_already(site, vault):
    await site.say(*TEXTS[:2])
    earlier = vault.place()
    await back_up(site.ports, earlier)
    await site.say(*TEXTS[2:])

    class Overlapping(RecordingStore):
        async def create(self, key, data):
            if key.startswith("runs/"):
                await prune(earlier, 1)
            return await super().create(key, data)

    await back_up(site.ports, vault.place(Overlapping(vault.store)))
    assert await vault.brings_back() == sorted(TEXTS)


async def test_what_is_no_copy_of_an_object_is_in_no_backup_s_way(site, vault):
    await site.say(*TEXTS)
    await vault.store.create("data/notes-of-somebody", b"hands off")
    assert (await vault.back_up()).findings == []
    assert (await vault.back_up()).copied_objects == 0
    assert await vault.brings_back() == sorted(TEXTS)
