"""Runs the tests of the front for MemWal's clients over a copy of the source, once for each rule made wrong; for `test_memwal_wrong_fronts`.

One process does it all, and imports anew what knows the front: a start each would take longer than the tests.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import re
import sys
from pathlib import Path

import pytest

_ANEW = (
    "relayer.fronts.memwal",
    "relayer.http.server",
    "relayer.bootstrap",
    "relayer.testing.local_relayer",
    "memwal_calls",
    "test_memwal",
    "conftest",
    "tiers",
)
# What pytest says when the tests could not be run at all; a wrong front must fail one.
_BROKEN = 99
# What a wrong front leaves hanging is noticed as well. No test takes a second; the right front may take as long as elsewhere.
_LONGEST = 20
# Bytecode is kept, or the tests' own would be made anew for each front: so no two versions of a file may be of one second.
_seconds = itertools.count(1)


_FILES = [f"tests/fronts/memwal/test_memwal_{name}.py" for name in ("acceptance", "routes", "bounds", "mcp")]


def _words(test: str) -> list[str]:
    """Return what stands in the names of the tests that an expression chooses: files without any are not worth importing."""
    return re.split(r" and | or ", test)


def run(place: Path, module: str, right: str, wrong: str, test: str) -> int:
    """Return pytest's exit code over the source with something made wrong."""
    file = place / "relayer" / "fronts" / "memwal" / f"{module}.py"
    source = file.read_text()
    if source.count(right) != 1:
        return _BROKEN
    _write(file, source.replace(right, wrong))
    for name in [name for name in sys.modules if name.startswith(_ANEW)]:
        del sys.modules[name]
    try:
        files = [file for file in _FILES if any(word in Path(file).read_text() for word in _words(test))]
        options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
        options += [] if right == wrong else [f"--timeout={_LONGEST}"]
        return int(pytest.main([*options, "-k", test, *files]))
    finally:
        _write(file, source)


def _write(file: Path, source: str) -> None:
    file.write_text(source)
    second = next(_seconds)
    os.utime(file, (second, second))


def main() -> None:
    place = Path(sys.argv[1])
    sys.path.insert(0, str(place))
    ends = []
    for one in json.loads((place / "wrong.json").read_text()):
        ends.append(run(place, *one))
        # What stays would be looked through for garbage many times with every front.
        gc.collect()
        gc.freeze()
        print("END", ends[-1], one[0], one[1][:60], file=sys.stderr, flush=True)
    (place / "ends.json").write_text(json.dumps(ends))


main()
