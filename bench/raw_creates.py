"""The store's own pace: creates one after the other, in a process that does nothing else.

    python -m bench.raw_creates DIRECTORY --size BYTES --count N

Prints the seconds they took. This is what one writer without batching could reach at best.
"""

from __future__ import annotations

import argparse
import secrets
from pathlib import Path
from time import perf_counter

import uvloop

from relayer.adapters.directory_store import DirectoryStore
from relayer.adapters.system import SystemClock
from relayer.ports import Created

__all__ = ["creates"]


async def creates(directory: Path, size: int, count: int) -> float:
    """Create ``count`` objects of ``size`` random bytes; returns the seconds."""
    store = await DirectoryStore.open(directory, clock=SystemClock())
    try:
        data = [secrets.token_bytes(size) for _ in range(count)]
        prefix = f"raw/{secrets.token_hex(8)}"
        started = perf_counter()
        for number, item in enumerate(data):
            outcome = await store.create(f"{prefix}/{number:012d}", item)
            assert isinstance(outcome, Created), type(outcome).__name__
        return perf_counter() - started
    finally:
        await store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    options = parser.parse_args()
    print(uvloop.run(creates(options.directory, options.size, options.count)))


if __name__ == "__main__":
    main()
