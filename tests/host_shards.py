"""Print the files of one shard of the tests over real hosts: ``make test-e2e SHARD=2/6``, or ``SHARD=today/6``.

Files are dealt out by the seconds in `SECONDS`, the longest first, each to the shard that has the least; a file that is not
listed counts as `UNKNOWN_SECONDS`. ``today`` is the number of days since the epoch, in UTC, so that each shard runs every ``n``
days, also across a new year.
The files in `ALWAYS` are in no shard, because every change is tried with them.
"""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

E2E: Final = Path(__file__).resolve().parent / "e2e"
ALWAYS: Final = ("test_openclaw_turns.py", "test_openclaw_life.py")
# They try older hosts, which are fetched apart: `make test-hosts`.
APART: Final = ("test_openclaw_versions.py",)
UNKNOWN_SECONDS: Final = 60
_EPOCH: Final = date(1970, 1, 1)
# Estimates for two cores: 15 s for a gateway and 6 s for a test. To measure a file: make test-e2e E2E=tests/e2e/FILE.
SECONDS: Final = {
    "test_migrations.py": 27,
    "test_openclaw_active_mode.py": 150,
    "test_openclaw_bridge.py": 63,
    "test_openclaw_chat_commands.py": 33,
    "test_openclaw_earlier_people.py": 33,
    "test_openclaw_earlier_sessions.py": 90,
    "test_openclaw_faults.py": 63,
    "test_openclaw_host_model.py": 33,
    "test_openclaw_install.py": 51,
    "test_openclaw_life_of_an_installation.py": 21,
    "test_openclaw_keeps_running.py": 150,
    "test_openclaw_lines.py": 87,
    "test_openclaw_living_files.py": 87,
    "test_openclaw_log.py": 90,
    "test_openclaw_own_memory.py": 45,
    "test_openclaw_page.py": 21,
    "test_openclaw_people_apart.py": 33,
    "test_openclaw_projects.py": 45,
    "test_openclaw_promises.py": 123,
    "test_openclaw_saved_settings.py": 33,
    "test_openclaw_shown_settings.py": 27,
    "test_openclaw_tools.py": 63,
    "test_openclaw_what_is_kept.py": 51,
    "test_original_settings.py": 39,
}


def shards(count: int) -> list[list[str]]:
    """Return the names of the files of each shard, in order. Each file is in one shard."""
    names = {path.name for path in E2E.glob("test_*.py")}.difference(ALWAYS, APART)
    dealt: list[list[str]] = [[] for _ in range(count)]
    for name in sorted(names, key=lambda one: (-SECONDS.get(one, UNKNOWN_SECONDS), one)):
        min(dealt, key=seconds_of).append(name)
    return [sorted(one) for one in dealt]


def seconds_of(names: list[str]) -> int:
    """Return the duration of files in seconds."""
    return sum(SECONDS.get(name, UNKNOWN_SECONDS) for name in names)


def chosen(shard: str, today: date) -> list[str]:
    """Return the files of a shard; raises like `numbered`."""
    number, count = numbered(shard, today)
    return shards(count)[number]


def numbered(shard: str, today: date) -> tuple[int, int]:
    """Return the number of a shard, from 0 on, and how many there are.

    Args:
        shard: ``k/n`` with k from 1 to n, or ``today/n``.
        today: the day, in UTC.

    Raises:
        ValueError: it is none.
    """
    which, _, total = shard.partition("/")
    count = int(total)
    number = (today - _EPOCH).days % count if which == "today" else int(which) - 1
    if not 0 <= number < count:
        raise ValueError(f"{shard}: a shard is k/n, with k from 1 to n, or today/n")
    return number, count


if __name__ == "__main__":
    print(*(f"tests/e2e/{name}" for name in chosen(sys.argv[1], datetime.now(UTC).date())))
