"""Import memories from a MemWal service: find the service and the key, read its namespaces, and store the memories here.

The key is the one that MemWal's own programs use. It comes from the variables ``MEMWAL_PRIVATE_KEY``, ``MEMWAL_ACCOUNT_ID`` and
``MEMWAL_SERVER_URL``, or from the file of its MCP package. It is used for reading only, and is not stored.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import httpx

from gateway_plugin.calls.clock import SystemClock
from gateway_plugin.commands.run import Run, guarded
from gateway_plugin.files.bounded import parse_json
from gateway_plugin.files.memwal import MemWalAccess, Walked, import_memwal, list_memwal
from gateway_plugin.files.sending import send_items
from gateway_plugin.keys.identity import DEFAULT_AGENT, DEFAULT_NAME
from gateway_plugin.settings.model import safe_load
from relayer.wire import names
from relayer.wire.command_line import USAGE, fail

CREDENTIALS: Final = ".memwal/credentials.json"
_KEY: Final = re.compile(r"(?:0x)?([0-9a-fA-F]{64})")
_ACCOUNT: Final = re.compile(r"0x[0-9a-fA-F]{10,128}")
_VARIABLES: Final = ("MEMWAL_PRIVATE_KEY", "MEMWAL_ACCOUNT_ID", "MEMWAL_SERVER_URL")
_IN_THE_FILE: Final = ("delegatePrivateKey", "accountId", "relayerUrl")
_MOST_BYTES: Final = 64 * 1024


def checked_access(given: Sequence[str], called: Sequence[str], fix: str) -> MemWalAccess:
    """Return service and key; exit with an error if a value is invalid.

    The values are private key, account id and URL; ``called`` are their names in error messages.
    """
    key, account = _KEY.fullmatch(given[0]), _ACCOUNT.fullmatch(given[1])
    checked = safe_load({"url": given[2]}, {})
    if key is None:
        fail(USAGE, f"{called[0]}: must be a key of 64 hexadecimal digits", fix)
    if account is None:
        fail(USAGE, f"{called[1]}: must be an account id (0x and hexadecimal digits)", fix)
    if checked.settings is None:
        fail(USAGE, f"{called[2]}: {checked.error}", fix)
    return MemWalAccess(checked.settings.url, key[1], account[0])


def find_access(environ: Mapping[str, str], home: Path) -> MemWalAccess:
    """Return service and key from the variables or the file of MemWal's MCP package; exit with an error if there are none."""
    if any(environ.get(name) for name in _VARIABLES):
        given = [environ.get(name, "") for name in _VARIABLES]
        return checked_access(given, _VARIABLES, "set it for this command")
    file = home / CREDENTIALS
    if not file.exists():
        fail(
            USAGE,
            f"{', '.join(_VARIABLES)}: they are not set, and there is no {file}",
            "set them for this command",
        )
    try:
        with file.open("rb") as opened:
            saved = parse_json(opened.read(_MOST_BYTES))
    except (OSError, ValueError):
        fail(USAGE, f"{file}: cannot be read as JSON", "set the variables instead")
    fields = saved if isinstance(saved, dict) else {}
    given = [str(fields.get(name) or "") for name in _IN_THE_FILE]
    return checked_access(given, _IN_THE_FILE, f"mend {file}, or set {', '.join(_VARIABLES)}")


def import_all(
    access: MemWalAccess,
    wanted: Sequence[str],
    agent: str | None,
    url: str | None,
    *,
    dry_run: bool,
    say: Callable[[str], None],
) -> tuple[Counter[str], list[str]]:
    """Read namespaces, or all if none is named, and store their memories. Existing memories are not stored twice.

    Returns:
        The number of memories found, the counts of outcomes, and a message for each namespace that was not read completely.
    """
    total: Counter[str] = Counter()
    problems: list[str] = []
    for namespace in wanted or guarded(lambda: asyncio.run(_listed(access, say))):
        walked = guarded(partial(asyncio.run, read_namespace(access, namespace, say)))
        counts = Counter({"found": walked.found})
        if walked.items and not dry_run:
            counts += Run(agent=_whose(agent, namespace), url=url).ask(
                partial(send_items, items=walked.items)
            )
        total += counts
        say(
            f"{namespace}: {', '.join(f'{count} {word}' for word, count in sorted(counts.items())) or 'none'}"
        )
        if not walked.complete:
            problems.append(
                f"{namespace}: {walked.found} of {walked.known} were read, because recall does not return the others; MemWal's own restore may add them to its index: run it, then run this command again"
            )
    return total, problems


def _whose(agent: str | None, namespace: str) -> str | None:
    """Return the target of a namespace's memories: the agent's own namespace for the default one, else one below it."""
    if namespace == DEFAULT_NAME:
        return agent
    return f"{agent or DEFAULT_AGENT}/{names.normalise(namespace)}"


async def _listed(access: MemWalAccess, say: Callable[[str], None]) -> tuple[str, ...]:
    async with httpx.AsyncClient() as http:
        return await list_memwal(access, clock=SystemClock(), http=http, say=say)


async def read_namespace(access: MemWalAccess, namespace: str, say: Callable[[str], None]) -> Walked:
    """Return the memories of a namespace. Raises as `import_memwal`."""
    async with httpx.AsyncClient() as http:
        return await import_memwal(access, namespace, clock=SystemClock(), http=http, say=say)
