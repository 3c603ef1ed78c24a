"""``memrelay-gateway keys revoke``, ``revoked`` and ``rotate``: what to do when an agent's keys may be somebody else's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gateway_plugin.client import RelayerClient
from gateway_plugin.commands.output import Output
from gateway_plugin.commands.run import (
    FAILED,
    USAGE,
    CliContext,
    JsonOption,
    UrlOption,
    fail,
    find_context,
    guarded,
    root_holder,
    with_client,
)
from gateway_plugin.keys.credentials import OWNER
from gateway_plugin.keys.holders import RootHolder
from gateway_plugin.revoking import Moved, copy_memories, fetch, namespaces_of, revoke
from gateway_plugin.session_keys import DEFAULT_NAME, named, typed
from relayer.wire import base64url
from relayer.wire.certificates import Certificate
from relayer.wire.errors import Malformed, NotAccepted
from relayer.wire.revocations import Revocations

__all__ = ["add_to"]

_SOON = "Replicas that had it in memory follow within 15 seconds."
YesOption = Annotated[bool, typer.Option("--yes", help="Do it; without, say what would happen.")]


def add_to(keys: typer.Typer) -> None:
    """Add the commands to ``memrelay-gateway keys``."""
    keys.command("revoke")(keys_revoke)
    keys.command("revoked")(keys_revoked)
    keys.command("rotate")(keys_rotate)


def keys_revoke(
    *,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="Whose keys; of no use ever again.")
    ] = None,
    certificate: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT|FILE", help="One certificate, as `keys export` printed it; the keys stay."
        ),
    ] = None,
    yes: YesOption = False,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take back an agent's keys, or one certificate, before their end. It cannot be undone."""
    if (agent is None) == (certificate is None):
        fail(USAGE, "--agent, --certificate: give one of them", "memrelay-gateway keys revoke --agent NAME")
    context, holder = _owner(url)
    agent_keys: tuple[bytes, ...] = ()
    serials: tuple[bytes, ...] = ()
    if agent is not None:
        name = guarded(lambda: named(agent, shown=True))
        agent_keys = (_public_key(holder, name),)
        what = f"the keys of agent {name} ({agent_keys[0].hex()})"
        note = (
            f"Whoever has them is shut out, and agent {name} of this gateway with them. To keep its memories under "
            f"other keys:\n  memrelay-gateway keys rotate --agent {typed(name)} --to {typed(name)}-2"
        )
    else:
        found = _certificate(holder, certificate or "")
        name, serials = found.agent, (found.serial,)
        what = f"one certificate of agent {name} (serial {found.serial.hex()})"
        note = (
            "Whoever has only this one is shut out. The agent's keys stay good with every other certificate."
        )
    if not yes:
        Output(as_json=False).say(f"would be taken back for good: {what}\n{note}\ndo it: --yes")
        return
    revoked = with_client(
        context.settings,
        lambda client: revoke(client, holder, name, agent_keys=agent_keys, serials=serials),
    )
    if as_json:
        Output(as_json=True).json(_document(revoked))
    else:
        Output(as_json=False).say(f"taken back at {context.settings.url}: {what}\n{_SOON}\n{note}")


def keys_revoked(*, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """List what was taken back at a relayer."""
    context, holder = _owner(url)
    revoked = with_client(context.settings, lambda client: fetch(client, holder, OWNER))
    output = Output(as_json=as_json)
    if as_json:
        output.json(_document(revoked))
        return
    for key in revoked.agent_keys:
        output.say(f"agent key    {key.hex()}")
    for serial in revoked.serials:
        output.say(f"certificate  {serial.hex()}")
    output.say(f"{len(revoked.agent_keys) + len(revoked.serials)} taken back at {context.settings.url}")


def keys_rotate(
    *,
    agent: Annotated[str, typer.Option("--agent", metavar="OLD", help="Whose keys are not safe any more.")],
    to: Annotated[str, typer.Option("--to", metavar="NEW", help="A name that was not used yet.")],
    yes: YesOption = False,
    url: UrlOption = None,
) -> None:
    """Take back an agent's keys and copy its memories under new ones. May be repeated after a failure."""
    old, new = guarded(lambda: (named(agent, shown=True), named(to, shown=True)))
    if old == new:
        fail(USAGE, "--to: another name: an agent's keys come from its name", f"--to {typed(old)}-2")
    if new == DEFAULT_NAME:
        fail(
            USAGE,
            "--to: it is the default agent's name",
            f"memrelay-gateway adopt {old}, if the memories are its own",
        )
    context, holder = _owner(url)
    names = with_client(context.settings, lambda client: _movable(client, holder, old, new))
    output = Output(as_json=False)
    if not yes:
        output.say(
            f"would happen at {context.settings.url}:\n  the keys of agent {old} are taken back, for good\n"
            f"  live memories of {', '.join(names) or 'no namespace'} are copied to agent {new}\ndo it: --yes"
        )
        return
    key = _public_key(holder, old)
    with_client(context.settings, lambda client: revoke(client, holder, old, agent_keys=(key,)))
    output.say(f"taken back: the keys of agent {old}")
    copied = with_client(context.settings, lambda client: _moved(client, holder, old, new))
    for moved in copied:
        output.say(f"copied: {moved.source} to {moved.target}, {moved.there} of {moved.found} live memories")
    output.say(
        f"Now let the gateway use them, in its settings:\n"
        f'  {{"namespace": {{"renamed": {{"{old}": "{new}"}}}}}}\n'
        f"and when that works, destroy what the old keys still open:"
    )
    for moved in copied:
        output.say(f"  memrelay-gateway erase --namespace --agent {typed(moved.source)} --yes")


async def _movable(client: RelayerClient, holder: RootHolder, old: str, new: str) -> list[str]:
    revoked = await fetch(client, holder, new)
    if _public_key(holder, new) in revoked.agent_keys:
        fail(FAILED, f"--to: the keys of agent {new} were taken back", "choose a name that was not used yet")
    return await namespaces_of(client, holder, old)


async def _moved(client: RelayerClient, holder: RootHolder, old: str, new: str) -> list[Moved]:
    return [moved async for moved in copy_memories(client, holder, old, new)]


def _owner(url: str | None) -> tuple[CliContext, RootHolder]:
    context = find_context(url, None)
    return context, root_holder(context, "taking keys back")


def _public_key(holder: RootHolder, agent: str) -> bytes:
    return bytes(holder.root.agent(agent).identity.verify_key)


def _certificate(holder: RootHolder, given: str) -> Certificate:
    text = given.strip()
    try:
        if Path(text).is_file():
            text = Path(text).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError, ValueError):
        pass  # then it is no file but the certificate itself, or nothing at all
    try:
        # The line of `keys export` is as good as what is in it.
        found = Certificate.verify(base64url.decode(text.removeprefix("MEMRELAY_AGENT_CERTIFICATE=")))
    except (Malformed, NotAccepted):
        fail(
            USAGE,
            "--certificate: it is no certificate",
            "give the text that keys export printed, or its file",
        )
    if found.account != holder.account:
        fail(USAGE, f"--certificate: it is account {found.account}'s", f"this gateway's is {holder.account}")
    return found


def _document(revoked: Revocations) -> dict[str, object]:
    return {
        "counter": revoked.counter,
        "agent_keys": [key.hex() for key in revoked.agent_keys],
        "certificates": [serial.hex() for serial in revoked.serials],
    }
