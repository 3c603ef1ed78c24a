"""The drill: the shipped unit backs a running service up, Prometheus tells when the timer is stopped, a restore brings all back."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from configparser import ConfigParser
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml
from infra_tools import INFRA, run, tool
from processes import CLEAN, wait_for, wait_until
from s3_servers import free_ports
from service_of_this_machine import Service, service_at
from typed_commands import machine, run_gateway

# Six servers start one after another, on a machine that may be busy, and time has to pass for an alert.
pytestmark = [pytest.mark.timeout(900), pytest.mark.tier("all")]

SECRET = "7c" * 32
COFFEE = "I only drink oat milk coffee, never after 2 pm."
# The alert's 26 hours, and its patience, as long as a test can wait.
LATE_SECONDS = 25
UNITS = INFRA / "systemd"


def _unit(name: str) -> ConfigParser:
    parsed = ConfigParser(strict=False, interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment, method-assign] # as typeshed's example has it: names keep their case
    parsed.read_string((UNITS / name).read_text("utf-8"))
    return parsed


def _command(name: str, folder: Path) -> list[str]:
    """Return what a unit runs, with this Python's memrelay and a folder of the test for /var/lib/memrelay."""
    program, *arguments = shlex.split(_unit(name)["Service"]["ExecStart"])
    assert program == "/opt/memrelay/bin/memrelay"
    return [
        *(sys.executable, "-m", "relayer"),
        *(part.replace("/var/lib/memrelay", str(folder)) for part in arguments),
    ]


def test_systemd_takes_the_units_and_the_backup_is_the_store_owner_s(tmp_path: Path) -> None:
    for file in UNITS.iterdir():
        text = file.read_text("utf-8").replace("/opt/memrelay/bin/memrelay", sys.executable)
        (tmp_path / file.name).write_text(text, "utf-8")
    checked = run(tool("systemd-analyze"), "verify", "--man=no", *sorted(tmp_path.iterdir()))
    named = [line for line in checked.stderr.splitlines() if "memrelay" in line]
    assert (checked.returncode, named) == (0, [])
    backup, relayer = _unit("memrelay-backup.service")["Service"], _unit("memrelay.service")["Service"]
    # A dynamic user is called after its unit; the backup's is the relayer's.
    assert (backup["User"], backup["DynamicUser"], relayer["DynamicUser"]) == ("memrelay", "yes", "yes")
    assert relayer["StateDirectory"] in backup["StateDirectory"].split()
    assert "User" not in relayer


def test_processes_of_the_template_are_the_unit_s_of_one_user_on_one_port() -> None:
    relayer, shared = dict(_unit("memrelay.service")["Service"]), dict(_unit("memrelay@.service")["Service"])
    started = shared.pop("ExecStart")
    assert started == f"{relayer.pop('ExecStart')} --reuse-port --monitoring-port %i"
    # The kernel lets no other user share a port.
    assert shared.pop("User") == "memrelay"
    del relayer["KillMode"]
    assert shared == relayer


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service_at(tmp_path_factory.mktemp("drill") / "data") as made:
        yield made


@contextmanager
def prometheus(folder: Path, service: Service) -> Iterator[str]:
    """Prometheus as Compose runs it, over this service's relayers, with an alert that takes seconds for hours."""
    [port] = free_ports(1)
    rules = (INFRA / "monitoring/alerts.yml").read_text("utf-8")
    shorter = re.sub(r"> 26 \* 3600\n        for: 10m", f"> {LATE_SECONDS}", rules)
    assert shorter != rules
    (folder / "alerts.yml").write_text(shorter, "utf-8")
    configuration = yaml.safe_load((INFRA / "compose/prometheus.yml").read_text("utf-8"))
    configuration["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s", "scrape_timeout": "1s"}
    [job] = configuration["scrape_configs"]
    del job["authorization"], job["scrape_timeout"]
    job["static_configs"] = [{"targets": [f"127.0.0.1:{service.port + number}" for number in (1, 2, 3)]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration), "utf-8")
    command = [
        tool("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("w") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def _asked(url: str, path: str, **query: str) -> dict[str, list[dict[str, object]]]:
    try:
        answer = httpx.get(f"{url}/api/v1/{path}", params=query, trust_env=False)
    except httpx.TransportError:
        return {"result": [], "alerts": []}
    return answer.json().get("data", {"result": [], "alerts": []})


def _firing(url: str) -> set[str]:
    alerts = _asked(url, "alerts")["alerts"]
    return {str(alert["labels"]["alertname"]) for alert in alerts if alert["state"] == "firing"}  # type: ignore[index]


def test_a_backup_by_the_shipped_unit_and_an_alert_when_its_timer_is_stopped(
    service: Service, tmp_path: Path
) -> None:
    person = machine(tmp_path / "person", service.url, SECRET)
    assert run_gateway(person, "remember", COFFEE).returncode == 0
    backup = tmp_path / "backup"
    command, given = _command("memrelay-backup.service", tmp_path), _settings(service)

    def timer() -> None:
        done = subprocess.run(
            command,
            env=CLEAN | given | {"MEMRELAY_BACKUP_TO": str(backup)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, "the backup is complete" in done.stdout) == (0, True), done.stderr

    with prometheus(tmp_path, service) as url:
        began = time.monotonic()
        while time.monotonic() - began < LATE_SECONDS + 10:
            timer()
            assert "MemrelayBackupLate" not in _firing(url)
            time.sleep(2)
        noted = "memrelay_backup_last_success_timestamp_seconds > 0"
        assert len(_asked(url, "query", query=noted)["result"]) == 3
        wait_until(lambda: "MemrelayBackupLate" in _firing(url))
        assert not {"MemrelayDown", "MemrelayNotReady"} & _firing(url)
        timer()
        wait_until(lambda: "MemrelayBackupLate" not in _firing(url))

    # The bucket is lost, and what came to the next one is a relayer's first note alone.
    assert service.command("down")[0] == 0
    shutil.rmtree(service.data / "store")
    code, said = service.command("up")
    assert code == 0, said
    assert COFFEE not in run_gateway(person, "search", "How do I take my coffee?").stdout

    place = given | {"MEMRELAY_STORE": "s3://memories/restored"}
    restore = [sys.executable, "-m", "relayer", "restore", "--from", str(backup)]
    for words in (restore, [sys.executable, "-m", "relayer", "verify"]):
        done = subprocess.run(words, env=CLEAN | place, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    with _served(tmp_path, place) as restored:
        found = run_gateway(
            machine(tmp_path / "other", restored, SECRET), "search", "How do I take my coffee?"
        )
    assert COFFEE in found.stdout


def _settings(service: Service) -> dict[str, str]:
    """What a machine's relayer.env says of this service's store."""
    return json.loads((service.data / "credentials.json").read_text("utf-8")) | {
        "MEMRELAY_STORE": "s3://memories/memrelay",
        "MEMRELAY_ENDPOINT_URL": f"http://127.0.0.1:{service.port + 14}",
        "MEMRELAY_RELAYER_KEY_FILE": str(service.data / "relayer.key"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextmanager
def _served(folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """What memrelay.service runs, on a port of its own."""
    ready, log = folder / "ready.json", folder / "served.log"
    command = [*_command("memrelay.service", folder / "unused"), "--port", "0", "--ready-file", str(ready)]
    with log.open("w") as sink:
        process = subprocess.Popen(command, env=CLEAN | environment, stdout=sink, stderr=sink, text=True)
    try:
        yield wait_for(ready, process, log)["url"]
    finally:
        process.terminate()
        process.wait(30)
