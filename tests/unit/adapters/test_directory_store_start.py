"""What the start finds out about a file system. The rivals' program plays the file systems that lie."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from relayer.adapters.directory_store import DirectoryStore
from relayer.adapters.directory_store import store as start
from relayer.adapters.system import SystemClock
from relayer.errors import StoreMisconfigured


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def refused(path: Path) -> str:
    with pytest.raises(StoreMisconfigured) as caught:
        await DirectoryStore.open(path, clock=SystemClock())
    assert names(path / ".staging") == []
    return str(caught.value)


def replaced(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    assert old in start._RIVAL
    monkeypatch.setattr(start, "_RIVAL", start._RIVAL.replace(old, new))


async def test_a_good_file_system_passes_and_keeps_nothing_of_the_probe(tmp_path: Path) -> None:
    store = await DirectoryStore.open(tmp_path / "a" / "b", clock=SystemClock())
    await store.close()
    assert names(tmp_path / "a" / "b") == [".locks", ".staging"]
    assert names(tmp_path / "a" / "b" / ".staging") == []


async def test_links_that_do_not_exclude_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, 'os.link(mine, "name%d" % number)', 'open("name%d" % number, "w").close()')
    assert "let two processes create one name" in await refused(tmp_path)


async def test_locks_that_do_not_exclude_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, 'os.open("lock", os.O_RDWR)', 'os.open("other", os.O_RDWR | os.O_CREAT)')
    assert "does not keep locks" in await refused(tmp_path)


async def test_links_that_fail_in_a_second_process_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(monkeypatch, "os.link(mine", 'os.link("missing"')
    assert "cannot make hard links" in await refused(tmp_path)


async def test_a_rival_that_dies_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, "import fcntl", "import missing_module, fcntl")
    assert "a second process cannot use" in await refused(tmp_path)


async def test_a_rival_that_hangs_does_not_hang_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(monkeypatch, "won = []", "won = []; import time; time.sleep(600)")
    monkeypatch.setattr(start, "_RIVAL_PATIENCE", 0.3)
    assert "a second process" in await refused(tmp_path)


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        ("link", errno.EPERM, "cannot make hard links"),
        ("link", errno.EOPNOTSUPP, "cannot do what the store needs"),
        ("fsync", errno.EINVAL, "cannot do what the store needs"),
        ("mkdir", errno.EROFS, "mounted writable"),
    ],
)
async def test_a_missing_ability_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: int, sentence: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(error, os.strerror(error))

    (tmp_path / ".staging").mkdir()
    monkeypatch.setattr(os, call, fail)
    message = await refused(tmp_path)
    assert sentence in message
    assert str(tmp_path) in message
