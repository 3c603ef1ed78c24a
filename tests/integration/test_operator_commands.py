"""The operator's commands as they are typed: exit codes, what is printed, and what a kill leaves behind."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from operator_site import ROOT, fill, site_at
from processes import CLEAN, run_memrelay, wait_until
from s3_servers import BUCKET, CREDENTIALS, S3Server
from typed_commands import Done, run_relayer

from relayer.adapters.directory_store import store as start
from relayer.adapters.directory_store.tree import Tree, nothing_written
from relayer.commands.operator_work import _check_apart
from relayer.errors import ConfigurationError
from relayer.settings.config import load_settings

TEXTS = [f"the {word} kettle is on shelf {number}" for number, word in enumerate(("red", "blue", "green"))]


@pytest.fixture
async def data(tmp_path: Path) -> Path:
    """A data directory with three memories and its key."""
    await fill(tmp_path / "data", *TEXTS)
    return tmp_path / "data"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "agent"
    file.write_text(
        f"MEMRELAY_AGENT_SECRET={ROOT.agent('researcher').secret.hex()}\nMEMRELAY_AGENT_CERTIFICATE=x\n"
    )
    file.chmod(0o600)
    return file


def memrelay(*arguments: str, data: Path, **environment: str) -> Done:
    return run_relayer({"MEMRELAY_DATA": str(data)} | environment, *arguments)


def process(*arguments: str, data: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_memrelay(arguments, {"MEMRELAY_DATA": str(data)} | environment)


def slots(data: Path) -> list[Path]:
    return sorted(data.glob("objects/ns/*/wal/*"))


def test_verify_opens_inner_seals_with_what_keys_export_prints(data: Path, secret: Path) -> None:
    done = memrelay("verify", "--agent-secret-file", str(secret), data=data)
    assert (done.returncode, done.stderr) == (0, "")
    assert "sound     researcher (live): 3 entries, 3 memories" in done.stdout
    assert "inner seals 3 opened" in done.stdout


def test_a_secret_that_others_can_read_is_refused(data: Path, secret: Path) -> None:
    secret.chmod(0o644)
    done = memrelay("verify", "--agent-secret-file", str(secret), data=data)
    assert done.returncode == 2
    assert "chmod 600" in done.stderr


def test_damage_is_found_planned_mended_and_gone(data: Path) -> None:
    broken = slots(data)[1]
    broken.write_bytes(broken.read_bytes()[:-1] + b"\0")
    found = memrelay("verify", "--json", data=data)
    assert found.returncode == 1
    report = json.loads(found.stdout)
    assert [item["first_seq"] for item in report["namespaces"][0]["findings"]] == [2]
    plan = memrelay("repair", data=data)
    assert plan.returncode == 1
    assert "nothing was changed" in plan.stdout
    assert "lost: 2" in plan.stdout
    mended = memrelay("repair", "--apply", data=data)
    assert mended.returncode == 0
    assert "1 entries are lost" in mended.stdout
    assert memrelay("verify", data=data).returncode == 0
    assert memrelay("repair", data=data).stdout == "result    there is nothing to repair\n"


def test_compact_stats_and_inspect_say_what_is_there(data: Path) -> None:
    assert "1 segments made" in memrelay("compact", data=data).stdout
    stats = json.loads(memrelay("stats", "--json", data=data).stdout)
    assert (stats["entries"], stats["segments"], stats["garbage"]["covered_slots"]["objects"]) == (3, 1, 3)
    assert stats["traffic"] is None
    metrics = data.parent / "metrics"
    metrics.write_text(
        'memrelay_store_requests_total{call="create",end="created"} 3.0\n'
        'memrelay_http_requests_total{route="/v1/remember",status="200"} 6.0\n'
    )
    counted = memrelay("stats", "--metrics", str(metrics), data=data).stdout
    assert "0.500 writes and 0.000 reads of the store" in counted
    shown = memrelay("inspect", "researcher", data=data).stdout
    assert "memories" in shown
    assert "3 live" in shown
    assert "kettle" not in shown
    key = str(slots(data)[0].relative_to(data / "objects"))
    assert "1 put" in memrelay("inspect", key, data=data).stdout
    assert memrelay("inspect", "nobody", data=data).returncode == 2


def test_what_only_reads_works_on_a_disk_that_takes_no_writes(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = Tree.create

    def refuse(tree: Tree, *arguments: Any) -> Any:
        if Path(tree.path).is_relative_to(data):
            raise nothing_written(OSError(errno.EROFS, "Read-only file system"), tree.path)
        return create(tree, *arguments)

    probe = start._probe
    monkeypatch.setattr(Tree, "create", refuse)
    monkeypatch.setattr(start, "_probe", lambda tree: refuse(tree) if str(data) in tree.path else probe(tree))
    assert "the store is intact" in memrelay("verify", data=data).stdout
    assert memrelay("stats", data=data).returncode == 0
    assert memrelay("inspect", "researcher", data=data).returncode == 0
    made = memrelay("backup", "--to", str(tmp_path / "backup"), data=data)
    assert made.returncode == 0
    assert "the backup is complete" in made.stdout
    assert "EROFS" in memrelay("compact", data=data).stderr


async def test_backup_and_restore_from_directory_to_directory(data: Path, tmp_path: Path) -> None:
    backup, fresh = tmp_path / "backup", tmp_path / "fresh"
    made = process("backup", "--to", str(backup), data=data)
    assert (made.returncode, "the backup is complete" in made.stdout) == (0, True)
    again = process("backup", "--to", str(backup), "--keep", "1", data=data)
    assert "copied    0 objects" in again.stdout
    key = {"MEMRELAY_RELAYER_KEY_FILE": str(data / "relayer.key")}
    restored = process("restore", "--from", str(backup), data=fresh, **key)
    assert (restored.returncode, restored.stderr) == (0, "")
    assert process("verify", data=fresh, **key).returncode == 0
    site = await site_at(fresh)
    assert await site.hears("kettle shelf") == sorted(TEXTS)
    await site.close()
    await site.store.close()
    refused = process("restore", "--from", str(backup), data=fresh, **key)
    assert refused.returncode == 2
    assert "in use" in refused.stderr
    assert "give another directory" in refused.stderr


async def test_backup_to_a_bucket_and_restore_from_it_into_another(
    data: Path, tmp_path: Path, moto_server: S3Server, s3_credentials: None
) -> None:
    moto_server.empty()
    key = {"MEMRELAY_RELAYER_KEY_FILE": str(data / "relayer.key")} | CREDENTIALS
    made = process(
        "backup", "--to", f"s3://{BUCKET}/copies", "--to-endpoint-url", moto_server.url, data=data, **key
    )
    assert (made.returncode, made.stderr) == (0, "")
    bucket = {"MEMRELAY_STORE": f"s3://{BUCKET}/live", "MEMRELAY_ENDPOINT_URL": moto_server.url} | key
    restored = process("restore", "--from", f"s3://{BUCKET}/copies", data=tmp_path / "unused", **bucket)
    assert (restored.returncode, restored.stderr) == (0, "")
    assert process("verify", data=tmp_path / "unused", **bucket).returncode == 0
    back = tmp_path / "back"
    onwards = process("backup", "--to", str(back), data=tmp_path / "unused", **bucket)
    assert (onwards.returncode, onwards.stderr) == (0, "")
    assert process("restore", "--from", str(back), data=tmp_path / "new", **key).returncode == 0


@pytest.mark.parametrize("objects", [1, 5])
def test_a_backup_that_was_killed_is_completed_by_the_next_one(
    data: Path, tmp_path: Path, objects: int
) -> None:
    backup = tmp_path / "backup"
    command = [sys.executable, "-m", "relayer", "backup", "--to", str(backup)]
    process = subprocess.Popen(command, env=CLEAN | {"MEMRELAY_DATA": str(data)}, stdout=subprocess.PIPE)
    wait_until(
        lambda: len(list(backup.glob("objects/[dk]*/**/*-*"))) >= objects or process.poll() is not None
    )
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)
    assert memrelay("backup", "--to", str(backup), data=data).returncode == 0
    key = {"MEMRELAY_RELAYER_KEY_FILE": str(data / "relayer.key")}
    fresh = tmp_path / "fresh"
    assert memrelay("restore", "--from", str(backup), data=fresh, **key).returncode == 0
    assert memrelay("verify", data=fresh, **key).returncode == 0
    assert len(slots(fresh)) == len(slots(data))


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        (["verify", "--account", "0x12"], "--account"),
        (["verify", "--namespace", "nobody"], "--namespace"),
        (["verify", "--agent-secret-file", "."], "is a directory"),
        (["backup", "--to", ""], "--to"),
        (["stats", "--metrics", "nowhere"], "--metrics"),
        (["backup", "--to", "s3://A"], "name of a bucket"),
        (["restore", "--from", "nowhere"], "--from"),
    ],
)
def test_what_is_wrong_with_a_command_is_one_line_that_names_it(
    data: Path, arguments: list[str], fix: str
) -> None:
    done = memrelay(*arguments, data=data)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert fix in done.stderr


def test_a_directory_without_a_store_is_not_made_into_one(tmp_path: Path) -> None:
    done = memrelay("verify", data=tmp_path / "typo", MEMRELAY_RELAYER_KEY="ab" * 32)
    assert (done.returncode, "--data" in done.stderr) == (2, True)
    assert not (tmp_path / "typo").exists()


def test_what_was_compacted_is_collected_when_its_time_has_come(data: Path) -> None:
    assert "deleted   0 entries" in memrelay("collect", data=data).stdout
    memrelay("compact", data=data)
    waits = memrelay("collect", data=data)
    assert "waiting   1 namespaces" in waits.stdout
    assert len(slots(data)) == 3
    at_once = memrelay("collect", "--collect-after", "0", "--commit-check", "always", data=data)
    assert at_once.returncode == 0
    assert "deleted   3 entries" in at_once.stdout
    assert slots(data) == []
    assert memrelay("verify", data=data).returncode == 0


def test_a_collection_sooner_than_relayers_look_is_refused(data: Path) -> None:
    done = memrelay("collect", "--collect-after", "0", data=data)
    assert (done.returncode, "--commit-check" in done.stderr) == (2, True)


def test_a_backup_inside_the_store_is_refused(data: Path) -> None:
    done = memrelay("backup", "--to", str(data / "objects" / "backup"), data=data)
    assert (done.returncode, "inside the store" in done.stderr) == (2, True)
    assert not (data / "objects" / "backup").exists()


@pytest.mark.parametrize("below", ["", "/", "/deeper"])
def test_a_backup_to_the_place_of_the_store_is_refused(data: Path, below: str) -> None:
    if below != "/deeper":
        assert "is inside the store" in memrelay("backup", "--to", f"{data}{below}", data=data).stderr
    store = "s3://memories/team"
    settings = load_settings({"data": data, "store": store}, {})
    with pytest.raises(ConfigurationError, match="is inside the store"):
        _check_apart(f"{store}{below}", None, settings)
    _check_apart("s3://memories/team-backup", None, settings)
    _check_apart(store, "https://other.example.org", settings)


def test_a_command_without_standard_streams_does_its_work(data: Path) -> None:
    command = f"exec {sys.executable} -m relayer compact 0<&- 1>&- 2>&-"
    done = subprocess.run(["sh", "-c", command], env=CLEAN | {"MEMRELAY_DATA": str(data)}, check=False)
    assert done.returncode == 0
    assert len(list(data.glob("objects/ns/*/seg/*"))) == 1


def test_a_command_that_is_interrupted_says_how_to_go_on(data: Path, tmp_path: Path) -> None:
    fifo = tmp_path / "metrics"
    os.mkfifo(fifo)
    command = [sys.executable, "-m", "relayer", "stats", "--metrics", str(fifo)]
    process = subprocess.Popen(
        command, env=CLEAN | {"MEMRELAY_DATA": str(data)}, stderr=subprocess.PIPE, text=True
    )
    with fifo.open("w"):  # it has begun to read, and waits for the end
        process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said.count("\n"), "safe to run it again" in said) == (130, 1, True)
