"""One rival in a process of its own, under whatever Python it is installed in: `bench.rival_speed` starts it.

    python -m bench.rival_asker NAME WORK

Reads ``rows.npy``, ``asked.npy`` and ``texts.json`` in WORK, says ``ready``, and answers each line with a number of queries by a
line of JSON: the seconds that each took.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from pathlib import Path

import numpy as np

from bench.rivals import QUICK_RIVALS

__all__ = ["LIMIT"]

LIMIT = 5


def main() -> None:
    """Fill the rival, and ask it as often as standard input says."""
    name, work = sys.argv[1], Path(sys.argv[2])
    texts = json.loads((work / "texts.json").read_text("utf-8"))
    own = work / "".join(filter(str.isalnum, name))
    own.mkdir()
    ask = QUICK_RIVALS[name][1](texts, np.load(work / "rows.npy"), own, "bench")
    asked = itertools.cycle(enumerate(np.load(work / "asked.npy")))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        seconds = []
        for at, vector in itertools.islice(asked, int(line)):
            start = time.perf_counter()
            found = ask(f"question {at}", vector, LIMIT)
            seconds.append(time.perf_counter() - start)
            if len(found) != LIMIT:
                raise RuntimeError(f"{name} found {len(found)} of {LIMIT}")
        sys.stdout.write(json.dumps(seconds) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
