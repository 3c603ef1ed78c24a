"""A gateway process that captures numbered turns until it is killed; a test reads what it was told was queued."""

from __future__ import annotations

import sys
import time

from gateway_plugin import MemoryPlugin

SECRET = "42" * 32


def text_of(number: int) -> str:
    return f"Remember that berth {number} of the harbour belongs to the ship number {number * 7919}."


def main() -> None:
    url, first = sys.argv[1], int(sys.argv[2])
    plugin = MemoryPlugin(url, secret=SECRET)
    number = first
    while True:
        # Two sessions, each handed over whole every time, as hosts do.
        for session in ("a", "b"):
            turn = {"role": "user", "content": text_of(number), "id": f"m{number}"}
            report = plugin.after_turn([turn], session_key=f"agent:harbour:{session}")
            print(number, report.status, flush=True)
            number += 1
        # Nobody talks faster; the outbox would be full before it was tested.
        time.sleep(0.03)


if __name__ == "__main__":
    main()
