"""`memrelay init`: a key that is never replaced, and settings that a relayer starts with."""

from __future__ import annotations

import subprocess
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from processes import CLEAN, run_memrelay

from relayer.commands.server import init
from relayer.errors import ConfigurationError
from relayer.settings.config import load_settings
from relayer.settings.keys import find_relayer_key

BUCKET = {"store": "s3://memories/team", "endpoint_url": "http://127.0.0.1:8333", "region": None}


def _init(folder: Path, **flags: object) -> str:
    with redirect_stdout(StringIO()) as said:
        init(folder, **flags)
    return said.getvalue()


def _read(folder: Path) -> dict[str, str]:
    lines = (folder / "relayer.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def test_key_and_settings_are_the_owner_s_alone_and_the_key_is_not_shown(tmp_path: Path) -> None:
    said = _init(tmp_path / "deployment", **BUCKET)
    key, file = tmp_path / "deployment/relayer.key", tmp_path / "deployment/relayer.env"
    assert [path.stat().st_mode & 0o777 for path in (key, file)] == [0o600, 0o600]
    assert key.read_text().strip() not in said + file.read_text()
    assert "memrelay store probe" in said


def test_a_relayer_reads_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _init(tmp_path, **BUCKET, accounts="open", public_url="https://memory.example.org", host="0.0.0.0")
    for name, value in _read(tmp_path).items():
        monkeypatch.setenv(name, value)
    settings = load_settings({}, {})
    assert (settings.store, settings.accounts, settings.host) == ("s3://memories/team", "open", "0.0.0.0")
    key = find_relayer_key(settings)
    assert key is not None
    assert key.hex() == (tmp_path / "relayer.key").read_text().strip()


def test_without_a_bucket_the_folder_is_the_data_directory(tmp_path: Path) -> None:
    _init(tmp_path)
    assert _read(tmp_path) == {"MEMRELAY_DATA": str(tmp_path)}


def test_a_shell_understands_the_file_too(tmp_path: Path) -> None:
    _init(tmp_path, **BUCKET)
    shown = subprocess.run(
        ["sh", "-c", 'set -a; . "$0"; env', str(tmp_path / "relayer.env")],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
        env=CLEAN,
    ).stdout
    assert _read(tmp_path).items() <= dict(line.split("=", 1) for line in shown.splitlines()).items()


def test_a_second_time_replaces_neither_key_nor_settings(tmp_path: Path) -> None:
    _init(tmp_path, **BUCKET)
    before = [(tmp_path / name).read_text() for name in ("relayer.key", "relayer.env")]
    with pytest.raises(ConfigurationError, match="already exists"):
        _init(tmp_path, store="s3://elsewhere")
    assert [(tmp_path / name).read_text() for name in ("relayer.key", "relayer.env")] == before


def test_a_key_that_is_there_is_kept(tmp_path: Path) -> None:
    assert run_memrelay(["keys", "make", str(tmp_path / "relayer.key")]).returncode == 0
    before = (tmp_path / "relayer.key").read_text()
    assert "was there" in _init(tmp_path, **BUCKET)
    assert (tmp_path / "relayer.key").read_text() == before


def test_a_wrong_setting_is_named_and_nothing_is_made(tmp_path: Path) -> None:
    ended = run_memrelay(["init", str(tmp_path / "x"), "--store", "gs://memories"])
    assert ended.returncode == 2
    assert "--store" in ended.stderr
    assert not (tmp_path / "x").exists()


def test_a_value_that_needs_quotes_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "two words"
    with pytest.raises(ConfigurationError, match="MEMRELAY_DATA"):
        _init(folder)
    assert not folder.exists()
