"""The checks of ``memrelay-gateway doctor``, which find out why memory does not work.

`examine` runs them one after another, from the gateway's own switches and outbox to the relayer, and yields a `Check` with
the result and the fix for each. It stops at the first check on the relayer that fails, because later ones depend on it. The
last one, `canary`, writes a memory to a namespace of its own, recalls it and deletes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gateway_plugin import __version__
from gateway_plugin.calls.clock import Clock
from gateway_plugin.calls.trust import IDENTITY_VARIABLE
from gateway_plugin.client import RelayerClient
from gateway_plugin.errors import GatewayError, RelayerRefused
from gateway_plugin.keys.identity import Identity, KeyHolder, RootHolder, typed
from gateway_plugin.outbox.queue import Outbox, OutboxUnavailable, other_outboxes
from gateway_plugin.sessions import WHY_MARK, Toggles
from gateway_plugin.settings.model import PluginSettings
from gateway_plugin.turn.status import without_effect
from relayer.wire.schemas import AnalyzeRequest, RecallRequest, TurnItem

CANARY: Final = "memrelay-canary"
"""The name of the canary's namespace, below the agent's own."""

_SKEW_SECONDS: Final = 5
_CANARY_SECONDS: Final = 30.0
_PAUSE: Final = 0.5


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check.

    Attributes:
        fix: what to do if the check failed or gives a warning.
        warning: whether a check that passed still needs attention.
    """

    name: str
    ok: bool
    found: str
    fix: str = ""
    warning: bool = False


async def examine(
    client: RelayerClient,
    identity: Identity,
    *,
    settings: PluginSettings,
    secret_from: str,
    outbox: Outbox,
    toggles: Toggles,
    clock: Clock,
    holder: KeyHolder,
) -> AsyncIterator[Check]:
    """Yield the results of all checks, local ones first. Checks that cannot pass after a failure are left out."""
    yield _switches(settings, toggles, identity.agent)
    told = without_effect(settings, identity.account)
    if told:
        # The check passes, because a configuration of an earlier plugin may keep settings that have no effect.
        yield Check("settings", True, "; ".join(told))
    yield Check("keys", True, f"account {identity.account}, agent {identity.agent}; from {secret_from}")
    yield _outbox(outbox)
    if others := other_outboxes(outbox.path, holder):
        yield _others(others)
    yield _last_turn(outbox, identity)
    for check in (_version, _trusted, _accepted):
        result = await check(client, identity)
        yield result
        if not result.ok:
            return
    ahead = client.clock_offset
    yield Check(
        "clock", abs(ahead) <= _SKEW_SECONDS, f"{ahead:+d} s to the relayer's", "set this machine's clock"
    )
    yield SKIPPED if settings.disabled else await canary(client, identity, clock=clock, holder=holder)


SKIPPED: Final = Check("canary", True, "not written: memory is switched off by MEMRELAY_DISABLE")
"""In place of `canary` while memory is switched off."""


async def canary(client: RelayerClient, identity: Identity, *, clock: Clock, holder: KeyHolder) -> Check:
    """Capture a message in the canary's own namespace, recall it, and delete the namespace permanently.

    If only one agent's keys are held, which do not permit permanent deletion, the memory is only forgotten.
    """
    word = secrets.token_hex(6)
    whose = replace(identity, namespace=f"{identity.namespace}/{CANARY}")
    start = clock.monotonic()
    try:
        text = f"Remember that the harbour's canary of today is called {word}."
        request = AnalyzeRequest(turns=(TurnItem(role="user", text=text),), idempotency_key=f"canary-{word}")
        await client.analyze(whose, request)
        question = RecallRequest(query=f"What is the harbour's canary called? {word}", limit=5, floor=0)
        found = await _until_found(client, whose, question, word)
        took = clock.monotonic() - start
        await _taken_away(client, whose, holder, found)
    except GatewayError as error:
        with contextlib.suppress(GatewayError):
            await _taken_away(client, whose, holder, ())
        return Check("canary", False, str(error), "see the checks above, and the relayer's log")
    if not found:
        return Check(
            "canary", False, "written, and not recalled within 30 s", "see the relayer's log and /ready"
        )
    return Check("canary", True, f"written and recalled in {took:.1f} s")


async def _taken_away(
    client: RelayerClient, whose: Identity, holder: KeyHolder, found: Sequence[str]
) -> None:
    if isinstance(holder, RootHolder):
        person = holder.person(whose.agent, whose.namespace)
        counted = await client.erase_namespace(person)
        await client.erase_namespace(person, confirm=counted.confirm)
        return
    for memory_id in found:
        await client.forget(whose, memory_id)


async def _until_found(
    client: RelayerClient, whose: Identity, question: RecallRequest, word: str
) -> list[str]:
    for _ in range(int(_CANARY_SECONDS / _PAUSE)):
        answer = await client.recall(whose, question, deadline=15)
        found = [hit.id for hit in answer.memories if word in hit.text]
        if found:
            return found
        await asyncio.sleep(_PAUSE)
    return []


def _switches(settings: PluginSettings, toggles: Toggles, agent: str) -> Check:
    off = [
        name
        for name, is_off in (
            ("MEMRELAY_DISABLE is set", settings.disabled),
            ("recall.enabled is false", not settings.recall.enabled),
            ("capture.enabled is false", not settings.capture.enabled),
        )
        if is_off
    ]
    fixes = ["unset it, unless it is meant"] if off else []
    # If the switches cannot be read, the check of the outbox reports it.
    with contextlib.suppress(OutboxUnavailable):
        if not toggles.enabled_everywhere:
            off.append("memory is off for every session of this gateway")
            fixes.append("memrelay-gateway on")
        elif not toggles.agent_enabled(agent):
            off.append(f"memory is off for agent {agent}")
            fixes.append(f"memrelay-gateway on --agent {typed(agent)}")
    return Check("switches", not off, "; ".join(off) or "all on", "; ".join(fixes))


def _outbox(outbox: Outbox) -> Check:
    try:
        dead, waiting = len(outbox.dead_letters()), outbox.waiting()
    except GatewayError as error:
        found = f"{error}. Memory may be switched off in it: until it can be read, nothing is recalled or captured"
        return Check("outbox", False, found, "mend the file as it says; memory goes on with the next turn")
    return Check("outbox", not dead, f"{waiting} waiting, {dead} refused", "memrelay-gateway outbox list")


def _others(others: Mapping[str, int]) -> Check:
    found = ", ".join(f"{count} in {name}" for name, count in others.items())
    name = next(iter(others))
    fix = (
        f"memrelay-gateway outbox list --file {name} shows them, outbox deliver --file {name} delivers them to this relayer, "
        f"outbox drop --all --waiting --file {name} destroys them"
    )
    return Check(
        "other outboxes",
        True,
        f"turns wait for another relayer address or secret: {found}",
        fix,
        warning=True,
    )


def told_of_last_turn(outbox: Outbox, identity: Identity) -> tuple[str, bool]:
    """Return the outcome of an agent's last recorded turn (AM-27).

    Returns:
        The outcome as a message for people, which names the gate that stopped recall, and whether a gate stopped it.

    Raises:
        OutboxUnavailable: the file cannot be read.
    """
    noted = outbox.get(identity.ref, WHY_MARK).value
    trace: dict[str, Any] = json.loads(noted) if noted else {}
    if not trace.get("status"):
        return "no turn was noted yet: send one, and look again", False
    stopped = trace["status"].startswith("skipped:")
    closed = [one for one in trace["gates"] if not one["allowed"]]
    if not (stopped and closed):
        return trace["status"], stopped
    return f"the gate {closed[0]['gate']} stopped recall: {closed[0]['reason']}", True


def _last_turn(outbox: Outbox, identity: Identity) -> Check:
    # If the outbox cannot be read, its own check reports it.
    with contextlib.suppress(OutboxUnavailable):
        found, stopped = told_of_last_turn(outbox, identity)
        fix = "if it should have recalled, change what the gate names; memrelay-gateway why shows every gate"
        return Check("last turn", True, found, fix, warning=stopped)
    return Check("last turn", True, "cannot be read")


async def _version(client: RelayerClient, _: Identity) -> Check:
    try:
        answer = await client.version()
    except GatewayError as error:
        return Check("relayer", False, str(error), "start one with memrelay serve, or set MEMRELAY_URL")
    said = f"{client.endpoint.origin} runs {answer.version}, this gateway {__version__}"
    if _parts(__version__) < _parts(answer.min_client_version):
        needed = answer.min_client_version
        return Check(
            "relayer",
            False,
            f"{said}; it needs {needed}",
            f"pip install -U . in a clone of memrelay {needed} or newer",
        )
    return Check("relayer", True, said)


async def _trusted(client: RelayerClient, _: Identity) -> Check:
    try:
        fleet = await client.fleet()
    except GatewayError as error:
        fix = f"memrelay-gateway trust {client.endpoint.origin}, if it is yours"
        # Trusting the relayer changes nothing about the identity that the environment names.
        if IDENTITY_VARIABLE in str(error):
            fix = f"correct {IDENTITY_VARIABLE}, or unset it"
        return Check("identity", False, str(error), fix)
    return Check("identity", True, f"the relayer's, {fleet.identity.hex()}, is trusted")


async def _accepted(client: RelayerClient, identity: Identity) -> Check:
    try:
        listed = await client.namespaces(identity, limit=1)
    except GatewayError as error:
        refused = isinstance(error, RelayerRefused)
        fix = f"memrelay serve --accounts {identity.account}" if refused else "see what answers there"
        return Check("accepted", False, str(error), fix)
    # A page may be empty although there are more.
    stored = listed.namespaces or listed.next_cursor
    return Check("accepted", True, "yes" if stored else "yes, and nothing is stored yet")


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
