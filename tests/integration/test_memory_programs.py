"""`Memory` in programs of its own, with no relayer running: it starts one, shares it, and prints no warning."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import wait_until
from s3_servers import free_ports

from gateway_plugin.calls.local_relayer import folder_of

pytestmark = pytest.mark.tier("all")  # it starts a relayer, by way of a process that leaves at once

PROGRAM = """
import asyncio, os, sys, threading
from memrelay import AsyncMemory, Memory

name = sys.argv[1]
memory = Memory(agent="support", user="ana", timeout=20)
memory.add(f"Program {name} was here.")
texts = lambda: sorted(one.text for one in memory.list())
threads = [threading.Thread(target=memory.add, args=(f"Thread {number} of {name}.",)) for number in range(3)]
[thread.start() for thread in threads], [thread.join() for thread in threads]

other = AsyncMemory(agent="support", user="ana")
async def count():
    return len([one async for one in other.list()])
assert asyncio.run(count()) >= 4
assert asyncio.run(count()) >= 4

async def inside_a_loop():
    return memory.search("Program was here", min_score=0)
assert asyncio.run(inside_a_loop())

child = os.fork()
if not child:
    memory.add(f"Child of {name}.")
    memory.close()
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert f"Child of {name}." in texts()
print(*texts(), sep="\\n")
"""


def test_two_programs_start_and_share_one_relayer_and_print_no_warning(tmp_path: Path) -> None:
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "MEMRELAY_SECRET": "11" * 32,
    }
    folder = folder_of(environ)
    (folder / "data").mkdir(parents=True, mode=0o700)
    (folder / "address.json").write_text(json.dumps({"url": f"http://127.0.0.1:{free_ports(1)[0]}"}))
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, name],
            env=environ,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for name in ("one", "two")
    ]
    ended = [program.communicate(timeout=100) for program in programs]
    assert [(program.returncode, err) for program, (_, err) in zip(programs, ended, strict=True)] == [
        (0, "")
    ] * 2
    told = max((out.splitlines() for out, _ in ended), key=len)
    assert "Program one was here." in told
    assert "Program two was here." in told
    pid = int((folder / "keeper.lock").read_text())
    os.kill(pid, 15)
    wait_until(lambda: not (folder / "ready.json").exists())
