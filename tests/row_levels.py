"""A test that says it shows a feature end to end must drive something: a process, the plugin, a command, or HTTP.

Seen from what it reaches, as its tier is (tests/tiers.py); a test that calls functions alone is refused when it is
collected. What belongs to the documentation is lived by reading it: a test of `test_*documents.py` may say so too.

That is what a test could drive. What it did drive is recorded while it runs: ``--record FILE`` adds to a file each test that
passed and in whose own fixtures and body a process was started, a connection made, a command run or the plugin called, and takes
out what failed. Fixtures that tests share count for none of them, and what is skipped or expected to fail is not added.
docs/features.md counts the tests of tests/row_records.json alone.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache, wraps
from pathlib import Path
from typing import Any

import features
import pytest
from tiers import functions_of, reached_from, reaches_process, started_by

# What a user, a host or a client would start or call. Names, because some are imported where they are used.
SURFACES = frozenset(
    {
        "MemoryPlugin", "AsyncMemoryPlugin", "BridgeServer",
        "CliRunner",
        "local_relayer", "threaded_relayer", "LocalRelayer",
    }
)  # fmt: skip


_PLUGIN_CALLS = ("before_turn", "after_turn", "flush_session", "tool", "intent", "warm")
_drove: set[str] = set()
# By test without its parameters: how its cases ended, and what those that passed drove.
_ended: defaultdict[str, set[str]] = defaultdict(set)
_seen: defaultdict[str, set[str]] = defaultdict(set)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("memrelay").addoption(
        "--record", metavar="FILE", help="write into FILE what the tests of level e2e drove"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--record"):
        _watch()
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


def _watch() -> None:
    import aiohttp
    import httpx
    from typer.testing import CliRunner

    from gateway_plugin.plugin import AsyncMemoryPlugin, MemoryPlugin

    sys.addaudithook(_note)
    _count(CliRunner, "invoke", "command")
    # A client that is shared keeps its connections.
    for client, request in (
        (httpx.Client, "send"),
        (httpx.AsyncClient, "send"),
        (aiohttp.ClientSession, "_request"),
    ):
        _count(client, request, "connection")
    for name in _PLUGIN_CALLS:
        _count(AsyncMemoryPlugin, name, "plugin")
        if hasattr(MemoryPlugin, name):
            _count(MemoryPlugin, name, "plugin")


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if started_by(event, arguments):
        _drove.add("process")
    elif event == "socket.connect":
        _drove.add("connection")


def _count(owner: type, name: str, kind: str) -> None:
    """Note the calls of a method, which does what it did."""
    original = getattr(owner, name)

    @wraps(original)
    def counted(*given: Any, **named: Any) -> Any:
        _drove.add(kind)
        return original(*given, **named)

    @wraps(original)
    async def counted_later(*given: Any, **named: Any) -> Any:
        return await counted(*given, **named)

    setattr(owner, name, counted_later if inspect.iscoroutinefunction(original) else counted)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    _drove.clear()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
    before = set(_drove)
    answer = yield
    if fixturedef.scope != "function":
        _drove.intersection_update(before)
    return answer


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Iterator[None]:
    report: Any = yield
    says = "e2e" in [marker.kwargs.get("level") for marker in item.iter_markers("row")]
    if says and item.config.getoption("--record") and call.when == "call":
        # Which of them reads a page first is chance: the rest are given what it read.
        counted = _drove | {"document"} if item.path.name.endswith("documents.py") else _drove
        report.user_properties.append(("drove", sorted(counted)))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    for name, drove in report.user_properties:
        if name == "drove" and report.when == "call":
            test = report.nodeid.partition("[")[0]
            ended = "expected" if hasattr(report, "wasxfail") else report.outcome
            _ended[test].add(ended)
            _seen[test] |= set(drove) if ended == "passed" else set()  # type: ignore[call-overload]


def pytest_sessionfinish(session: pytest.Session) -> None:
    named = session.config.getoption("--record")
    if not named or hasattr(session.config, "workerinput"):
        return
    place, root = Path(named), session.config.rootpath
    known: dict[str, Any] = json.loads(place.read_text("utf-8")) if place.exists() else {}
    for test, ended in _ended.items():
        if ended & {"failed", "expected"}:
            known.pop(test, None)
        elif _seen[test]:
            file = root / test.partition("::")[0]
            text = features.digests_of(file.read_text("utf-8"))[test.partition("::")[2]]
            known[test] = {"drove": sorted(_seen[test]), "text": text}
        elif "passed" in ended:
            known.pop(test, None)
    place.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", "utf-8")
