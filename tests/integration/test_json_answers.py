"""Whatever is typed with ``--json`` answers with one document, or with a line of JSON for each thing that happens; so do errors."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from command_trees import declared
from operator_site import fill
from processes import CLEAN
from typed_commands import Done, machine, run_gateway, run_relayer

from gateway_plugin.calls.clock import SystemClock
from gateway_plugin.hosts.mcp.credentials import Pairing

# Typed in this order on one machine. DIR is a folder of the test, $NAME what an earlier answer had at the place after "->".
GATEWAY = """
remember "Our staging database is called heron." --agent coder -> ID id
remember "The team meets on Mondays." --agent coder -> OTHER id
list --agent coder
search "staging database" --agent coder
ask "Where do we meet?" --agent coder
show $ID --agent coder
edit $ID "Our staging database is called egret." --agent coder -> ID id
edit $ID --pin --agent coder -> ID id
unpin $ID --agent coder -> ID id
expire $ID --in 30d --agent coder -> ID id
forget $ID --agent coder
restore $ID --agent coder -> ID id
delete --kind event --dry-run --agent coder
consolidate --agent coder
profile --agent coder
profile --agent coder --standing
profile --agent coder --out DIR/USER.md
skills --agent coder
skills --agent coder --out DIR/skills
namespaces --agent coder
share researcher --with coder
share
unshare researcher --with coder
share researcher --with-key KEY --days 30
unshare researcher --with-key KEY
accept DIR/invitation.txt --agent coder
status
stats
doctor
canary
off
on
trust URL
version --url URL
acknowledge
outbox status
outbox deliver
outbox list
outbox retry --all
outbox drop --all --waiting
why
index DIR/notes
memory status
memory status --deep
memory index
memory search "blue bin"
memory forget --session agent:main:nothing --dry-run
memory reset --yes
memory promote
memory promote-explain "blue bin"
memory rem-harness
memory rem-backfill --from 2026-11-01 --to 2026-11-02
memory rem-backfill --path DIR/daily
memory session-backfill --from 2026-11-01
memory session-backfill --archive-files DIR/session.jsonl
memory session-backfill --rem
transcript DIR/session.jsonl
import DIR/notes
import DIR/notes --dry-run
export
export DIR/out.jsonl
export DIR/logs --format daily-md
migrate --from memory-core-plus --dry-run
migrate --from memory-core-plus
migrate --from memory-core-plus --yes
init
init --host openclaw
init --host openclaw --write --allow-conversation-access
openclaw path
openclaw pack DIR
openclaw settings
mcp config --for claude-code
mcp config --for codex --http
mcp logout
mcp login --agent coder
mcp logout
mcp logout --yes
mcp approve --agent coder $CODE
mcp token --agent coder
mcp token --list
mcp token --revoke none
keys show
keys export --agent coder
keys recovery
keys recovery --verify DIR/sheet.txt
keys recover DIR/sheet.txt
keys revoke --agent old
keys revoke --agent old --yes
keys revoked
keys rotate --agent coder --to coder-2
keys rotate --agent coder --to coder-2 --yes
list --agent coder-2 -> OTHER id
erase $OTHER --agent coder-2
erase --namespace --agent coder-2
erase --namespace --agent coder-2 --yes -> ERASURE id
erasure $ERASURE --agent coder-2
"""
RELAYER = """
init DIR/new
keys make DIR/relayer.key
keys recovery
keys recover DIR/again.key --sheet DIR/sheet.txt
keys rotate --new-key-file DIR/again.key
health --url URL
health --url URL --ready
version
store probe
verify
inspect researcher
stats
repair
compact
collect
account create --key-file DIR/memwal.key -> ACCOUNT account
account add-key $ACCOUNT --key 5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e
account list
account limits $ACCOUNT --memories 1000
account env --key-file DIR/memwal.key
account credentials --key-file DIR/memwal.key --file DIR/credentials.json
account revoke $ACCOUNT
account export $ACCOUNT --out DIR/account.jsonl
account erase $ACCOUNT --yes
backup --to DIR/backup
restore --from DIR/backup
"""
# What ends only when it is stopped, and is tried below.
ENDLESS = {"memrelay-gateway watch"}
# What has to fail on this machine, with the code by which programs know why.
FAILS = {
    "ask": "no_model",
    "why": "failed",
    "outbox retry": "failed",
    "outbox drop": "failed",
    "mcp token --revoke": "failed",
    "restore --from": "usage",
    # No turn was given a memory, and the agent has no workspace.
    "memory promote-explain": "failed",
    "memory rem-": "usage",
}
LOG = {"type": "message", "id": "m1", "message": {"role": "user", "content": "The kettle is red."}}
# Texts that look like numbers, and are none to programs.
NAMES = {"version", "memrelay", "memrelay-gateway", "relayer", "text", "id", "snippet", "relayer_keys"}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The folder that the tables call DIR."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "house.md").write_text("- The blue bin is collected on Tuesdays.\n")
    (tmp_path / "daily").mkdir()
    (tmp_path / "daily" / "2024-05-01.md").write_text("- The bins were late.\n")
    (tmp_path / "session.jsonl").write_text(json.dumps(LOG) + "\n")
    (tmp_path / "openclaw.json").write_text(json.dumps({"plugins": {"entries": {"memory-core-plus": {}}}}))
    return tmp_path


def documents(done: Done) -> list[Any]:
    """Return what standard output holds: one document, or a line each."""
    try:
        return [json.loads(done.stdout)]
    except json.JSONDecodeError:
        return [json.loads(line) for line in done.stdout.splitlines()]


def numbers_in_quotes(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from numbers_in_quotes(one, key)
    elif isinstance(value, list):
        for one in value:
            yield from numbers_in_quotes(one, name)
    elif isinstance(value, str) and name not in NAMES and re.fullmatch(r"[0-9][0-9,.]*( bytes)?", value):
        yield f"{name}: {value}"


class Session:
    """One machine at which commands are typed; what they answer is kept for those that come after."""

    def __init__(self, run: Any, environment: Mapping[str, str], **known: str) -> None:
        self.run, self.environment, self.known = run, environment, known
        self.problems: list[str] = []

    def type(self, line: str) -> None:
        typed, _, kept = line.partition(" -> ")
        for name, value in sorted(self.known.items(), reverse=True):
            typed = re.sub(rf"\$?\b{name}\b", lambda _, value=value: value, typed)
        done = self.run(self.environment, *shlex.split(typed), "--json")
        try:
            answers = documents(done)
            assert answers
        except (json.JSONDecodeError, AssertionError):
            self.problems.append(f"{line}: {done.stdout!r} {done.stderr!r}")
            return
        code = next((code for start, code in FAILS.items() if line.startswith(start)), None)
        error = answers[-1].get("error", {}) if isinstance(answers[-1], dict) else {}
        if error.get("code") != code or error.get("exit_code", 0) != done.returncode:
            self.problems.append(f"{line}: {done.returncode} {error} {done.stderr}")
        self.problems += [f"{line}: {one}" for one in numbers_in_quotes(answers)]
        if kept and not error:
            name, _, field = kept.partition(" ")
            found = answers[0] if field in answers[0] else answers[0]["memories"][0]
            self.known[name] = found[field]


def lines_of(table: str) -> list[str]:
    return [line for line in table.strip().splitlines() if line]


@pytest.mark.tier("all")
def test_every_command_of_a_gateway_answers_as_json(place: Path, shared_relayer: str) -> None:
    secret = secrets.token_hex(32)
    environment = machine(place, shared_relayer, secret) | {
        "OPENCLAW_CONFIG_PATH": str(place / "openclaw.json"),
        "OPENCLAW_STATE_DIR": str(place),
    }
    (place / "sheet.txt").write_text(run_gateway(environment, "keys", "recovery").stdout)
    other = machine(place / "other", shared_relayer, secrets.token_hex(32))
    key = json.loads(run_gateway(environment, "keys", "show", "--agent", "coder", "--json").stdout)[
        "agent_key"
    ]
    (place / "invitation.txt").write_text(run_gateway(other, "share", "team", "--with-key", key).stdout)
    code = Pairing.begin().code(int(SystemClock().now()))
    at = Session(run_gateway, environment, DIR=str(place), URL=shared_relayer, CODE=code, KEY=key)
    for line in lines_of(GATEWAY):
        if line == "migrate --from memory-core-plus":
            done = run_gateway(environment, *shlex.split(line), "--json")
            assert json.loads(done.stdout)["error"]["message"].startswith("a question was not answered")
            continue
        if line.startswith("keys recover "):
            # Where no other secret is said, the machine has it from the sheet from now on.
            del environment["MEMRELAY_SECRET"]
            at.environment = environment
        at.type(line)
    assert at.problems == [], "\n".join(at.problems)


@pytest.mark.tier("all")
def test_every_command_of_a_relayer_answers_as_json(place: Path, shared_relayer: str) -> None:
    asyncio.run(fill(place / "data", "the kettle is on the shelf"))
    environment = {"MEMRELAY_DATA": str(place / "data")}
    (place / "sheet.txt").write_text(run_relayer(environment, "keys", "recovery").stdout)
    at = Session(run_relayer, environment, DIR=str(place), URL=shared_relayer)
    for line in lines_of(RELAYER):
        at.type(line)
    assert at.problems == [], "\n".join(at.problems)


def test_every_command_stands_in_a_table() -> None:
    typed = [f"memrelay-gateway {line}" for line in lines_of(GATEWAY)]
    typed += [f"memrelay {line}" for line in lines_of(RELAYER)]
    answering = {one.typed for one in declared() if "--json" in one.options()} - ENDLESS
    assert [name for name in answering if not any(f"{line} ".startswith(f"{name} ") for line in typed)] == []


@pytest.mark.parametrize("typed", ["watch DIR/notes --every 0.2", "index DIR/notes --watch"])
def test_what_goes_on_answers_in_lines(typed: str, place: Path, shared_relayer: str) -> None:
    environment = CLEAN | machine(place, shared_relayer, secrets.token_hex(32))
    words = [word.replace("DIR", str(place)) for word in typed.split()]
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway_plugin", *words, "--json"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    guard = threading.Timer(60, process.kill)
    guard.start()
    assert process.stdout is not None
    try:
        begun, looked = (json.loads(process.stdout.readline()) for _ in range(2))
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=30)
    finally:
        guard.cancel()
        process.kill()
        process.wait(30)
    assert begun["watching"] == [str(place / "notes")]
    assert looked["stored"] == 1
    assert [json.loads(line) for line in rest.splitlines()] == [{"stopped": True}]


def test_what_goes_on_and_cannot_begin_answers_in_a_line(place: Path, shared_relayer: str) -> None:
    environment = machine(place, shared_relayer, secrets.token_hex(32))
    done = run_gateway(environment, "watch", place / "nowhere", "--json")
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["error"] == {
        "code": "usage", "message": "FOLDER: no such directory", "fix": "", "exit_code": 2,
    }  # fmt: skip
