"""A test that says it shows a feature end to end must drive something: a process, the plugin, a command, or HTTP.

Seen from what it reaches, as its tier is (tests/tiers.py); a test that calls functions alone is refused when it is
collected. What belongs to the documentation is lived by reading it: a test of `test_*documents.py` may say so too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from tiers import functions_of, reached_from, reaches_process

# What a user, a host or a client would start or call. Names, because some are imported where they are used.
SURFACES = frozenset(
    {
        "MemoryPlugin", "AsyncMemoryPlugin", "BridgeServer",
        "CliRunner",
        "local_relayer", "threaded_relayer", "LocalRelayer",
    }
)  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        'row(*ids, level="e2e"): the rows of docs/features.md that this test proves; level: it sees them where a user stands',
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    pretending = [item.nodeid for item in items if not _may_say_so(item)]
    if pretending:
        listed = "\n  ".join(pretending)
        raise pytest.UsageError(
            f'level="e2e" on tests that start no host, command, relayer or plugin; drop it or drive one:\n  {listed}'
        )


def _may_say_so(item: pytest.Item) -> bool:
    levels = [marker.kwargs.get("level") for marker in item.iter_markers("row")]
    return "e2e" not in levels or is_lived(item)


def is_lived(item: pytest.Item) -> bool:
    """Whether a test reaches what a user could stand before."""
    if not isinstance(item, pytest.Function):
        return False
    if item.path.name.endswith("documents.py"):
        return True
    return any(_drives(one, item.cls) for one in functions_of(item))


@cache
def _drives(one: Callable[..., Any], inside: type | None) -> bool:
    if reaches_process(one, inside):
        return True
    # By name and by what a name stands for: some are known under another one.
    return any(
        not SURFACES.isdisjoint(names | {getattr(each, "__name__", "") for each in known})
        for names, known in reached_from(one, inside)
    )
