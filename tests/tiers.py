"""Which test runs when: three tiers, told from what a test reaches, so that nobody has to remember where it belongs.

fast     in this process alone: ``make test``
all      what starts a process, an S3 server or a host: ``make test-all``
prove    wrong variants that must be noticed, and kills, round after round: ``make prove``

A test that reaches `subprocess`, through its fixtures, too, is of the tier *all*; ``@pytest.mark.tier("...")`` says
otherwise. Whatever is *fast* and starts a process all the same fails. ``--tier all`` runs what ``--tier fast`` leaves out
or shortens: the simulation, the examples of hypothesis, and every test that asks for the fixture ``thorough``; ``--tier
prove`` simulates once more, and longer. Without the option everything runs that was named, whole.

pytest tests/simulation --seeds 2000                     more schedules
pytest tests/simulation --seeds 1 --first-seed 4711      the one that failed
pytest tests/integration/test_s3_kills.py --rounds 30
"""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest
from hypothesis import is_hypothesis_test, settings

# What each tier does of what can be done for as long as one likes; None is no tier.
SEEDS = {"fast": 16, "all": 300, "prove": 2000, None: 300}
ROUNDS = {"fast": 3, "all": 3, "prove": 30, None: 3}
TIERS = [tier for tier in SEEDS if tier]
HERE = Path(__file__).resolve().parent
_STARTERS = frozenset({"fork", "posix_spawn", "create_subprocess_exec", "create_subprocess_shell"})
# Milliseconds each: git, and the processes in which a directory store tries its locks whenever it is opened.
_CHEAP = (("git",), (sys.executable, "-I", "-S"))
_started: list[str] = []

# A shared machine may stall any single example; a slow test is caught by the test's own time limit.
settings.register_profile("full", parent=settings.default, deadline=None, print_blob=True)
settings.register_profile("fast", parent=settings.get_profile("full"), max_examples=20)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("memrelay")
    group.addoption("--tier", choices=TIERS, help="run the tests of one tier; see tests/tiers.py")
    group.addoption("--seeds", type=int, help="how many seeds a simulation runs; if not its tier's")
    group.addoption("--first-seed", type=int, default=0, help="the seed that a simulation begins with")
    group.addoption("--rounds", type=int, help="how often relayer and store are killed; if not the tier's")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "tier(name): where the test runs, if not where tests/tiers.py puts it")
    # Before a test is imported: settings of its own count in examples of the profile.
    settings.load_profile("fast" if _is_fast(config) else "full")


def pytest_report_header(config: pytest.Config) -> str:
    seeds = _seeds(config)
    return f"tier: {config.getoption('--tier') or 'any'}; simulation seeds: {seeds.start} to {seeds.stop - 1}"


def _is_fast(config: pytest.Config) -> bool:
    return bool(config.getoption("--tier") == "fast")


def _seeds(config: pytest.Config) -> range:
    first: int = config.getoption("--first-seed")
    return range(first, first + (config.getoption("--seeds") or SEEDS[config.getoption("--tier")]))


@pytest.fixture(scope="session")
def rounds(request: pytest.FixtureRequest) -> int:
    """How often a process is killed."""
    return request.config.getoption("--rounds") or ROUNDS[request.config.getoption("--tier")]


@pytest.fixture(scope="session")
def seeds(request: pytest.FixtureRequest) -> range:
    """The seeds that a simulation runs; a failing one belongs in the assertion's message."""
    return _seeds(request.config)


@pytest.fixture(scope="session")
def thorough(request: pytest.FixtureRequest) -> bool:
    """Whether to try all; a fast run tries a sample."""
    return not _is_fast(request.config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = config.getoption("--tier")
    left_out = [] if wanted is None else [item for item in items if not _runs(item, wanted)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def _runs(item: pytest.Item, wanted: str) -> bool:
    tier, fixtures = tier_of(item), set(getattr(item, "fixturenames", ()))
    if tier in (wanted, "prove"):
        return tier == wanted
    if wanted == "all":
        shortened = is_hypothesis_test(getattr(item, "obj", None))
        return shortened or not fixtures.isdisjoint(("seeds", "thorough"))
    return wanted == "prove" and "seeds" in fixtures


def tier_of(item: pytest.Item) -> str:
    """The tier that a test names, or the one of what it reaches."""
    named = item.get_closest_marker("tier")
    if named is not None:
        [tier] = named.args
        if tier not in TIERS:
            raise pytest.UsageError(f"{item.nodeid}: tier({tier!r}); there are {', '.join(TIERS)}")
        return str(tier)
    if not isinstance(item, pytest.Function):
        return "fast"
    return "all" if any(reaches_process(one, item.cls) for one in functions_of(item)) else "fast"


def functions_of(item: pytest.Function) -> list[Callable[..., Any]]:
    """The test itself and its fixtures."""
    definitions = item._fixtureinfo.name2fixturedefs.values()
    return [item.function, *(one.func for found in definitions for one in found)]


@cache
def reaches_process(one: Callable[..., Any], inside: type | None) -> bool:
    return any(
        not _STARTERS.isdisjoint(names)
        or any(isinstance(each, ModuleType) and each in (subprocess, multiprocessing) for each in known)
        for names, known in reached_from(one, inside)
    )


def reached_from(one: Callable[..., Any], inside: type | None) -> Iterator[tuple[set[str], list[Any]]]:
    """Yield the names, and what is known by them, in each function of the tests that ``one`` may call, itself first."""
    seen: set[Any] = set()
    waiting: list[Any] = [one]
    # A method's own class is no global name; its neighbours are reached by theirs.
    neighbours = dict(vars(inside)) if inside else {}
    while waiting:
        found = waiting.pop()
        found = getattr(found, "__func__", getattr(found, "__wrapped__", found))
        if found in seen:
            continue
        seen.add(found)
        if isinstance(found, type):
            waiting += [part for part in vars(found).values() if _is_ours(part)]
            continue
        if not hasattr(found, "__code__"):
            continue
        names = set(_names(found.__code__))
        around = neighbours | found.__globals__
        known = [around[name] for name in names if name in around]
        yield names, known
        waiting += [each for each in known if _is_ours(each)]


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _is_ours(found: Any) -> bool:
    """A function or class of the tests, or of the demonstration, which starts relayers for tests as well."""
    found = getattr(found, "__func__", getattr(found, "__wrapped__", found))
    if not isinstance(found, type | FunctionType):
        return False
    if found.__module__.startswith("demo."):
        return True
    file = getattr(sys.modules.get(found.__module__), "__file__", None)
    return file is not None and HERE in Path(file).parents


def started_by(event: str, arguments: tuple[Any, ...]) -> str:
    """The command line of a process that an audit event says is being started; "" if none is, or a cheap one."""
    if event != "subprocess.Popen":
        return ""
    command = arguments[1] if isinstance(arguments[1], list | tuple) else [arguments[1]]
    words = tuple(str(word) for word in command)
    return "" if any(words[: len(cheap)] == cheap for cheap in _CHEAP) else " ".join(words)[:200]


def _note_start(event: str, arguments: tuple[Any, ...]) -> None:
    if command := started_by(event, arguments):
        _started.append(command)


sys.addaudithook(_note_start)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    _started.clear()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    answer = yield
    if _started and tier_of(item) == "fast":
        pytest.fail(f'started a process: {_started}; say @pytest.mark.tier("all"), or do it in this process')
    return answer
