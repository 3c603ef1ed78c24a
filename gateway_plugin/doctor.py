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
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from gateway_plugin import __version__
from gateway_plugin.calls.clock import Clock
from gateway_plugin.calls.trust import IDENTITY_VARIABLE
from gateway_plugin.client import RelayerClient
from gateway_plugin.errors import GatewayError, RelayerRefused
from gateway_plugin.keys.identity import Identity, KeyHolder, RootHolder, typed
from gateway_plugin.keys.invitations import day_of
from gateway_plugin.outbox.queue import Outbox, OutboxUnavailable, waiting_elsewhere
from gateway_plugin.outbox.sender import Positions
from gateway_plugin.sessions import WHY_MARK, Toggles
from gateway_plugin.settings.model import PluginSettings
from gateway_plugin.turn.status import without_effect
from relayer.wire.fields import Position
from relayer.wire.schemas import AnalyzeRequest, DeleteRequest, RecallRequest, TurnItem

CANARY: Final = "memrelay-canary"
"""The name of the canary's namespace, below the agent's own."""

_SKEW_SECONDS: Final = 5
_EXPIRES_SOON_SECONDS: Final = 14 * 86_400
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
    yield _keys(identity, holder, secret_from, clock.now())
    yield _outbox(outbox)
    if others := waiting_elsewhere(outbox.path, holder):
        yield _others(others)
    yield _last_turn(outbox, identity)
    for check in (_version, _trusted, _accepted):
        result = await check(client, identity)
        yield result
        if not result.ok:
            return
    if seen := Positions(outbox).newest(identity.ref):
        yield await _history(client, identity, seen)
    yield _clock(client.clock_offset)
    yield SKIPPED if settings.disabled else await canary(client, identity, clock=clock, holder=holder)


SKIPPED: Final = Check("canary", True, "not written: memory is switched off by MEMRELAY_DISABLE")
"""In place of `canary` while memory is switched off."""


async def canary(client: RelayerClient, identity: Identity, *, clock: Clock, holder: KeyHolder) -> Check:
    """Capture a message in the canary's own namespace, recall it, and delete the namespace permanently.

    If only one agent's keys are held, which do not permit permanent deletion, all that is in the namespace is forgotten, also
    what an earlier canary left. The next canary with the root secret deletes it.
    """
    word = secrets.token_hex(6)
    whose = replace(identity, namespace=f"{identity.namespace}/{CANARY}")
    start = clock.monotonic()
    try:
        text = f"Remember that the harbour's canary of today is called {word}."
        request = AnalyzeRequest(turns=(TurnItem(role="user", text=text),), idempotency_key=f"canary-{word}")
        await client.analyze(whose, request)
        question = RecallRequest(query=f"What is the harbour's canary called? {word}", limit=5, floor=0)
        found = False
        for _ in range(int(_CANARY_SECONDS / _PAUSE)):
            answer = await client.recall(whose, question, deadline=15)
            found = any(word in hit.text for hit in answer.memories)
            if found:
                break
            await asyncio.sleep(_PAUSE)
        took = clock.monotonic() - start
        await _taken_away(client, whose, holder)
    except GatewayError as error:
        with contextlib.suppress(GatewayError):
            await _taken_away(client, whose, holder)
        return Check("canary", False, str(error), "see the checks above, and the relayer's log")
    if not found:
        fix = "see the relayer's log and /ready"
        return Check("canary", False, "written, and not recalled within 30 s", fix)
    return Check("canary", True, f"written and recalled in {took:.1f} s")


async def _taken_away(client: RelayerClient, whose: Identity, holder: KeyHolder) -> None:
    if isinstance(holder, RootHolder):
        person = holder.person(whose.agent, whose.namespace)
        counted = await client.erase_namespace(person)
        await client.erase_namespace(person, confirm=counted.confirm)
        return
    await client.delete(whose, DeleteRequest(everything=True))


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


def _keys(identity: Identity, holder: KeyHolder, secret_from: str, now: float) -> Check:
    found = f"account {identity.account}, agent {identity.agent}; from {secret_from}"
    if isinstance(holder, RootHolder):
        return Check("keys", True, found)
    until = holder.not_after
    fix = (
        f"memrelay-gateway keys export --agent {typed(identity.agent)} on the host that has the root secret, "
        "and set what it prints here"
    )
    state = "expire on" if now <= until else "expired on"
    return Check(
        "keys",
        now <= until,
        f"{found}; they {state} {day_of(until)}",
        fix,
        warning=now > until - _EXPIRES_SOON_SECONDS,
    )


def _clock(offset: int) -> Check:
    """Compare the clocks; ``offset`` is the relayer's time minus that of this machine, in seconds."""
    if abs(offset) <= _SKEW_SECONDS:
        return Check("clock", True, f"{offset:+d} s to the relayer's")
    return Check(
        "clock",
        False,
        f"this machine's clock is {abs(offset)} s {'behind' if offset > 0 else 'ahead of'} the relayer's",
        "run date -u on both machines; on the one that is wrong: timedatectl set-ntp true",
    )


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
        # The list of --accounts is complete: one with this account alone would shut out the others.
        served = f"add {identity.account} to the accounts that the relayer already serves (--accounts, MEMRELAY_ACCOUNTS)"
        fix = f"{served}; its log names the rule that refused" if refused else "see what answers there"
        return Check("accepted", False, str(error), fix)
    # A page may be empty although there are more.
    stored = listed.namespaces or listed.next_cursor
    return Check("accepted", True, "yes" if stored else "yes, and nothing is stored yet")


async def _history(client: RelayerClient, identity: Identity, seen: Position) -> Check:
    """Ask the relayer whether its log contains the newest position that this gateway has seen."""
    request = RecallRequest(query=CANARY, limit=1, min_position=seen)
    fix = f"restore a newer backup, or accept it: memrelay-gateway doctor --accept-rollback --agent {typed(identity.namespace)}"
    try:
        answer = await client.recall(identity, request, deadline=_CANARY_SECONDS)
    except GatewayError as error:
        code = error.code if isinstance(error, RelayerRefused) else ""
        # So much was written since then that the relayer cannot compare it any more.
        if code == "position_unknown":
            return Check("history", True, "newer than what this gateway has seen")
        if code != "rollback_detected":
            return Check("history", False, str(error), "see the relayer's log")
    else:
        if answer.position is not None:
            return Check("history", True, "complete, as far as this gateway has seen it")
    return Check("history", False, "memories that this gateway has seen are missing from the store", fix)


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
