"""Restores of backups that somebody changed end in a clear error or in findings, and write only to their target."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable
from fnmatch import fnmatch
from pathlib import Path

import msgspec
import pytest
from operator_site import RELAYER_KEY, RELAYER_KEYS, site_at
from processes import run_memrelay
from typed_commands import Done, run_relayer

from relayer.adapters.directory_store import DirectoryStore
from relayer.adapters.system import SystemClock, SystemRandomness
from relayer.log.objects import LogPorts
from relayer.operator.backup_store import BackupStore, Row

TEXTS = [f"the {word} kettle is on shelf {number}" for number, word in enumerate(("red", "blue", "green"))]
OUTSIDE = b"outside of the backup"


class Place:
    """A backup of two namespaces, a file outside of it, and the directory that it is restored into."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.backup, self.fresh, self.outside = folder / "backup", folder / "fresh", folder / "outside"

    def files(self, pattern: str) -> list[Path]:
        found = sorted(self.backup.glob(f"objects/{pattern}"))
        assert found
        return found

    def first_entries(self) -> list[Path]:
        """Return the first entry of each namespace."""
        folders = self.files("data/ns/*/wal")
        assert len(folders) == 2
        return [min(folder.iterdir()) for folder in folders]

    def environment(self) -> dict[str, str]:
        key = str(self.folder / "key")
        return {"MEMRELAY_DATA": str(self.fresh), "MEMRELAY_RELAYER_KEY_FILE": key}

    def restore(self, *options: str) -> Done:
        return run_relayer(self.environment(), "restore", "--from", self.backup, *options)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")

    async def fill() -> None:
        site = await site_at(folder / "data")
        await site.begin()
        await site.say(*TEXTS)
        await site.say("a compass needs no battery", agent="coder")
        await site.close()
        await site.store.close()

    asyncio.run(fill())
    key = folder / "key"
    key.write_text(RELAYER_KEY.hex() + "\n")
    key.chmod(0o600)
    (folder / "outside").write_bytes(OUTSIDE)
    environment = {"MEMRELAY_DATA": str(folder / "data"), "MEMRELAY_RELAYER_KEY_FILE": str(key)}
    done = run_memrelay(["backup", "--to", str(folder / "backup")], environment)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Place:
    shutil.copytree(made, tmp_path / "place")
    return Place(tmp_path / "place")


def _link(place: Place, file: Path) -> None:
    file.unlink()
    file.symlink_to(place.outside)


def _pipe(place: Place, file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _huge(place: Place, file: Path) -> None:
    os.truncate(file, 1 << 40)


def _cut(place: Place, file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def _empty(place: Place, file: Path) -> None:
    os.truncate(file, 0)


def _folder(place: Place, file: Path) -> None:
    file.unlink()
    file.mkdir()


CHANGES = [_link, _cut, _empty, _folder]
OBJECTS = [
    "runs/*",
    "ledger/*",
    "pages/*",
    "data/acct/*/account-*",
    "data/acct/*/ns/*",
    "data/ns/*/wal/*",
    "data/ns/*/manifest-*",
    "keyrings/ns/*/keyring*",
]


def _said(done: Done) -> str:
    said = done.stdout + done.stderr
    assert "Traceback" not in said
    assert done.returncode in {1, 2}, said
    assert "PROBLEM" in done.stdout if done.returncode == 1 else done.stderr.count("\n") == 1, said
    return said


@pytest.mark.parametrize("pattern", OBJECTS)
@pytest.mark.parametrize("change", CHANGES)
def test_an_object_that_was_changed_is_named_and_nothing_else_is_written(
    place: Place, change: Callable[[Place, Path], None], pattern: str
) -> None:
    change(place, place.files(pattern)[0])
    _said(place.restore())
    assert place.outside.read_bytes() == OUTSIDE
    assert {path.name for path in place.folder.iterdir()} - {"fresh"} == {"data", "backup", "outside", "key"}
    written = [path for path in place.fresh.rglob("*") if not path.is_dir()]
    assert all(path.is_file() and not path.is_symlink() for path in written)
    assert OUTSIDE not in [path.read_bytes() for path in written]


@pytest.mark.parametrize("pattern", ["runs/*", "pages/*", "data/ns/*/wal/*"])
@pytest.mark.parametrize("change", [_pipe, _huge])
def test_a_pipe_or_a_huge_file_neither_hangs_nor_fills_memory(
    place: Place, change: Callable[[Place, Path], None], pattern: str
) -> None:
    """Run the restore in a process of its own, which is killed after a minute."""
    change(place, place.files(pattern)[0])
    done = run_memrelay(["restore", "--from", str(place.backup)], place.environment())
    _said(Done(done.returncode, done.stdout, done.stderr))


def test_exchanged_objects_of_two_namespaces_are_named_and_kept_out(place: Place) -> None:
    one, other = place.first_entries()
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    said = _said(place.restore())
    assert said.count("differs from the object that was backed up") == 2
    assert run_relayer(place.environment(), "verify").returncode == 0


def test_names_that_are_no_runs_are_passed_over(place: Place) -> None:
    for stream in ("runs", "ledger"):
        for name in ("latest", "1_0", "9" * 19, "..." + "9" * 20):
            (place.backup / "objects" / stream / name).write_bytes(b"no run")
    done = place.restore()
    assert (done.returncode, done.stderr) == (0, "")


def test_a_run_that_was_renamed_is_refused(place: Place) -> None:
    run = place.files("runs/*")[0]
    ledger = place.files("ledger/*")[0]
    shutil.copy(run, run.with_name(f"{7:020d}"))
    shutil.copy(ledger, ledger.with_name(f"{7:020d}"))
    said = _said(place.restore())
    assert f"{7:020d}" in said
    assert "--run" in _said(place.restore("--run", "9"))


def test_a_directory_that_leads_out_of_the_backup_gives_nothing_that_was_not_backed_up(place: Place) -> None:
    folder = place.first_entries()[0].parent
    elsewhere = place.folder / "elsewhere"
    elsewhere.mkdir()
    for file in folder.iterdir():
        (elsewhere / file.name).write_bytes(OUTSIDE)
    shutil.rmtree(folder)
    folder.symlink_to(elsewhere)
    _said(place.restore())
    restored = [path.read_bytes() for path in place.fresh.rglob("*") if path.is_file()]
    assert OUTSIDE not in restored
    assert sorted({path.read_bytes() for path in elsewhere.iterdir()}) == [OUTSIDE]


@pytest.mark.parametrize(
    "key",
    [
        "../escaped",
        "/etc/escaped",
        "acct/../../escaped",
        "ns/" + "0" * 32 + "/seg/../../../../escaped",
        "quarantine/" + "x" * 3000,
        "ns/{live}/seg/../../../escaped",
        "quarantine/a/../../../escaped",
        "elsewhere",
        "",
    ],
)
def test_a_run_with_a_name_that_is_no_objects_is_refused(place: Place, key: str) -> None:
    async def added(_: BackupStore, rows: list[Row]) -> list[Row]:
        live = next(row.key.split("/")[1] for row in rows if row.key.startswith("ns/"))
        return [Row(key.replace("{live}", live), rows[0].digest, rows[0].size), *rows]

    asyncio.run(_rewrite(place, added))
    said = _said(place.restore())
    assert "lists an object that backups never contain" in said
    assert not list(place.folder.rglob("escaped"))


def test_a_run_whose_digest_is_none_is_refused(place: Place) -> None:
    async def added(_: BackupStore, rows: list[Row]) -> list[Row]:
        return [Row(rows[0].key, b"../..", rows[0].size), *rows]

    asyncio.run(_rewrite(place, added))
    assert "lists an object that backups never contain" in _said(place.restore())


@pytest.mark.parametrize(
    ("there", "taken"),
    [
        ("acct/*/ns/*", "acct/*/ns/*"),
        ("acct/*/account", "acct/*/ns/*"),
        ("ns/*/keyring*", "ns/*/keyring*"),
        ("ns/*/manifest", "ns/*/manifest"),
    ],
)
def test_an_object_that_belongs_elsewhere_is_named(place: Place, there: str, taken: str) -> None:
    """Name an object of another place in the run, as only the holder of the relayer key can."""

    async def exchanged(backup: BackupStore, rows: list[Row]) -> list[Row]:
        old = next(row for row in rows if fnmatch(row.key, there))
        data = await backup.fetch([row for row in rows if fnmatch(row.key, taken)][-1])
        assert data is not None
        forged = await backup.keep(old.key, data)
        assert forged != old
        return [forged if row == old else row for row in rows]

    asyncio.run(_rewrite(place, exchanged))
    _said(place.restore())


async def _rewrite(place: Place, change: Callable[[BackupStore, list[Row]], Awaitable[list[Row]]]) -> None:
    """Write the newest run again with other rows, sealed with the relayer key."""
    clock = SystemClock()
    store = await DirectoryStore.open(place.backup / "objects", clock=clock, tried=True)
    backup = BackupStore(LogPorts(store, clock, SystemRandomness(), RELAYER_KEYS))
    await backup.load()
    number = await backup.newest("runs")
    head, rows = await backup.read("runs", number, Row)
    changed = await change(backup, rows)
    place.files("runs/*")[0].unlink()
    assert await backup.write("runs", msgspec.structs.replace(head, rows=len(changed)), changed)
    await store.close()
