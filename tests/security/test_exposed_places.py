"""What lies open on a relayer's machine and port: figures, files that others can read, names that others can lay links at."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from border import border
from processes import run_memrelay

from relayer.errors import ConfigurationError
from relayer.process import ready_file
from relayer.settings import keys as relayer_key
from relayer.settings.config import RelayerSettings
from relayer.settings.keys import find_relayer_key, make_relayer_key, require_relayer_key

TOKEN = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    "settings",
    [
        {"public_url": "https://memory.example.org", "accounts": "open"},
        {"metrics_token": TOKEN},
        {"metrics_token": TOKEN, "public_url": "https://memory.example.org", "accounts": "open"},
    ],
    ids=["behind a proxy", "with a token", "both"],
)
async def test_metrics_are_kept_from_whoever_cannot_show_to_be_an_operator(settings: dict[str, str]) -> None:
    async with border(**settings) as at:
        for sent in (
            {},
            {"authorization": f"Bearer {TOKEN[:-1]}"},
            {"authorization": "Bearer"},
            {"authorization": ""},
        ):
            answer = await at.http.get(f"{at.url}/metrics", headers=sent)
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
            assert "memrelay_" not in answer.text
        if "metrics_token" in settings:
            shown = await at.http.get(f"{at.url}/metrics", headers={"authorization": f"Bearer {TOKEN}"})
            assert (shown.status_code, "memrelay_connections" in shown.text) == (200, True)


async def test_metrics_asked_for_again_and_again_are_rendered_once_a_second() -> None:
    async with border() as at:
        first = (await at.http.get(f"{at.url}/metrics")).text
        await at.http.get(f"{at.url}/health")
        assert (await at.http.get(f"{at.url}/metrics")).text == first


def test_a_token_that_can_be_guessed_is_refused(tmp_path: Path) -> None:
    environment = {"MEMRELAY_METRICS_TOKEN": "hunter2", "MEMRELAY_DATA": str(tmp_path / "data")}
    done = run_memrelay(["serve", "--port", "0"], environment)
    assert done.returncode == 2
    assert "MEMRELAY_METRICS_TOKEN: has fewer than 16 characters" in done.stderr
    assert "hunter2" not in done.stdout + done.stderr


def test_a_ready_file_is_its_owner_s_alone_and_never_written_through_a_link(tmp_path: Path) -> None:
    victim, ready = tmp_path / "victim", tmp_path / "ready.json"
    victim.write_text("precious")
    for link in (ready, tmp_path / f"ready.json.{os.getpid()}"):
        link.symlink_to(victim)
    with ready_file(ready, "http://127.0.0.1:1"):
        assert victim.read_text() == "precious"
        assert stat.S_IMODE(ready.lstat().st_mode) == 0o600
    assert not ready.exists()


def test_a_ready_file_that_an_earlier_run_left_does_not_stop_the_next(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    ready.write_text("of a run that was killed")
    with ready_file(ready, "http://127.0.0.1:1"):
        assert "127.0.0.1:1" in ready.read_text()


def test_a_relayer_does_not_start_with_a_key_file_that_others_can_read(tmp_path: Path) -> None:
    key = tmp_path / "given.key"
    key.write_text("11" * 32)
    for mode in (0o644, 0o640, 0o620, 0o604):
        key.chmod(mode)
        environment = {"MEMRELAY_RELAYER_KEY_FILE": str(key), "MEMRELAY_DATA": str(tmp_path / "data")}
        if mode == 0o644:
            done = run_memrelay(["serve", "--port", "0"], environment)
            assert done.returncode == 2
            assert f"chmod 600 {key}" in done.stderr
        with pytest.raises(ConfigurationError, match="chmod 600"):
            find_relayer_key(RelayerSettings(relayer_key_file=key))
    key.chmod(0o600)
    assert find_relayer_key(RelayerSettings(relayer_key_file=key)) == b"\x11" * 32


def test_a_mounted_secret_is_taken_as_its_owner_gave_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "mounted.key"
    key.write_text("11" * 32)
    # Owned by root, read by the group of the pod: another user than the one that runs here.
    monkeypatch.setattr(relayer_key.os, "geteuid", lambda: os.getuid() + 1)
    for mode in (0o440, 0o644):
        key.chmod(mode)
        assert find_relayer_key(RelayerSettings(relayer_key_file=key)) == b"\x11" * 32


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o702])
def test_a_relayer_does_not_start_in_a_data_directory_that_others_can_write(
    tmp_path: Path, mode: int
) -> None:
    data = tmp_path / "data"
    make_relayer_key(data)
    data.chmod(mode)
    settings = RelayerSettings(data=data)
    with pytest.raises(ConfigurationError, match=f"chmod 700 {data}"):
        require_relayer_key(settings, print)
    data.chmod(0o755)
    assert require_relayer_key(settings, print)
