"""``memrelay-gateway share``, ``accept`` and ``unshare``: let agents read namespaces in addition to their own.

Agents of the same account need no keys for that. An agent of another account gets an invitation
(`gateway_plugin.keys.invitations`), which its gateway accepts.
"""

from __future__ import annotations

import os
from typing import Annotated, NoReturn

import typer

from gateway_plugin.calls.clock import SystemClock
from gateway_plugin.client import RelayerClient
from gateway_plugin.commands.keys import reseal, revoke
from gateway_plugin.commands.run import (
    Run,
    command,
    days_option,
    guarded,
    root_holder,
    text_or_file,
    with_client,
)
from gateway_plugin.errors import IdentityError, RelayerRefused
from gateway_plugin.keys.identity import OWNER, Identity, RootHolder, invited, named, typed
from gateway_plugin.keys.invitations import Invitation, day_of, parse_agent_key
from gateway_plugin.recall.sharing import Grant, Share, Shares, shared_namespace
from gateway_plugin.setup import shares_path
from relayer.wire.codec import InvalidName
from relayer.wire.command_line import FAILED, USAGE, fail

_Namespace = Annotated[
    str | None,
    typer.Argument(
        metavar="NAMESPACE", help="An agent, NAME/BELOW, or shared/NAME for a namespace without an owner."
    ),
]
_With = Annotated[str | None, typer.Option("--with", metavar="AGENT", help="The agent that gets access.")]
_WithKey = Annotated[
    str | None,
    typer.Option(
        "--with-key",
        metavar="KEY",
        help="The agent of another account that gets access, by its agent_key (keys show).",
    ),
]


@command(agent=None)
def share(
    run: Run,
    namespace: _Namespace = None,
    *,
    reader: _With = None,
    key: _WithKey = None,
    write: Annotated[
        bool, typer.Option("--write", help="Also allow its memory tools to store memories there.")
    ] = False,
    days: Annotated[float, days_option("Validity of an invitation (--with-key).")] = 90,
) -> None:
    """Let an agent's recall find the memories of another namespace, too; without arguments, list what is shared.

    With --with-key, print an invitation for an agent of another account, which its gateway accepts.

    Example: memrelay-gateway share researcher --with coder

    Example: memrelay-gateway share shared/team --with-key 9f86d0... --days 30
    """
    if key is not None:
        _invite(run, _namespace(namespace, reader), key, writes=write, seconds=int(days * 86_400))
        return
    shares = _shares(run)
    if namespace is not None or reader is not None:
        wanted = _parsed(namespace, reader, writes=write)
        changed = guarded(lambda: shares.add(wanted))
        run.say(f"{_told(wanted)}{'' if changed else ' (as before)'}")
    found, grants, accepted = guarded(lambda: (shares.all(), shares.grants(), shares.accepted()))
    run.json(
        {
            "shares": [_row(one) for one in found],
            "invited": [one.model_dump() | {"namespace": typed(one.namespace)} for one in grants],
            "accepted": [_accepted_row(one) for one in accepted],
        }
    )
    if namespace is None:
        lines = [*map(_told, found), *map(_told_of_grant, grants), *map(_told_of_accepted, accepted)]
        for line in lines:
            run.say(line)
        if not lines:
            run.say("no namespaces are shared; share one with: memrelay-gateway share NAMESPACE --with AGENT")


@command()
def accept(
    run: Run,
    invitation: Annotated[
        str, typer.Argument(metavar="TEXT|FILE", help="What `share --with-key` printed on the other gateway.")
    ],
) -> None:
    """Let an agent's recall find the memories of a namespace of another account, which invited it.

    Example: memrelay-gateway accept invitation.txt --agent coder
    """
    context, text = run.context, text_or_file(invitation)
    keys = context.identity.keys
    opened = guarded(lambda: Invitation.open(text, keys))
    identity = invited(keys, opened)
    guarded(lambda: identity.certificate_header(int(SystemClock().now())))
    if identity.account == context.holder.account:
        fail(
            USAGE,
            f"{typed(identity.namespace)} belongs to this gateway's own account",
            f"memrelay-gateway share {typed(identity.namespace)} --with {typed(identity.agent)}",
        )
    with_client(context.settings, lambda client: _check(client, identity, opened))
    guarded(lambda: _shares(run).accept(identity, text))
    run.tell(_accepted_row(identity), _told_of_accepted(identity))


@command(agent=None)
def unshare(
    run: Run,
    namespace: _Namespace = None,
    *,
    reader: _With = None,
    key: _WithKey = None,
    sealed_again: Annotated[
        bool,
        typer.Option(
            "--reseal",
            help="With --with-key: seal the namespace again under a new secret. This ends all invitations to it.",
        ),
    ] = False,
) -> None:
    """End what `share` or `accept` began: from the next recall on the agent finds its own memories alone.

    Example: memrelay-gateway unshare researcher --with coder

    Example: memrelay-gateway unshare shared/team --with-key 9f86d0... --reseal

    Example: memrelay-gateway unshare researcher@0x1a2b3c4d --with coder
    """
    shares = _shares(run)
    if key is not None:
        _withdraw(run, shares, _namespace(namespace, reader), key, sealed_again=sealed_again)
        return
    if sealed_again:
        fail(
            USAGE,
            "--reseal: give --with-key; agents of this account were given no keys",
            "leave --reseal out",
        )
    if namespace is not None and reader is not None and "@" in namespace:
        agent = guarded(lambda: named(reader, shown=True))
        if not guarded(lambda: shares.drop(namespace.strip(), agent)):
            _not_shared(namespace.strip(), typed(agent))
        ended = {"namespace": namespace.strip(), "agent": typed(agent)}
        run.tell({"ended": ended}, f"{typed(agent)} reads {namespace.strip()} no more")
        return
    wanted = _parsed(namespace, reader, writes=False)
    if not guarded(lambda: shares.remove(wanted)):
        _not_shared(typed(wanted.namespace), typed(wanted.agent))
    said = f"{typed(wanted.agent)} reads {typed(wanted.namespace)} no more"
    run.tell({"ended": _row(wanted)}, said)


def _invite(run: Run, namespace: str, key: str, *, writes: bool, seconds: int) -> None:
    holder, shares = root_holder(run.context, "sharing"), _shares(run)
    agent_key = _agent_key(key)
    # Its secret is that of any of the account's identities for the namespace.
    reader = holder.reader(OWNER, namespace, writes=False)
    relayer, own = with_client(run.context.settings, lambda client: _present(client, reader))
    identity = holder.root.account_identity
    now = int(SystemClock().now())
    invitation = Invitation.issue(
        identity,
        agent_key,
        namespace,
        secret=own.namespace_secret,
        generation=own.generation,
        relayer=relayer,
        writes=writes,
        now=now,
        seconds=seconds,
    )
    grant = Grant(
        namespace=namespace,
        agent_key=agent_key.hex(),
        writes=writes,
        until=invitation.certificate.not_after,
        serial=invitation.certificate.serial.hex(),
    )
    # An earlier invitation may grant more, so it ends.
    _revoke(run, holder, _grants_of(shares, namespace, agent_key))
    # The grant is stored before the text is printed, because only a stored one can be ended.
    guarded(lambda: shares.set_grant(namespace, agent_key.hex(), grant))
    text = invitation.sealed(identity)
    run.json(grant.model_dump() | {"namespace": typed(namespace), "invitation": text})
    run.raw(text)
    if not run.as_json:
        hint = f"{_told_of_grant(grant)}. On its gateway: memrelay-gateway accept TEXT --agent NAME"
        typer.echo(hint, err=True)


async def _present(client: RelayerClient, identity: Identity) -> tuple[bytes, Identity]:
    """Return the relayer's identity, and the namespace's with the secret that it is kept under now."""
    relayer = (await client.fleet()).identity
    await client.list_memories(identity, limit=1)
    return relayer, client.present(identity)


async def _check(client: RelayerClient, identity: Identity, invitation: Invitation) -> None:
    """Require that the relayer is the one of the invitation and admits its certificate."""
    relayer = (await client.fleet()).identity
    if relayer != invitation.relayer:
        fail(
            FAILED,
            f"{identity.shown} is stored by another relayer (identity {invitation.relayer.hex()})",
            "use the relayer of the gateway that shares: --url URL, MEMRELAY_URL",
        )
    try:
        await client.list_memories(identity, limit=1)
    except RelayerRefused as error:
        if error.code != "unauthorized":
            raise
        fail(
            FAILED,
            f"the relayer refuses the invitation to {identity.shown}: its owner has ended the share",
            "ask for a new one: memrelay-gateway share NAMESPACE --with-key KEY",
            kind=error.code,
        )


def _withdraw(run: Run, shares: Shares, namespace: str, key: str, *, sealed_again: bool) -> None:
    agent_key = _agent_key(key)
    holder, grants = root_holder(run.context, "sharing"), _grants_of(shares, namespace, agent_key)
    if not grants:
        _not_shared(typed(namespace), agent_key.hex())
    _revoke(run, holder, grants)
    said = f"{agent_key.hex()} reads {typed(namespace)} no more; replicas that had it in memory follow within 15 seconds"
    if sealed_again:
        # The grant stays until this is done, so that the command can be run again.
        with_client(run.context.settings, lambda client: _sealed_again(client, holder, namespace))
        said = f"{said}\n{typed(namespace)} has new keys; invite others again whom it is shared with"
    guarded(lambda: shares.set_grant(namespace, agent_key.hex(), None))
    ended = {"namespace": typed(namespace), "agent_key": agent_key.hex(), "sealed_again": sealed_again}
    run.tell({"ended": ended}, said)


async def _sealed_again(client: RelayerClient, holder: RootHolder, namespace: str) -> None:
    done = [one async for one in reseal(client, holder, namespace.partition("/")[0], only=namespace)]
    if not done:
        # What is written there first would be sealed with the secret that the invitation has.
        fail(
            FAILED,
            f"the share is ended, but {typed(namespace)} stores nothing yet and so cannot get new keys",
            "use another namespace, or run this again when something is stored there",
        )


def _grants_of(shares: Shares, namespace: str, agent_key: bytes) -> list[Grant]:
    grants = guarded(shares.grants)
    return [one for one in grants if (one.namespace, one.agent_key) == (namespace, agent_key.hex())]


def _revoke(run: Run, holder: RootHolder, grants: list[Grant]) -> None:
    serials = [bytes.fromhex(one.serial) for one in grants if one.until > SystemClock().now()]
    if serials:
        with_client(run.context.settings, lambda client: revoke(client, holder, OWNER, serials=serials))


def _shares(run: Run) -> Shares:
    return Shares(shares_path(os.environ), run.context.holder)


def _agent_key(key: str) -> bytes:
    try:
        return parse_agent_key(key)
    except IdentityError as error:
        fail(USAGE, f"--with-key: {error}", "")


def _namespace(namespace: str | None, reader: str | None) -> str:
    if namespace is None or reader is not None:
        fail(
            USAGE,
            "give NAMESPACE and either --with or --with-key",
            "memrelay-gateway share researcher --with-key KEY",
        )
    try:
        return shared_namespace(namespace)
    except InvalidName as error:
        fail(USAGE, f"NAMESPACE: {error}", "memrelay-gateway namespaces lists them")


def _parsed(namespace: str | None, reader: str | None, *, writes: bool) -> Share:
    if namespace is None or reader is None:
        fail(USAGE, "give both NAMESPACE and --with AGENT", "memrelay-gateway share researcher --with coder")
    wanted = _namespace(namespace, None)
    return Share(wanted, guarded(lambda: named(reader, shown=True)), writes)


def _not_shared(namespace: str, reader: str) -> NoReturn:
    fail(USAGE, f"{namespace} is not shared with {reader}", "list the shares with: memrelay-gateway share")


def _row(one: Share) -> dict[str, object]:
    return {"namespace": typed(one.namespace), "agent": typed(one.agent), "writes": one.writes}


def _accepted_row(one: Identity) -> dict[str, object]:
    assert isinstance(one.owner, Invitation)
    return {
        "namespace": one.shown,
        "agent": typed(one.agent),
        "account": one.account,
        "writes": one.owner.writes,
        "until": one.owner.certificate.not_after,
    }


def _told(one: Share) -> str:
    return f"{typed(one.agent)} {_rights(writes=one.writes)} {typed(one.namespace)}"


def _told_of_grant(one: Grant) -> str:
    rights = _rights(writes=one.writes)
    return f"the agent with the key {one.agent_key} {rights} {typed(one.namespace)} until {day_of(one.until)}"


def _told_of_accepted(one: Identity) -> str:
    assert isinstance(one.owner, Invitation)
    rights, until = _rights(writes=one.owner.writes), day_of(one.owner.certificate.not_after)
    return f"{typed(one.agent)} {rights} {one.shown} of account {one.account} until {until}"


def _rights(*, writes: bool) -> str:
    return "may read and write" if writes else "reads"
