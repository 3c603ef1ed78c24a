"""The code on a page of the documents: its blocks, what stands beside them, and a shell in which they are run as they stand.

A block is what stands between two lines of back quotes. What it prints stands in the block `text` that follows: each line
of it must be printed, in this order, "…" standing for whatever is there. A comment in the line above a block says what is
different about it: `<!-- keeps running -->` (in a terminal of its own), `<!-- exit code 1 -->`, `<!-- not run: why -->`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"(?:^<!-- ([^\n]*?) -->\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block of code: its language, its text, the comment above it, and the lines that it says it prints."""

    page: str
    number: int
    language: str
    text: str
    remark: str
    printed: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.page}:{self.number}"


def blocks_of(page: str, *languages: str) -> list[Block]:
    """Return the blocks of a page that are in one of the languages, numbered from 1 among these."""
    found = _BLOCK.findall((ROOT / page).read_text("utf-8"))
    blocks: list[Block] = []
    for index, (remark, language, text) in enumerate(found):
        if language in languages:
            after = found[index + 1][1:] if index + 1 < len(found) else ("", "")
            printed = tuple(after[1].splitlines()) if after[0] == "text" else ()
            blocks.append(Block(page, len(blocks) + 1, language, text, remark, printed))
    return blocks


def assert_printed(block: Block, output: str, replaced: Mapping[str, str]) -> None:
    """Fail where the output lacks a line that the page shows, or has it in another order."""
    rest = [" ".join(line.split()) for line in output.splitlines()]
    for line in block.printed:
        shown = " ".join(line.split())
        for here, there in replaced.items():
            shown = shown.replace(here, there)
        pattern = re.compile(".*".join(re.escape(part) for part in shown.split("…")))
        while rest and not pattern.fullmatch(rest[0]):
            rest.pop(0)
        assert rest, f"{block.name} says that it prints {line!r}; it printed:\n{output}"
        rest.pop(0)


class Machine:
    """A machine that is new: an empty home, no variable but those that a login sets, the programs, and a port for a relayer."""

    def __init__(self, home: Path, port: int) -> None:
        self.home, self.url = home, f"http://127.0.0.1:{port}"
        programs = Path(sys.executable).parent
        self.environment = {
            "HOME": str(home), "PATH": f"{programs}:/usr/bin:/bin", "LANG": "C.UTF-8", "TERM": "dumb",
            # The pages use the default port, which may be somebody else's on the machine of a test.
            "MEMRELAY_PORT": str(port), "MEMRELAY_URL": self.url,
        }  # fmt: skip
        self._running: list[subprocess.Popen[bytes]] = []
        # What one block sets or changes into is there for the next, as in a person's terminal.
        self._state = home.parent / "terminal"

    def run(self, block: Block) -> None:
        """Run a block, and compare its end with what the page says."""
        if block.remark.startswith("not run: "):
            return
        if block.remark == "keeps running":
            self._keep(block)
            return
        code = int(block.remark.removeprefix("exit code ")) if block.remark.startswith("exit code ") else 0
        done = self._bash(self._as_shell(block))
        output = done.stdout
        assert done.returncode == code, f"{block.name} ended with {done.returncode}:\n{block.text}\n{output}"
        assert "Traceback" not in output, output
        assert_printed(block, output, {"http://127.0.0.1:8787": self.url, "~/": f"{self.home}/"})

    def _as_shell(self, block: Block) -> str:
        if block.language == "python":
            # Saved under the name that the page gives it in its first line.
            name = re.match(r"# (\w+\.py)\n", block.text)
            file = self.home / (name.group(1) if name else f"block{block.number}.py")
            file.write_text(block.text, encoding="utf-8")
            return "" if name else f"python3 {file.name}"
        return block.text

    def _bash(self, text: str) -> subprocess.CompletedProcess[str]:
        before = f". {self._state}\n" if self._state.exists() else ""
        after = f"\n{{ echo cd \"'$PWD'\"; declare -p | grep -E '^declare -(-|x) [A-Z][A-Z_]* *=' | grep -v BASH; }} > {self._state}\n"
        return subprocess.run(
            ["bash", "-ec", before + text + after],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.home,
            env=self.environment,
            check=False,
            timeout=120,
        )

    def _keep(self, block: Block) -> None:
        log = self.home.parent / "kept.log"
        with log.open("w") as out:
            process = subprocess.Popen(
                ["bash", "-ec", f"exec {block.text}"],
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self.home,
                env=self.environment,
            )
        self._running.append(process)
        end = time.monotonic() + 60
        while not self._ready():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.2)
        assert_printed(block, log.read_text(), {"http://127.0.0.1:8787": self.url, "~/": f"{self.home}/"})

    def _ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/ready", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def end(self) -> None:
        """End what was started."""
        for process in self._running:
            process.terminate()
            process.wait(30)
