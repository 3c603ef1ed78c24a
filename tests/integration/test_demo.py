"""The demonstration as a newcomer runs it: it proves the promises, and it notices a broken one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import ran

from demo.runner import Sabotage

# Short, so that a broken promise is found in seconds; every kind of probe is in it.
SMALL = {
    "planner": {
        "said": [
            "The wedding of my sister is on 12 September 2026, in the old water mill.",
            "I decided that the band is Los Faroles, and the deposit of 400 euros is paid.",
            "Grandfather cannot climb stairs, so always book tables on the ground floor.",
        ],
        "related": [("When is the wedding of my sister?", "12 September 2026"), ("Which band did I decide on?", "Faroles")],
        "unrelated": ["What is the boiling point of ethanol?"],
        "cross": [("How many beehives stand behind the barn?", "seventeen beehives")],
    },
    "gardener": {
        "said": [
            "There are seventeen beehives behind the barn, and I count them every Sunday.",
            "The irrigation pump broke in March, and the spare part is called Brunnhilde 40.",
            "I always sow the broad beans in the second week of November, under fleece.",
        ],
        "related": [("How many beehives stand behind the barn?", "seventeen beehives")],
        "unrelated": ["Explain the difference between TCP and UDP."],
        "cross": [("When is the wedding of my sister?", "12 September 2026")],
    },
}  # fmt: skip


def write_small(folder: Path) -> Path:
    agents = []
    for name, script in SMALL.items():
        turns = [
            {"id": f"{name}-{at}", "role": "user", "speaker": "somebody", "occurred_at": f"2026-04-0{at}T08:00:00Z", "text": text}
            for at, text in enumerate(script["said"], 1)
        ]  # fmt: skip
        probes = [{"kind": "related", "prompt": prompt, "expect": text} for prompt, text in script["related"]]
        probes += [{"kind": "unrelated", "prompt": prompt} for prompt in script["unrelated"]]
        probes += [{"kind": "cross", "prompt": prompt, "forbid": text} for prompt, text in script["cross"]]
        agents.append({"name": name, "sessions": [{"id": f"{name}-diary", "turns": turns}], "probes": probes})
    path = folder / "small.json"
    path.write_text(json.dumps({"format": "memrelay-conversation/1", "agents": agents}))
    return path


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "demo", *arguments]


def surroundings(tmp_path: Path) -> dict[str, str]:
    """An environment in which the demonstration would fail if it took a setting or wrote a file of its caller's."""
    own = {
        "HOME": str(tmp_path / "home"),
        "TMPDIR": str(tmp_path / "temporary"),
        "MEMRELAY_SECRET": "not a secret",
        "MEMRELAY_URL": "http://127.0.0.1:9",
        "MEMRELAY_LOG_FORMAT": "nonsense",
    }
    for name in ("home", "temporary"):
        (tmp_path / name).mkdir(exist_ok=True)
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MEMRELAY_", "XDG_"))}
    return plain | own


def demo(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return ran(command(*arguments), env=surroundings(tmp_path), timeout=170)


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.timeout(180)
@pytest.mark.row("CP-50", level="e2e")
@pytest.mark.row("MW-31", level="e2e")
@pytest.mark.row("AR-13", level="e2e")
def test_the_sample_is_said_the_relayer_killed_and_everything_found_again(tmp_path):
    results = tmp_path / "results.json"
    begun = time.monotonic()
    done = demo(tmp_path, "--json", str(results))
    seconds = time.monotonic() - begun
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert seconds < 170
    document = json.loads(results.read_text())
    assert document["held"]
    assert document["turns"] >= 60
    assert {check["name"] for check in document["checks"]} == {
        "related", "silent", "isolated", "refused", "outage", "same", "durable", "once", "sealed",
    }  # fmt: skip
    assert document["related_hits"]["found"] == document["related_hits"]["asked"]
    for check in document["checks"]:
        assert any(check["claim"] in line and line.startswith("✓") for line in done.stdout.splitlines())
    commands = done.stdout.split("\nNext\n")[1].strip().splitlines()
    assert len(commands) == 3
    assert "p95" in done.stdout
    # Nothing is left behind (the embedding model's runtime would leave traces of its telemetry), and nothing of the
    # user's was touched.
    assert not list((tmp_path / "temporary").iterdir())
    assert not list((tmp_path / "home").iterdir())
    assert "\x1b[" not in done.stdout


@pytest.mark.timeout(180)
@pytest.mark.parametrize("sabotage", list(Sabotage))
def test_a_promise_that_is_really_broken_is_noticed(tmp_path, sabotage):
    results = tmp_path / "results.json"
    done = demo(
        tmp_path, "--conversation", str(write_small(tmp_path)), "--break", sabotage, "--json", str(results)
    )
    assert done.returncode == 1, done.stdout[-4000:] + done.stderr[-2000:]
    failed = {check["name"] for check in json.loads(results.read_text())["checks"] if not check["held"]}
    assert sabotage.value in failed
    # What is lost is missed in the prompts too, and what is asked with another's keys is another's memory.
    assert failed <= {sabotage.value} | ({"same"} if sabotage is Sabotage.DURABLE else set())
    assert any(line.startswith(f"✗ {sabotage.value}") for line in done.stdout.splitlines())


@pytest.mark.timeout(180)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demonstration_leaves_no_relayer_and_no_folder(tmp_path, number):
    with subprocess.Popen(
        command("--conversation", str(write_small(tmp_path))),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=surroundings(tmp_path) | {"PYTHONUNBUFFERED": "1"},
    ) as running:
        assert running.stdout is not None
        line = running.stdout.readline()
        relayer = int(line.split("process ")[1].split(",")[0])
        assert runs(relayer)
        running.send_signal(number)
        rest = running.stdout.read()
        assert running.wait(60) == 130, rest
    assert not runs(relayer)
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.timeout(180)
def test_a_relayer_that_dies_on_its_own_is_reported_as_such(tmp_path):
    with subprocess.Popen(
        command("--conversation", str(write_small(tmp_path))),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=surroundings(tmp_path) | {"PYTHONUNBUFFERED": "1"},
    ) as running:
        assert running.stdout is not None
        os.kill(int(running.stdout.readline().split("process ")[1].split(",")[0]), signal.SIGKILL)
        _, errors = running.communicate(timeout=170)
    assert running.returncode == 2, errors
    assert f"ended on its own, exit code {-signal.SIGKILL}" in errors
    # The end of its log.
    assert "multilingual-e5-small" in errors


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"format": "memrelay-conversation/1", "agents": [{"name": "Not A Name"}]}', "agents[0].name"),
        (json.dumps({"conversations": [{"id": "only-one"}]}), "conversations"),
        ("{", "is not JSON"),
    ],
)
def test_a_malformed_conversation_is_refused_by_field(tmp_path, content, said):
    path = tmp_path / "talk.json"
    path.write_text(content)
    done = demo(tmp_path, "--conversation", str(path))
    assert (done.returncode, done.stdout) == (2, "")
    assert "talk.json" in done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_relayer_that_does_not_start_is_shown_with_the_end_of_its_log(tmp_path):
    # Stands in the way of the real package, with the part of it that the plugin needs.
    shim = tmp_path / "shim" / "relayer"
    shim.mkdir(parents=True)
    (shim / "__init__.py").write_text("")
    (shim / "__main__.py").write_text("import sys; sys.exit('memrelay: the disk is on fire')")
    root = Path(__file__).resolve().parents[2]
    (shim / "wire").symlink_to(root / "relayer" / "wire")
    more = {"PYTHONPATH": f"{shim.parent}{os.pathsep}{root}", "PYTHONSAFEPATH": "1"}
    done = ran([sys.executable, "-P", "-m", "demo"], env=surroundings(tmp_path) | more)
    assert done.returncode == 2
    assert "exit code 1" in done.stderr
    assert "the disk is on fire" in done.stderr
    assert not list((tmp_path / "temporary").iterdir())


def test_a_folder_to_keep_must_be_empty(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "letter").write_text("dear")
    done = demo(tmp_path, "--keep", str(tmp_path / "kept"))
    assert done.returncode == 2
    assert "is not empty" in done.stderr
    assert (tmp_path / "kept" / "letter").read_text() == "dear"


@pytest.mark.timeout(180)
def test_a_kept_folder_holds_data_log_and_secret(tmp_path):
    kept = tmp_path / "kept"
    done = demo(tmp_path, "--conversation", str(write_small(tmp_path)), "--keep", str(kept))
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    assert {"relayer", "relayer.log", "secret"} <= {path.name for path in kept.iterdir()}
    assert (kept / "secret").stat().st_mode & 0o777 == 0o600
    assert str(kept / "relayer") in done.stdout.split("\nNext\n")[1]
