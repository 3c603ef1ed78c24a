"""Run the mutations: each is applied to a copy of the tree, and one of its tests must fail there.

    python tests/mutations/run.py                    all of them, two at a time
    python tests/mutations/run.py a-quota-limits-nothing --jobs 1
    python tests/mutations/run.py --shard today/3    every third one, others each day; see tests/host_shards.py

The unchanged copy must pass all of these tests first, because a test that always fails notices nothing; ``--skip-unchanged``
leaves that out. The exit code is 1 if a mutation was not noticed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from pathlib import Path
from queue import Queue

from host_shards import numbered
from mutations import MUTATIONS, Mutation

__all__ = ["in_shard", "main"]

ROOT = Path(__file__).resolve().parents[2]
_LIMIT_SECONDS = 600
_PASSED, _FAILED = 0, 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(
        description="Apply mutations of the core and run the tests that must notice."
    )
    parser.add_argument("names", nargs="*", help="mutations to run; all if none is named")
    parser.add_argument("--shard", help="a part of them instead: k/n, or today/n")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes")
    parser.add_argument(
        "--skip-unchanged", action="store_true", help="do not run the tests on the unchanged source"
    )
    chosen = parser.parse_args(arguments)
    known = {one.name: one for one in MUTATIONS}
    if unknown := sorted(set(chosen.names) - set(known)):
        parser.error(f"no such mutation: {', '.join(unknown)}")
    try:
        shard = in_shard(chosen.shard or "1/1", datetime.now(UTC).date())
    except ValueError as error:
        parser.error(str(error))
    wanted = [known[name] for name in chosen.names] or shard
    with tempfile.TemporaryDirectory(prefix="mutations-") as place:
        trees: Queue[Path] = Queue()
        for number in range(chosen.jobs):
            trees.put(_copy(Path(place) / str(number)))
        if not chosen.skip_unchanged:
            tree = trees.get()
            code, said = _run_tests(tree, sorted({test for one in wanted for test in one.tests}))
            trees.put(tree)
            if code != _PASSED:
                print(f"the tests fail on the unchanged source:\n{said[-4000:]}")
                return 1
        with ThreadPoolExecutor(chosen.jobs) as pool:
            noticed = list(pool.map(lambda one: _is_noticed(one, trees), wanted))
    print(f"{sum(noticed)} of {len(wanted)} mutations were noticed")
    return 0 if all(noticed) else 1


def in_shard(shard: str, today: date) -> list[Mutation]:
    """Return the mutations of a shard; raises `ValueError` if there is no such shard."""
    number, count = numbered(shard, today)
    return list(MUTATIONS[number::count])


def _copy(tree: Path) -> Path:
    """Copy every file of the repository that git knows or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, tree / name)
    return tree


def _is_noticed(mutation: Mutation, trees: Queue[Path]) -> bool:
    tree, began = trees.get(), time.monotonic()
    file = tree / mutation.file
    source = file.read_text(encoding="utf-8")
    try:
        file.write_text(mutation.apply(source), encoding="utf-8")
        code, said = _run_tests(tree, mutation.tests)
    finally:
        file.write_text(source, encoding="utf-8")
        trees.put(tree)
    # Any other code means that no test ran, which notices nothing.
    noticed = code == _FAILED
    failed = next((line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))), "")
    seconds = time.monotonic() - began
    print(
        f"{'noticed' if noticed else 'MISSED':8} {mutation.name} ({seconds:.0f} s) {failed[:160]}", flush=True
    )
    return noticed


def _run_tests(tree: Path, tests: Sequence[str]) -> tuple[int, str]:
    """Run tests in a copy of the tree; return pytest's exit code and output. Hanging counts as a failure."""
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": ""}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "--tier",
        "fast",
        *tests,
    ]
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_LIMIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _FAILED, "FAILED: the tests did not end"
    return done.returncode, done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(main())
