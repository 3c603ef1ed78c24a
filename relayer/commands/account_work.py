"""The operator's commands for accounts, ``memrelay account``: list them, set their limits, revoke, export and erase them.

They work on the store, so relayers may be running or not. What they set is kept in the account's own object, which every
relayer reads again within 15 seconds (`relayer.access.accounts`).

A front may store the accounts of its clients under ids that it derives from the ids that the clients know. A command that is
given an id acts on the account with this id and on those with the derived ids.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from relayer.access.accounts import AccountLimits, AccountRules, Accounts, Registration, read_account
from relayer.access.quotas import Usage, count_usage
from relayer.commands import deferred
from relayer.commands.operator_work import Site, store_command
from relayer.domain.namespace import Custody, PointerState
from relayer.errors import ConfigurationError, CorruptNamespace, StoreUnavailable
from relayer.log.erasure import ErasureKind, ErasureReports, ErasureStage, NamespaceEraser, namespace_report
from relayer.log.objects import Layout, LogPorts
from relayer.operator import reports
from relayer.operator.catalogue import (
    RESTORE,
    UNREADABLE,
    Catalogue,
    Defect,
    Listed,
    Progress,
    read_catalogue,
)
from relayer.operator.inspect import read_namespace
from relayer.operator.reports import CommandReport
from relayer.wire.amounts import parse_bytes
from relayer.wire.codec import NotAccepted
from relayer.wire.fields import render_time
from relayer.wire.sealing import is_account_id
from relayer.wire.signing import Revocations

# The seconds after which every relayer has read an account's object again, see `relayer.access.accounts`.
_KNOWN_SECONDS = 15.0
_ATTEMPTS = 5
_ATTEMPT_PAUSE = 0.5
_WIDTH = 200

_Account = Annotated[str, typer.Argument(help="Id of the account, 0x and 64 hex digits.")]


def _size(given: object) -> int:
    try:
        return parse_bytes(str(given))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--bytes'") from None


@dataclass(frozen=True, slots=True)
class _Table(CommandReport):
    """A report that is printed as a table, and its lines after it."""

    table: Table = field(default_factory=Table)

    def text(self) -> str:
        """Return the table and the lines as text."""
        shown = StringIO()
        Console(file=shown, width=_WIDTH, color_system=None).print(self.table)
        rows = [line.rstrip() for line in shown.getvalue().splitlines()]
        # Two arguments, because a class with slots is not the one that `super` without arguments looks for.
        below = ["", CommandReport.text(self)] if self.lines else []
        return "\n".join([*rows, *below])


@dataclass(frozen=True, slots=True)
class _Listing:
    """An account of the store.

    Attributes:
        account: the id under which it is stored.
        created_at: when its object was written first, in ms since the epoch; 0 if that is not known.
        usage: what it stores; None if that cannot be read.
    """

    account: str
    created_at: int
    registration: Registration | None
    rules: AccountRules
    usage: Usage | None

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is known of the account, except perhaps that it is revoked."""
        return self.usage == Usage() and self.registration is None and self.rules.limits is None

    def shown(self, names: dict[str, str]) -> str:
        """Return the id that the account's owner knows; ``names`` has those of derived ids."""
        return self.registration.shown if self.registration else names.get(self.account, self.account)


def checked_account(account: str) -> str:
    """Return an account's id in lower case. Raises `ConfigurationError` if it is none."""
    lower = account.strip().lower()
    if not is_account_id(lower):
        raise ConfigurationError(f"{account}: an account's id is 0x and 64 hex digits")
    return lower


def registration_lines(registration: Registration, *, is_revoked: bool = False) -> list[tuple[str, str]]:
    """Return the lines about the keys that sign for an account."""
    keys = (
        f"{key.key.hex()}  {render_time(key.added_at)}  {key.label}".rstrip() for key in registration.keys
    )
    named = ("account", registration.shown + ("  (revoked)" if is_revoked else ""))
    return [named, *(("key", key) for key in keys)]


def registration_row(registration: Registration, *, is_revoked: bool = False) -> dict[str, Any]:
    """Return the same as `registration_lines` for JSON."""
    keys = [
        {"public_key": key.key.hex(), "label": key.label, "added_at": render_time(key.added_at)}
        for key in registration.keys
    ]
    return {"account": registration.shown, "active": not is_revoked, "keys": keys}


@store_command("counting")
async def list_accounts(site: Site) -> CommandReport:
    """List the accounts of a store: what they store, their own limits, and whether they are revoked.

    Example: memrelay account list

    Example: memrelay account list --json
    """
    ports = site.ports
    catalogue = await read_catalogue(ports)
    findings = list(catalogue.findings)
    listed = []
    for account in site.progress(catalogue.accounts):
        own, rules = await read_account(ports, account)
        try:
            usage: Usage | None = (await count_usage(ports, account)).usage
        except CorruptNamespace:
            usage = None  # the catalogue has a finding about the pointer
        created_at, registration = (own.created_at, own.registration) if own else (0, None)
        listed.append(_Listing(account, created_at, registration, rules, usage))
    listed.sort(key=lambda one: (-(one.usage.bytes if one.usage else 0), one.account))
    names = {derived: one.account for one in listed for derived in _ids(one.account)[1:]}
    listed = [one for one in listed if not (one.account in names and one.is_empty)]
    lines = reports.found(findings)
    for one in listed:
        if one.registration is not None and one.registration.keys:
            lines += registration_lines(one.registration, is_revoked=one.rules.is_revoked)
    row = {"accounts": [_row(one, names) for one in listed], "findings": reports.row_of(findings)}
    if not listed:
        return CommandReport([*lines, ("result", "this store has no account")], row, not findings)
    return _Table(lines, row, not findings, _table(listed, names))


def _table(listed: Sequence[_Listing], names: dict[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="")
    table.add_column("account", no_wrap=True)
    table.add_column("first seen", no_wrap=True)
    for column in ("namespaces", "memories", "bytes"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("own limits")
    table.add_column("revoked", no_wrap=True)
    for one in listed:
        usage = (
            (f"{one.usage.namespaces:,}", f"{one.usage.memories:,}", f"{one.usage.bytes:,}")
            if one.usage
            else ("?", "?", "?")
        )
        since = render_time(one.created_at) if one.created_at else "-"
        revoked = render_time(one.rules.revoked_at) if one.rules.is_revoked else "-"
        table.add_row(one.shown(names), since, *usage, _limits_text(one.rules.limits) or "-", revoked)
    return table


def _row(one: _Listing, names: dict[str, str]) -> dict[str, Any]:
    registered = (
        registration_row(one.registration, is_revoked=one.rules.is_revoked) if one.registration else {}
    )
    return {
        **registered,
        "account": one.shown(names),
        "stored_as": one.account,
        "created_at": render_time(one.created_at) if one.created_at else None,
        "namespaces": one.usage.namespaces if one.usage else None,
        "memories": one.usage.memories if one.usage else None,
        "bytes": one.usage.bytes if one.usage else None,
        **_rules_row(one.rules),
    }


def _rules_row(rules: AccountRules) -> dict[str, Any]:
    return {
        "limits": msgspec.structs.asdict(rules.limits) if rules.limits else None,
        "revoked": rules.is_revoked,
        "revoked_at": render_time(rules.revoked_at) if rules.is_revoked else None,
    }


def _limits_text(limits: AccountLimits | None) -> str:
    values = msgspec.structs.asdict(limits) if limits else {}
    given = ((name, value) for name, value in values.items() if value is not None)
    return ", ".join(f"{value:,} {name}" if value else f"any {name}" for name, value in given)


@store_command("setting limits")
async def limits(
    site: Site,
    account: _Account,
    *,
    max_bytes: Annotated[
        int | None,
        typer.Option("--bytes", parser=_size, metavar="BYTES|20G", help="Bytes it may store; 0: no limit."),
    ] = None,
    max_namespaces: Annotated[
        int | None, typer.Option("--namespaces", min=0, help="Namespaces it may have; 0: no limit.")
    ] = None,
    max_memories: Annotated[
        int | None, typer.Option("--memories", min=0, help="Memories it may store; 0: no limit.")
    ] = None,
    default: Annotated[bool, typer.Option("--default", help="Remove the account's own limits.")] = False,
) -> CommandReport:
    """Set an account's own limits, or show them; relayers apply them within 15 seconds.

    Example: memrelay account limits ID --bytes 20G --memories 0

    Example: memrelay account limits ID --default
    """
    name = checked_account(account)
    asked = {"bytes": max_bytes, "namespaces": max_namespaces, "memories": max_memories}
    given = {limit: value for limit, value in asked.items() if value is not None}
    if given and default:
        raise ConfigurationError("--default: removes all own limits; give it without --bytes and the like")

    def change(rules: AccountRules) -> AccountRules:
        own = None if default else msgspec.structs.replace(rules.limits or AccountLimits(), **given)
        return msgspec.structs.replace(rules, limits=own)

    catalogue = await read_catalogue(site.ports)
    stored = [one for one in _ids(name) if one in catalogue.accounts]
    if given or default:
        accounts = accounts_at(site.ports)
        rules = [await accounts.set_rules(one, change) for one in stored or [name]]
    else:
        rules = [(await read_account(site.ports, one))[1] for one in stored]
    shown = max(rules, key=lambda one: one.counter, default=AccountRules())
    lines = [("account", name), ("limits", _limits_text(shown.limits) or "those of the relayers' settings")]
    if not stored:
        lines.append(("note", "this store has nothing else of the account"))
    return CommandReport(lines, {"account": name, "known": bool(stored), **_rules_row(shown)})


@store_command("revoking")
async def revoke(
    site: Site,
    account: _Account,
    *,
    undo: Annotated[bool, typer.Option("--undo", help="Lift the revocation.")] = False,
) -> CommandReport:
    """Refuse all requests of an account until it is undone; running relayers do so within 15 seconds.

    Example: memrelay account revoke ID

    Example: memrelay account revoke ID --undo
    """
    return await set_revoked(site, checked_account(account), undo=undo)


async def set_revoked(site: Site, account: str, *, undo: bool) -> CommandReport:
    """Revoke a whole account, or lift that, and return the report."""
    catalogue = await read_catalogue(site.ports)
    stored = [one for one in _ids(account) if one in catalogue.accounts]
    # An account that is refused is refused under its derived ids as well, even those that it has not used yet.
    chosen = stored if undo else _ids(account)
    now = 0 if undo else site.ports.clock.now_ms()
    rules = [await _set_revoked(site.ports, one, now) for one in chosen]
    shown = max(rules, key=lambda one: one.revoked_at, default=AccountRules())
    lines = [("account", account + ("  (revoked)" if shown.is_revoked else ""))]
    if not stored:
        lines.append(("note", "this store has nothing else of the account"))
    lines.append(("result", f"every relayer {'admits' if undo else 'refuses'} it within 15 seconds"))
    return CommandReport(lines, {"account": account, "known": bool(stored), **_rules_row(shown)})


async def _set_revoked(ports: LogPorts, account: str, now: int) -> AccountRules:
    """Revoke an account at a time in ms, unless it is revoked already; 0 lifts the revocation."""

    def change(rules: AccountRules) -> AccountRules:
        return msgspec.structs.replace(rules, revoked_at=(rules.revoked_at or now) if now else 0)

    return await accounts_at(ports).set_rules(account, change)


def _stored_as(account: str, catalogue: Catalogue) -> list[str]:
    """Return the ids under which a store has an account; raises `ConfigurationError` if it has none."""
    stored = [one for one in _ids(account) if one in catalogue.accounts]
    if not stored:
        raise ConfigurationError(
            f"{account}: this store has no such account; memrelay account list shows them"
        )
    return stored


@store_command("exporting")
async def export(
    site: Site,
    account: _Account,
    *,
    out: Annotated[Path, typer.Option("--out", help="File to write, which must not exist yet.")],
) -> CommandReport:
    """Write to a file what this store can show of an account without the keys of its agents.

    The lines are JSON. Texts of memories are included only for namespaces of custody relayer. Exit code 1: some objects could not be read.

    Example: memrelay account export ID --out account.jsonl
    """
    name = checked_account(account)
    catalogue = await read_catalogue(site.ports)
    stored = _stored_as(name, catalogue)
    chosen = [listed for listed in catalogue.namespaces if listed.account in stored]
    tags = [site.ports.keys.tag("account", one) for one in stored]
    own = tuple(of(tag) for tag in tags for of in (Layout.pointers, Layout.account, Layout.revoked))
    findings = [finding for finding in catalogue.findings if finding.key.startswith(own)]
    counts = {"namespaces": 0, "memories": 0, "turns": 0, "sealed_namespaces": 0}
    with _new_file(out) as file:
        for one in stored:
            _write(file, {"type": "account", **await _account_row(site.ports, one, name)})
        for listed in site.progress(chosen):
            space = await read_namespace(site.ports, listed)
            findings += space.findings
            _write(file, {"type": "namespace", **space.row})
            for row in space.memories:
                _write(file, row)
                counts["turns" if row["type"] == "turn" else "memories"] += 1
            counts["namespaces"] += 1
            counts["sealed_namespaces"] += listed.live and listed.pointer.custody is Custody.AGENT
        _write(file, {"type": "end", **counts, "findings": len(findings)})
    lines = [
        *reports.found(findings),
        ("account", name),
        ("written", f"{out}: {counts['namespaces']} namespaces, {counts['memories']:,} memories"),
    ]
    if counts["sealed_namespaces"]:
        sealed = (
            f"{counts['sealed_namespaces']} namespaces of custody agent: only their gateway can read them"
        )
        lines.append(("left out", f"texts of {sealed} (memrelay-gateway export)"))
    row = {"account": name, "file": str(out), **counts, "findings": reports.row_of(findings)}
    return CommandReport(lines, row, not findings)


async def _account_row(ports: LogPorts, stored_as: str, account: str) -> dict[str, Any]:
    own, rules = await read_account(ports, stored_as)
    try:
        revoked = Revocations.verify(own.revocations) if own and own.revocations else None
    except NotAccepted:
        revoked = None  # the catalogue has a finding about the object
    registered = own and own.registration
    return {
        **(registration_row(registered, is_revoked=rules.is_revoked) if registered else {}),
        "account": registered.shown if registered else account,
        "stored_as": stored_as,
        "created_at": render_time(own.created_at) if own and own.created_at else None,
        **_rules_row(rules),
        "revoked_agent_keys": [key.hex() for key in revoked.agent_keys] if revoked else [],
        "revoked_certificates": [serial.hex() for serial in revoked.serials] if revoked else [],
    }


def _write(file: IO[str], row: dict[str, Any]) -> None:
    file.write(json.dumps(row, ensure_ascii=False) + "\n")


@contextmanager
def _new_file(path: Path) -> Iterator[IO[str]]:
    """Create a file that only this user may read. It appears when the block has ended without an error, and replaces none.

    Raises:
        ConfigurationError: the file exists already, or cannot be written.
    """
    there = ConfigurationError(f"--out: {path} exists already: give the name of a new file")
    if path.exists():
        raise there
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            path.hardlink_to(draft)
        finally:
            draft.unlink()
    except FileExistsError:
        raise there from None
    except OSError as error:
        raise ConfigurationError(f"--out: {path} cannot be written ({error.strerror})") from error


@store_command("erasing")
async def erase(
    site: Site,
    account: _Account,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Erase without a question.")] = False,
) -> CommandReport:
    """Revoke an account and erase all of its namespaces, permanently. Run it again after an interruption.

    Give --collect-after and --commit-check as all relayers of this store have them. Exit code 1: some namespaces could not be erased.

    Example: memrelay account erase ID
    """
    name = checked_account(account)
    catalogue = await read_catalogue(site.ports)
    stored = _stored_as(name, catalogue)
    eraser = _AccountEraser(site, stored)
    there = len(eraser.namespaces_of(catalogue))
    if not yes:
        asked = f"Erase {there} namespaces of account {name} permanently, and refuse the account from now on?"
        await asyncio.to_thread(partial(typer.confirm, asked, abort=True, err=True))
    now = site.ports.clock.now_ms()
    rules = [await _set_revoked(site.ports, one, now) for one in _ids(name)]
    await eraser.run(catalogue, site.progress)
    # A relayer may admit the account for a few seconds more, so what it has written until then is erased after them.
    revoked_at = max(one.revoked_at for one in rules)
    elapsed = (site.ports.clock.now_ms() - revoked_at) / 1000
    wait = min(max(0.0, _KNOWN_SECONDS - elapsed), _KNOWN_SECONDS)
    steps = range(math.ceil(wait))
    for _ in site.progress(steps):
        await site.ports.clock.sleep(wait / len(steps))
    await eraser.run(await read_catalogue(site.ports), site.progress)
    return await eraser.report(name, revoked_at)


class _AccountEraser:
    """Erases the namespaces of accounts, and counts what was deleted and what is left."""

    def __init__(self, site: Site, accounts: Sequence[str]) -> None:
        self._ports = site.ports
        self._accounts = frozenset(accounts)
        self._tags = [site.ports.keys.tag("account", account) for account in accounts]
        self._grace = site.settings.collect_after
        self._eraser = NamespaceEraser(site.ports, int(self._grace * 1000))
        self._reports = ErasureReports(site.ports)
        self._begun: set[bytes] = set()
        self._deleted = 0
        self._findings: dict[str, Defect] = {}

    def namespaces_of(self, catalogue: Catalogue) -> list[Listed]:
        """Return the namespaces that are not erased yet."""
        return [
            listed
            for listed in catalogue.namespaces
            if listed.account in self._accounts and listed.pointer.state is not PointerState.ERASED
        ]

    async def run(self, catalogue: Catalogue, progress: Progress) -> None:
        """Erase the namespaces of a catalogue, and continue erasures that were begun, as far as possible without waiting."""
        pointers = tuple(Layout.pointers(tag) for tag in self._tags)
        self._findings |= {
            finding.key: finding for finding in catalogue.findings if finding.key.startswith(pointers)
        }
        for listed in progress(self.namespaces_of(catalogue)):
            report = namespace_report(listed.account, listed.pointer, self._ports.clock.now_ms())
            await self._erase(listed.key, partial(self._reports.begin, report))
        for key in await self._pending():
            await self._erase(key, partial(self._reports.read, key))

    async def report(self, account: str, revoked_at: int) -> CommandReport:
        """Return the report of the command, after counting what is left."""
        left = waiting = 0
        for key in await self._pending():
            try:
                seen = await self._reports.read(key)
            except UNREADABLE:
                continue
            if seen is None or seen.report.what is ErasureKind.MEMORY:
                continue
            if seen.report.stage is not ErasureStage.CONFIRMED:
                keys = await self._ports.keys_below(Layout.incarnation(seen.report.incarnation))
                left, waiting = left + len(keys), waiting + 1
        findings = list(self._findings.values())
        lines = [
            *reports.found(findings),
            ("account", f"{account}  (revoked)"),
            ("erased", f"{len(self._begun)} namespaces, {self._deleted:,} objects deleted"),
        ]
        if waiting:
            waits = f"{left:,} objects of {waiting} namespaces, which no key opens any more"
            lines.append(("left", f"{waits}: a relayer deletes them {self._grace:.0f} s after the"))
            lines.append(("", "erasure, or this command if it is run again then"))
        else:
            lines.append(("left", "nothing but the record that the account is revoked"))
        row = {
            "account": account,
            "revoked_at": render_time(revoked_at),
            "namespaces": len(self._begun),
            "deleted_objects": self._deleted,
            "left_objects": left,
            "waiting_namespaces": waiting,
            "findings": reports.row_of(findings),
        }
        return CommandReport(lines, row, not findings)

    async def _erase(self, key: str, read: Callable[[], Any]) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                seen = await read()
                if seen is None or seen.report.what is ErasureKind.MEMORY:
                    return
                before = seen.report.destroyed
                seen = await self._eraser.run(seen)
            except UNREADABLE as error:
                self._findings[key] = Defect.from_error(error, key, RESTORE)
                return
            except StoreUnavailable:
                # A relayer may be at the same erasure. It is read again, and continued from there.
                if attempt == _ATTEMPTS - 1:
                    raise
                await self._ports.clock.sleep(_ATTEMPT_PAUSE)
            else:
                self._begun.add(seen.report.incarnation)
                self._deleted += max(0, seen.report.destroyed - before)
                self._findings.pop(key, None)
                return

    async def _pending(self) -> list[str]:
        """Return the keys of the reports of the accounts' erasures that are not confirmed."""
        return [
            key for tag in self._tags for key in await self._ports.keys_below(f"{Layout.erasing()}{tag}/")
        ]


def _ids(account: str) -> list[str]:
    """Return the ids under which a store may have an account: its own, and those that fronts derive from it."""
    derived = []
    for where in deferred.DERIVED_ACCOUNT_IDS:
        module, _, function = where.partition(":")
        derived.append(getattr(import_module(module), function)(account))
    return [account, *derived]


def accounts_at(ports: LogPorts) -> Accounts:
    """Return the accounts of a store. An operator's are not newcomers, so the limits of open relayers do not apply."""
    return Accounts(ports, served=frozenset())
