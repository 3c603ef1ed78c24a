"""``memrelay-gateway keys``: show, export, print, revoke and rotate the keys derived from the gateway's secret."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from gateway_plugin.calls.clock import SystemClock
from gateway_plugin.client import RelayerClient
from gateway_plugin.commands.run import (
    CliContext,
    Run,
    YesOption,
    command,
    days_option,
    find_context,
    guarded,
    root_holder,
    text_or_file,
    used,
    with_client,
)
from gateway_plugin.doctor import CANARY
from gateway_plugin.errors import GatewayError, RelayerRefused
from gateway_plugin.files.exports import send_items
from gateway_plugin.keys.gateway_secret import recover_secret
from gateway_plugin.keys.identity import DEFAULT_NAME, OWNER, AgentHolder, RootHolder, mint, named, typed
from gateway_plugin.keys.invitations import day_of
from gateway_plugin.recall.sharing import Share, Shares
from gateway_plugin.setup import shares_path
from relayer.wire import codec as base64url
from relayer.wire.codec import InvalidSecret, Malformed, NotAccepted
from relayer.wire.command_line import FAILED, USAGE, complain, fail
from relayer.wire.schemas import RotateKeysResponse
from relayer.wire.sealed_keys import FleetList
from relayer.wire.sealing import RootKeys
from relayer.wire.service import ExportRequest, ImportItem, NamespaceView
from relayer.wire.sheet import GATEWAY_SHEET, LINES, read_line, read_sheet_file, secret_of
from relayer.wire.signing import Certificate, Revocations, RevocationsRequest

keys = typer.Typer(help="The account's keys: show, export one agent's, recovery sheet.", no_args_is_help=True)


@command(keys, "show")
def keys_show(run: Run) -> None:
    """Show public ids: account, agent, and what is known of the relayer's keys.

    Example: memrelay-gateway keys show --agent coder
    """
    context = run.context
    document: dict[str, Any] = {
        "account": context.identity.account,
        "agent": context.identity.agent,
        "agent_key": bytes(context.identity.keys.identity.verify_key).hex(),
        "namespace": context.identity.namespace,
        "relayer": context.settings.url,
    }
    if isinstance(context.holder, AgentHolder):
        document["valid_until"] = day_of(context.holder.not_after)
    try:
        fleet: FleetList = asyncio.run(used(context.settings, lambda client: client.fleet()))
    except GatewayError as error:
        document |= {"relayer_keys": [], "problem": str(error)}
    else:
        keys_of_days = [key.day for key in fleet.keys]
        document |= {"relayer_identity": fleet.identity.hex(), "relayer_keys": keys_of_days}
    run.facts(document, relayer_keys=", ".join(document["relayer_keys"]) or "not known")


@command(keys, "export", agent=None, url=None)
def keys_export(
    run: Run,
    *,
    agent: Annotated[str, typer.Option("--agent", metavar="NAME", help="Whose keys.")],
    days: Annotated[float, days_option("Validity of the certificate.")] = 90,
) -> None:
    """Print one agent's secret and a certificate, for a host that should hold no more.

    Example: memrelay-gateway keys export --agent coder --days 30
    """
    context = find_context(None, agent)
    root = root_holder(context, "handing out an agent's keys").root
    now = int(SystemClock().now())
    certificate = mint(root, context.identity.agent, now=now, seconds=int(days * 86_400))
    lines = {
        "MEMRELAY_AGENT_SECRET": context.identity.keys.secret.hex(),
        "MEMRELAY_AGENT_CERTIFICATE": base64url.encode(certificate.issue(root.account_identity)),
    }
    run.json(lines)
    run.raw("\n".join(f"{name}={value}" for name, value in lines.items()))
    if not run.as_json:
        # Standard output is what the other host reads.
        typer.echo(f"valid until {day_of(certificate.not_after)}; export them again before", err=True)


@command(keys, "recovery", agent=None, url=None)
def keys_recovery(
    run: Run,
    verify: Annotated[
        str | None, typer.Option("--verify", metavar="FILE", help="Check this sheet; - reads standard input.")
    ] = None,
) -> None:
    """Print the root secret as a sheet for paper, or check one against this gateway's secret.

    Example: memrelay-gateway keys recovery

    Example: memrelay-gateway keys recovery --verify sheet.txt
    """
    root = root_holder(run.context, "a recovery sheet").root
    if verify is None:
        sheet = GATEWAY_SHEET.render(root.root, [("account", root.account)])
        run.json({"account": root.account, "sheet": sheet})
        run.raw(sheet)
        return
    found = RootKeys(_secret_of(verify))
    if found.account != root.account:
        fail(
            FAILED,
            f"the sheet is in order, but it is account {found.account}'s",
            f"this gateway's is {root.account}",
        )
    said = f"the sheet is in order and holds the secret of this gateway, account {found.account}"
    run.tell({"account": found.account, "in_order": True}, said)


@command(keys, "recover", agent=None, url=None)
def keys_recover(
    run: Run,
    sheet: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE]", help="The sheet; - is standard input. Without: it is asked for, line by line."
        ),
    ] = None,
    *,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Also if there is another secret, which is kept in a file next to it."
        ),
    ] = False,
) -> None:
    """Bring this gateway's secret back from its sheet: the memories that it opens are there again.

    Example: memrelay-gateway keys recover sheet.txt
    """
    typed_in = sheet is None and sys.stdin.isatty()
    secret = _typed_in() if typed_in else _secret_of(sheet or "-")
    account = RootKeys(secret).account
    file, kept = guarded(lambda: recover_secret(os.environ, secret, replace=replace))
    run.json({"account": account, "file": str(file), "kept": None if kept is None else str(kept)})
    run.say(f"recovered: the secret of account {account} is in {file}")
    if kept is not None:
        run.say(f"the one that was there is in {kept}")
    run.say(
        "see the memories with: memrelay-gateway list, and whether all is well with: memrelay-gateway doctor"
    )


def _typed_in() -> bytes:
    """Ask for the lines of a sheet at the terminal; a line with a typing error is asked for again before the next one."""
    typer.echo(
        "Type the sheet's lines without their numbers; what is not right is asked for again.", err=True
    )
    while True:
        words = [word for number in range(1, LINES + 1) for word in _asked(number)]
        try:
            return secret_of(words)
        except InvalidSecret as error:
            complain(str(error))


def _asked(number: int) -> list[str]:
    while True:
        text = typer.prompt(f"{number}", prompt_suffix="   ", err=True)
        try:
            # The line's number may be typed as well.
            return read_line(number, text.strip().removeprefix(f"{number} "))
        except InvalidSecret as error:
            complain(str(error))


def _secret_of(sheet: str) -> bytes:
    try:
        return GATEWAY_SHEET.read(
            sys.stdin.read() if sheet == "-" else read_sheet_file(Path(sheet).expanduser())
        )
    except OSError:
        fail(USAGE, f"{sheet} cannot be read", "give the file that holds the sheet, or - for standard input")
    except UnicodeDecodeError:
        fail(USAGE, "standard input is no text", "give the file that holds the sheet, or pipe it in")
    except InvalidSecret as error:
        fail(FAILED, str(error), "compare it with the paper, line by line")


_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class Moved:
    """The outcome of copying the memories of one namespace."""

    source: str
    target: str
    found: int
    there: int


async def fetch(client: RelayerClient, holder: RootHolder, agent: str) -> Revocations:
    """Return the account's revocations; an empty list if there are none.

    Raises:
        GatewayError: the relayer does not respond, or returns a list that this account did not sign.
    """
    key = bytes(holder.root.account_identity.verify_key)
    answer = await client.revocations(holder.person(agent))
    if not answer.revocations:
        return Revocations(key, 0)
    try:
        found = Revocations.verify(base64url.decode(answer.revocations))
    except (Malformed, NotAccepted) as error:
        raise GatewayError("the relayer gave a list of revocations without a valid signature") from error
    if found.account_key != key:
        raise GatewayError("the relayer gave another account's list of revocations")
    return found


async def revoke(
    client: RelayerClient,
    holder: RootHolder,
    agent: str,
    *,
    agent_keys: Sequence[bytes] = (),
    serials: Sequence[bytes] = (),
) -> Revocations:
    """Add missing entries to the list of revocations, send the list, and return the list that is in force.

    Raises:
        GatewayError: as `fetch`; or the list would have more than a thousand entries.
    """
    for attempt in range(_ATTEMPTS):
        known = await fetch(client, holder, agent)
        wanted = replace(
            known,
            counter=known.counter + 1,
            agent_keys=tuple(dict.fromkeys((*known.agent_keys, *agent_keys))),
            serials=tuple(dict.fromkeys((*known.serials, *serials))),
        )
        if (wanted.agent_keys, wanted.serials) == (known.agent_keys, known.serials):
            # An unchanged list is sent, too: a relayer whose store lost the account's object restores it from this list.
            wanted = known
        try:
            encoded = wanted.issue(holder.root.account_identity)
        except Malformed as error:
            raise GatewayError(str(error)) from error
        try:
            await client.revoke(
                holder.person(agent), RevocationsRequest(revocations=base64url.encode(encoded))
            )
        except RelayerRefused as error:
            # The list was changed in between: fetch it again, so that the other entries are kept.
            if error.code != "stale_counter" or attempt == _ATTEMPTS - 1:
                raise
            continue
        return wanted
    raise AssertionError("every attempt returns or raises")


async def namespaces_of(client: RelayerClient, holder: RootHolder, agent: str) -> list[str]:
    """Return the names of an agent's live namespaces, without that of the canary, which contains no memories of the agent."""
    return [view.name for view in await live_namespaces(client, holder, agent)]


async def live_namespaces(client: RelayerClient, holder: RootHolder, agent: str) -> list[NamespaceView]:
    """Return an agent's live namespaces, without that of the canary; see `namespaces_of`."""
    found: list[NamespaceView] = []
    cursor = None
    while True:
        page = await client.namespaces(holder.person(agent), cursor=cursor)
        found += [
            view for view in page.namespaces if view.state == "live" and not view.name.endswith(f"/{CANARY}")
        ]
        cursor = page.next_cursor
        if not cursor:
            return found


async def copy_memories(
    client: RelayerClient, holder: RootHolder, agent: str, new: str
) -> AsyncIterator[Moved]:
    """Copy every live memory of an agent to another one's namespaces; existing memories are not stored again.

    ``new`` is a namespace: another agent's own, or one below it.
    """
    for name in await namespaces_of(client, holder, agent):
        source = holder.person(agent, name)
        target = holder.person(new.partition("/")[0], f"{new}{name.removeprefix(agent)}")
        async with aclosing(client.export(source, ExportRequest())) as memories:
            items = [ImportItem.model_validate(memory.model_dump()) async for memory in memories]
        counts = await send_items(client, target, items, as_backup=True, keep_secrets=True)
        there = counts["stored"] + counts["duplicate"]
        yield Moved(source.namespace, target.namespace, len(items), there)


# A generation cannot be guessed, so that a relayer cannot have asked for its secret before the rotation. 53 bits of a JSON number
# are enough for thousands of rotations.
_STEP = 2**40


async def reseal(
    client: RelayerClient, holder: RootHolder, agent: str, *, only: str | None = None
) -> AsyncIterator[RotateKeysResponse]:
    """Have each namespace of an agent sealed again under a new secret, or ``only`` one of them.

    A rotation that was interrupted is continued. ``shared`` is the agent of the namespaces that belong to none.
    """
    for view in await live_namespaces(client, holder, agent):
        if only not in (None, view.name):
            continue
        generation = view.next_generation or view.generation + 1 + secrets.randbelow(_STEP)
        yield await client.rotate_keys(holder.person(agent, view.name), generation)


_SOON = "Replicas that had it in memory follow within 15 seconds."


@command(keys, "revoke", agent=None)
def keys_revoke(
    run: Run,
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
) -> None:
    """Take back an agent's keys, or one certificate, before their end. It cannot be undone.

    Example: memrelay-gateway keys revoke --agent coder --yes
    """
    if (agent is None) == (certificate is None):
        fail(USAGE, "--agent, --certificate: give one of them", "memrelay-gateway keys revoke --agent NAME")
    context, holder = _owner(run)
    agent_keys: tuple[bytes, ...] = ()
    serials: tuple[bytes, ...] = ()
    shares: list[Share] = []
    if agent is not None:
        name = guarded(lambda: named(agent, shown=True))
        agent_keys = (_public_key(holder, name),)
        shares = _writers(holder, name)
        what = f"the keys of agent {name} ({agent_keys[0].hex()})"
        note = (
            f"Everyone who has them is refused, and so is agent {name} of this gateway with them. To keep its memories under "
            f"other keys:\n  memrelay-gateway keys rotate --agent {typed(name)} --to {typed(name)}-2"
            f"{_warning(shares)}"
        )
    else:
        found = _certificate(holder, certificate or "")
        name, serials = found.agent, (found.serial,)
        what = f"one certificate of agent {name} (serial {found.serial.hex()})"
        note = "Requests with this certificate are refused. The agent's keys stay valid with every other certificate."
    if not yes:
        would = {
            "agent_keys": [key.hex() for key in agent_keys],
            "certificates": [one.hex() for one in serials],
            "shared_for_writing": _rows(shares),
        }
        said = f"would be taken back for good: {what}\n{note}\ndo it: --yes"
        run.tell({"dry_run": True, "agent": name, **would}, said)
        return
    revoked = with_client(
        context.settings, lambda client: revoke(client, holder, name, agent_keys=agent_keys, serials=serials)
    )
    document = {**_document(revoked), "shared_for_writing": _rows(shares)}
    run.tell(document, f"taken back at {context.settings.url}: {what}\n{_SOON}\n{note}")


@command(keys, "revoked", agent=None)
def keys_revoked(run: Run) -> None:
    """List what was taken back at a relayer.

    Example: memrelay-gateway keys revoked
    """
    context, holder = _owner(run)
    revoked = with_client(context.settings, lambda client: fetch(client, holder, OWNER))
    run.json(_document(revoked))
    for key in revoked.agent_keys:
        run.say(f"agent key    {key.hex()}")
    for serial in revoked.serials:
        run.say(f"certificate  {serial.hex()}")
    run.say(f"{len(revoked.agent_keys) + len(revoked.serials)} taken back at {context.settings.url}")


@command(keys, "rotate", agent=None)
def keys_rotate(
    run: Run,
    *,
    agent: Annotated[str, typer.Option("--agent", metavar="OLD", help="Whose keys are not safe any more.")],
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="NEW", help="A name that was not used yet, if the agent's secret leaked."
        ),
    ] = None,
    resealed: Annotated[
        bool,
        typer.Option(
            "--reseal",
            help="Keep the name and the agent's secret; seal its memories again under new namespace secrets.",
        ),
    ] = False,
    yes: YesOption = False,
) -> None:
    """Put an agent's memories under new keys: of a new agent, or new ones of the same. May be repeated after a failure.

    With --to, the agent's keys are taken back and its live memories copied. With --reseal, everything that is stored is sealed
    again and the old keys open nothing.

    Example: memrelay-gateway keys rotate --agent coder --to coder-2 --yes

    Example: memrelay-gateway keys rotate --agent coder --reseal --yes
    """
    if (to is None) != resealed:
        fail(
            USAGE,
            "--to, --reseal: give one of them",
            f"memrelay-gateway keys rotate --agent {agent} --reseal",
        )
    if to is None:
        _reseal(run, guarded(lambda: named(agent, shown=True)), yes=yes)
        return
    old, new = guarded(lambda: (named(agent, shown=True), named(to, shown=True)))
    if old == new:
        fail(USAGE, "--to: another name: an agent's keys come from its name", f"--to {typed(old)}-2")
    if new == DEFAULT_NAME:
        fail(USAGE, "--to: it is the default agent's name", f"--to {typed(old)}-2")
    context, holder = _owner(run)
    names = with_client(context.settings, lambda client: _movable(client, holder, old, new))
    shares = _writers(holder, old)
    if not yes:
        run.tell(
            {
                "dry_run": True,
                "agent": old,
                "to": new,
                "namespaces": names,
                "shared_for_writing": _rows(shares),
            },
            f"would happen at {context.settings.url}:\n  the keys of agent {old} are taken back, for good\n"
            f"  live memories of {', '.join(names) or 'no namespace'} are copied to agent {new}{_warning(shares)}\ndo it: --yes",
        )
        return
    key = _public_key(holder, old)
    with_client(context.settings, lambda client: revoke(client, holder, old, agent_keys=(key,)))
    run.say(f"taken back: the keys of agent {old}")
    copied = with_client(context.settings, lambda client: _moved(client, holder, old, new))
    document = {"agent": old, "to": new, "copied": [asdict(moved) for moved in copied]}
    run.json({**document, "shared_for_writing": _rows(shares)})
    for moved in copied:
        run.say(f"copied: {moved.source} to {moved.target}, {moved.there} of {moved.found} live memories")
    run.say(
        f"Now let the gateway use them, in its settings:\n"
        f'  {{"namespace": {{"renamed": {{"{old}": "{new}"}}}}}}\n'
        f"and when that works, destroy what the old keys still open:"
    )
    for moved in copied:
        if moved.there == moved.found:
            run.say(f"  memrelay-gateway erase --namespace --agent {typed(moved.source)} --yes")
        else:
            run.say(f"  not {moved.source} yet: some of its memories were not copied")
    if shares:
        run.say(_warning(shares).lstrip())


def _reseal(run: Run, agent: str, *, yes: bool) -> None:
    context, holder = _owner(run)
    if not yes:
        names = with_client(context.settings, lambda client: namespaces_of(client, holder, agent))
        run.tell(
            {"dry_run": True, "agent": agent, "namespaces": names},
            f"would happen at {context.settings.url}:\n  everything in {', '.join(names) or 'no namespace'} is sealed again under "
            "new namespace secrets\n  what the old ones open is destroyed\n"
            "writes and recalls of these namespaces wait meanwhile\ndo it: --yes",
        )
        return

    async def work(client: RelayerClient) -> list[RotateKeysResponse]:
        done = []
        async for answer in reseal(client, holder, agent):
            done.append(answer)
            counted = "" if answer.records is None else f": {answer.records} memories, turns and old versions"
            run.say(f"sealed again: {answer.namespace}{counted}")
        return done

    done = with_client(context.settings, work)
    run.json({"agent": agent, "namespaces": [answer.model_dump(mode="json") for answer in done]})
    for answer in done:
        if answer.erasure is not None:
            run.say(
                f"what the old keys open is {answer.erasure.state}; check: memrelay-gateway erasure {answer.erasure.id} "
                f"--agent {typed(answer.namespace)}"
            )
    run.say(f"namespaces of agent {agent} with new keys: {len(done)}; gateways follow by themselves")


async def _movable(client: RelayerClient, holder: RootHolder, old: str, new: str) -> list[str]:
    revoked = await fetch(client, holder, new)
    if _public_key(holder, new) in revoked.agent_keys:
        fail(FAILED, f"--to: the keys of agent {new} were taken back", "choose a name that was not used yet")
    return await namespaces_of(client, holder, old)


async def _moved(client: RelayerClient, holder: RootHolder, old: str, new: str) -> list[Moved]:
    return [moved async for moved in copy_memories(client, holder, old, new)]


def _writers(holder: RootHolder, agent: str) -> list[Share]:
    """Return the shares by which other agents may write to an agent's namespaces."""
    found = guarded(Shares(shares_path(os.environ), holder).all)
    return [one for one in found if one.writes and one.namespace.partition("/")[0] == agent]


def _warning(shares: Sequence[Share]) -> str:
    if not shares:
        return ""
    lines = [
        f"\n  memrelay-gateway unshare {typed(one.namespace)} --with {typed(one.agent)}" for one in shares
    ]
    return f"\nOther agents may write to its namespaces, and the old secret opens what they store there. End that with:{''.join(lines)}"


def _rows(shares: Sequence[Share]) -> list[dict[str, str]]:
    return [{"namespace": typed(one.namespace), "agent": typed(one.agent)} for one in shares]


def _owner(run: Run) -> tuple[CliContext, RootHolder]:
    context = run.context
    return context, root_holder(context, "taking keys back")


def _public_key(holder: RootHolder, agent: str) -> bytes:
    return bytes(holder.root.agent(agent).identity.verify_key)


def _certificate(holder: RootHolder, given: str) -> Certificate:
    text = text_or_file(given)
    try:
        # Accept the whole line that `keys export` prints, too.
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
