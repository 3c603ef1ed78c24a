"""Accounts: which ones this relayer serves, and which keys and certificates they have revoked.

An account is created with the first object that is stored for it, a namespace or a list of revocations. It is one small
sealed object, under a name that reveals nothing without the relayer's key. The object contains the account's list of
revocations as the account signed it, so the relayer cannot forge one.

The object also contains the rules that the relayer's operator has set for the account: whether it is revoked as a whole, and
its own limits. The rules are counted, and only a process with the relayer's key can write them.

A second object has a copy of the list and of the rules, and the newer of the two counts. So a revocation cannot be undone by
restoring or deleting one of them. If an account's own object is missing while other objects of the account exist, no certificate of the
account is accepted.

`Principal` and `Access` describe the accepted request. `Accounts` admits certificates and stores revocations, with a cache
of at most 15 seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
from cachetools import LRUCache

from relayer.access.store_keys import create_or_read, holds_any
from relayer.crypto import RelayerKeys
from relayer.domain.namespace import Custody
from relayer.domain.operations import Origin
from relayer.errors import (
    AccountLost,
    CorruptNamespace,
    RateLimited,
    Refused,
    StoreError,
    StoreUnavailable,
    UpgradeRequired,
)
from relayer.lib.work import Buckets, Limit, take
from relayer.log.objects import Layout, LogPorts
from relayer.ports import Absent, Created, Found, GetOutcome, Swapped, Unchanged
from relayer.wire.codec import NotAccepted, UnsealError
from relayer.wire.sealing import SALT_SIZE, ObjectType, context, seal, unseal
from relayer.wire.signing import Certificate, Revocations, Right

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Principal:
    """An agent whose certificate and signature were accepted.

    Attributes:
        nonce: the signature's nonce. Together with the signing key and ``expires`` it identifies a write, so that a write
            that is sent twice is applied once (I7).
        expires: when the signature expires, in ms since the epoch.
        body_digest: SHA-256 of the request's body.
        peer: the name under which the client's machine is counted for limits; empty if it is not counted.
    """

    certificate: Certificate
    nonce: bytes
    expires: int
    body_digest: bytes
    peer: str = ""

    @property
    def account(self) -> str:
        """The account's id."""
        return self.certificate.account

    @property
    def author(self) -> bytes:
        """The agent's public signing key."""
        return self.certificate.agent_key

    def may(self, namespace: str, right: Right) -> bool:
        """Return whether the certificate grants a right on a namespace."""
        return self.certificate.allows(namespace, right)


@dataclass(frozen=True, slots=True)
class Access:
    """The access of a principal to one namespace, after its right was checked.

    Attributes:
        custody: who keeps the secret.
        key_not_after: the time until which the relayer may hold the secret, in ms since the epoch.
        secret: the namespace secret, from the sealed key, or derived for custody ``relayer``.
    """

    principal: Principal
    namespace: str
    generation: int
    custody: Custody
    key_not_after: int
    secret: bytes = field(repr=False)

    @property
    def account(self) -> str:
        """The account's id."""
        return self.principal.account

    def origin(self, index: int = 0) -> Origin:
        """Return the origin of this request's operation with an index."""
        principal = self.principal
        return Origin(principal.author, principal.nonce, index, principal.expires)


_FORMAT = 1
_FRESH_SECONDS = 15.0
_PATIENCE_SECONDS = 300.0
_MOST_KNOWN = 10_000
_SWAPS = 5
_LOST = (
    "the object of this account is gone, and its memories are there: its operator puts it back (memrelay repair, or a "
    "backup), or its owner sends the list of revocations again (memrelay-gateway keys revoke)"
)


@dataclass(frozen=True, slots=True)
class AccountCaps:
    """The limits of ``accounts = open``: accounts in total, and new ones for each peer address and hour (0: no limit)."""

    total: int = 10_000
    per_address_and_hour: int = 20


class DelegateKey(msgspec.Struct, frozen=True, array_like=True):
    """A key of 32 bytes that signs for a registered account; ``added_at`` is in ms."""

    key: bytes
    label: str = ""
    added_at: int = 0


class Registration(msgspec.Struct, frozen=True, array_like=True):
    """The registration of an account whose clients sign without certificates.

    Attributes:
        shown: the account id that those clients use.
    """

    shown: str
    keys: tuple[DelegateKey, ...] = ()

    def admits(self, key: bytes) -> bool:
        """Return whether a key signs for the account now."""
        return any(one.key == key for one in self.keys)


class AccountLimits(msgspec.Struct, frozen=True, array_like=True):
    """An account's own limits; 0 is no limit, and None leaves a limit to the settings of each relayer process."""

    bytes: int | None = None
    namespaces: int | None = None
    memories: int | None = None


class AccountRules(msgspec.Struct, frozen=True, array_like=True):
    """The settings of an account that the relayer's operator makes.

    Attributes:
        counter: increased by each change, so that an older copy is recognised; 0 if nothing was ever set.
        revoked_at: when the whole account was revoked, in ms since the epoch; 0 if it is not revoked.
        limits: the account's own limits; None if it has none.
    """

    counter: int = 0
    revoked_at: int = 0
    limits: AccountLimits | None = None

    @property
    def is_revoked(self) -> bool:
        """Return whether every request of the account is refused."""
        return self.revoked_at > 0


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    format: int
    account: str
    created_at: int
    revocations: bytes = b""
    registration: Registration | None = None
    rules: AccountRules | None = None


@dataclass(frozen=True, slots=True)
class AccountRecord:
    """The content of an account's object, see `record_at`.

    ``created_at`` is in ms since the epoch; ``revocations`` is the list as the account signed it, empty if there is none.
    """

    account: str
    created_at: int
    registration: Registration | None
    rules: AccountRules
    revocations: bytes


@dataclass(slots=True)
class _KnownAccount:
    """The cached state of an account.

    Attributes:
        stored: the account's object; None if none was seen.
        read_at: when it was last read; monotonic, in seconds.
        revocations: the newest list of revocations that was seen.
        counter: the counter of that list; -1 if there is none.
        second_counter: the counter of the list in the second object; -1 if there is none.
        rules: the newest rules of the operator that were seen.
        second_rules: the counter of the rules in the second object; 0 if there are none.
    """

    stored: _Stored | None = None
    etag: str = ""
    read_at: float = float("-inf")
    revocations: bytes = b""
    counter: int = -1
    second_counter: int = -1
    agent_keys: frozenset[bytes] = frozenset()
    serials: frozenset[bytes] = frozenset()
    rules: AccountRules = field(default_factory=AccountRules)
    second_rules: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def second_is_older(self) -> bool:
        """Return whether the second object lacks the newest list of revocations, or the newest rules."""
        return self.second_counter < self.counter or self.second_rules < self.rules.counter

    @property
    def refusals(self) -> tuple[int, bool]:
        """The counter of the revocations, and whether the whole account is revoked."""
        return self.counter, self.rules.is_revoked


class Accounts:
    """Admits certificates and stores revocations, with a cache of the accounts of this process.

    Args:
        served: the ids of the accounts that are served; None for all accounts, up to ``caps``.

    Attributes:
        on_revoked: called with an account when this process sees a new list of revocations of it, or that the whole account
            was revoked, so that keys that it holds are dropped.
    """

    def __init__(
        self, ports: LogPorts, *, served: frozenset[str] | None = None, caps: AccountCaps | None = None
    ) -> None:
        self._ports = ports
        self._clock = ports.clock
        self._served = served
        self._caps = caps or AccountCaps()
        self.on_revoked: Callable[[str], Awaitable[None]] | None = None
        self._known: LRUCache[str, _KnownAccount] = LRUCache(_MOST_KNOWN)
        hourly = float(self._caps.per_address_and_hour)
        self._newcomers = Buckets(Limit(hourly, hourly / 3600))
        # The number of accounts; None until they have been counted.
        self._total: int | None = None

    def serves(self, account: str) -> bool:
        """Return whether an account is served at all; does not read the store."""
        return self._served is None or account in self._served

    def knows(self, account: str) -> bool:
        """Return whether this process has seen the account's object."""
        known = self._known.get(account)
        return known is not None and known.stored is not None

    def admits_now(self, certificate: Certificate) -> bool:
        """Return whether the cached state admits a certificate; if not, `admit` has to read the store or refuse."""
        account = certificate.account
        known = self._known.get(account)
        return (
            known is not None
            and known.stored is not None
            and self.serves(account)
            and self._age(known) < _FRESH_SECONDS
            and not _revoked(known, certificate)
            and not known.rules.is_revoked
        )

    async def admit(self, certificate: Certificate, *, revokes: bool = False) -> None:
        """Check a certificate against a list of revocations that is at most 15 seconds old.

        While the store does not respond, a list read in the last five minutes is used; after that, no certificate is
        admitted. ``revokes`` says that the request only reads or replaces the list of revocations. It is admitted even if the
        account's object is lost, because sending the list again restores the object.

        Raises:
            NotAccepted: ``account_not_served``, ``revoked``, or ``account_revoked`` if the operator revoked the whole account.
            AccountLost: the account's object is missing.
            StoreError: the store does not respond, and the cached state is too old.
        """
        account = certificate.account
        if not self.serves(account):
            raise NotAccepted("account_not_served")
        known = self._entry(account)
        if self._age(known) >= _FRESH_SECONDS:
            try:
                await self._refresh(account, known)
            except AccountLost:
                if not revokes:
                    raise
        if _revoked(known, certificate):
            raise NotAccepted("revoked")
        if known.rules.is_revoked:
            raise NotAccepted("account_revoked")

    async def make(self, account: str, address: str = "") -> bool:
        """Create an account if it does not exist, before anything is stored for it.

        ``address`` is the peer's, from `relayer.http.limits.peer_name`, for the hourly limit; empty for no limit.

        Returns:
            Whether this call created it.

        Raises:
            NotAccepted: ``accounts_full``.
            RateLimited: the peer has created as many accounts in the last hour as it may.
            StoreError: the store does not respond.
        """
        known = self._entry(account)
        return known.stored is None and await self._create(account, known, address)

    async def revocations(self, account: str) -> bytes:
        """Return the current list of revocations, as the account signed it; empty if there is none.

        Raises:
            StoreError: the store does not respond.
        """
        known = self._entry(account)
        with suppress(AccountLost):
            await self._refresh(account, known, force=True)
        return known.revocations

    async def revoke(self, encoded: bytes, *, account: str, address: str = "") -> Revocations:
        """Store a newer list of revocations. It takes effect immediately in this process.

        Raises:
            Refused: ``revocations_invalid`` (not a list that this account signed) or ``stale_counter``.
            NotAccepted, RateLimited: as `make`, if the account does not exist yet.
            StoreError: the store does not respond.
        """
        try:
            revocations = Revocations.verify(encoded)
        except NotAccepted as error:
            raise Refused("revocations_invalid", "this is not a list that an account signed") from error
        if revocations.account != account:
            raise Refused("revocations_invalid", "this list is another account's")
        known = self._entry(account)
        for _ in range(_SWAPS):
            with suppress(AccountLost):
                await self._refresh(account, known, force=True)
            if revocations.counter <= known.counter and encoded != known.revocations:
                raise Refused("stale_counter", f"give a counter above {known.counter}")
            before = known.refusals
            try:
                if known.stored is None:
                    await self._create(account, known, address, encoded)
                # The second object is written last, so it is newer only if the first one was restored from an older copy.
                if await self._put(account, known, encoded) and await self._put_beside(account, known):
                    return revocations
            finally:
                # Revocations that this process knows of take effect here, even if the store failed afterwards.
                await self._learnt(account, known, before)
            await self._clock.sleep(0.2)
        raise StoreUnavailable("the account's object could not be changed")

    async def registration(self, account: str) -> Registration | None:
        """Return an account's registration, at most 15 seconds old; None if it is not registered or does not exist.

        Raises:
            AccountLost: the account's object is missing.
            StoreError: the store does not respond, and the cached state is too old.
        """
        known = self._entry(account)
        if self._age(known) >= _FRESH_SECONDS:
            await self._refresh(account, known)
        return None if known.stored is None else known.stored.registration

    async def register(
        self, account: str, change: Callable[[Registration | None], Registration]
    ) -> Registration:
        """Replace an account's registration by the result of ``change``; other relayers see it within 15 seconds.

        Raises:
            AccountLost: the account's object is missing.
            StoreError: the store does not respond.
        """

        async def attempt(known: _KnownAccount, stored: _Stored) -> Registration | None:
            new = change(stored.registration)
            updated = msgspec.structs.replace(stored, registration=new)
            return new if await self._swap(account, known, updated) else None

        return await self._changed(account, attempt)

    def rules_of(self, account: str) -> AccountRules:
        """Return the operator's rules of an account as this process last saw them; does not read the store.

        They are at most 15 seconds old while requests of the account are admitted.
        """
        known = self._known.get(account)
        return AccountRules() if known is None else known.rules

    async def set_rules(self, account: str, change: Callable[[AccountRules], AccountRules]) -> AccountRules:
        """Replace the operator's rules of an account by the result of ``change``; all relayers see it within 15 seconds.

        The account is created if it does not exist. The result gets the next counter.

        Raises:
            AccountLost: the account's object is missing.
            StoreError: the store does not respond.
        """

        async def attempt(known: _KnownAccount, stored: _Stored) -> AccountRules | None:
            before = known.refusals
            new = msgspec.structs.replace(change(known.rules), counter=known.rules.counter + 1)
            updated = msgspec.structs.replace(stored, revocations=known.revocations, rules=new)
            try:
                done = await self._swap(account, known, updated) and await self._put_beside(account, known)
            finally:
                await self._learnt(account, known, before)
            return new if done else None

        return await self._changed(account, attempt)

    async def _changed(
        self, account: str, attempt: Callable[[_KnownAccount, _Stored], Awaitable[T | None]]
    ) -> T:
        """Read an account, create it if it does not exist, and change it; repeat that until ``attempt`` returns something."""
        known = self._entry(account)
        for _ in range(_SWAPS):
            await self._refresh(account, known, force=True)
            await self._create(account, known, "")
            if known.stored is not None:
                changed = await attempt(known, known.stored)
                if changed is not None:
                    return changed
            await self._clock.sleep(0.2)
        raise StoreUnavailable("the account's object could not be changed")

    async def mend(self, account: str) -> None:
        """Create the account's object again from the newest list of revocations, and the newest rules, that still exist.

        Only an operator does this, while no relayer is running.

        Raises:
            CorruptNamespace: one of its objects exists and cannot be decrypted.
            StoreError: the store did not respond, or another process wrote the object; calling this again is safe.
        """
        known = self._entry(account)
        with suppress(AccountLost):
            await self._refresh(account, known, force=True)
        await self._create(account, known, "", known.revocations)
        if not await self._put(account, known, known.revocations):
            raise StoreUnavailable("the account's object could not be changed")

    async def _put(self, account: str, known: _KnownAccount, encoded: bytes) -> bool:
        """Write a list, and the newest rules, into the account's object; return False if that has to be retried."""
        if known.stored is None:
            return False
        updated = msgspec.structs.replace(known.stored, revocations=encoded, rules=_set(known.rules))
        return updated == known.stored or await self._swap(account, known, updated)

    async def _swap(self, account: str, known: _KnownAccount, updated: _Stored) -> bool:
        key = self._key(account)
        outcome = await self._ports.store.swap(key, self._seal(key, updated), known.etag)
        if isinstance(outcome, Swapped):
            self._take(known, updated, outcome.etag)
        return isinstance(outcome, Swapped)

    async def _put_beside(self, account: str, known: _KnownAccount) -> bool:
        """Write the newest list and rules into the second object unless they are there; return False to have it retried."""
        key = self._key_beside(account)
        found = await self._read_beside(account, known)
        if not known.second_is_older:
            return True
        copied = _Stored(_FORMAT, account, self._clock.now_ms(), known.revocations, rules=_set(known.rules))
        data = self._seal(key, copied)
        store = self._ports.store
        if isinstance(found, Found):
            return isinstance(await store.swap(key, data, found.etag), Swapped)
        return isinstance(await store.create(key, data), Created)

    async def _learnt(self, account: str, known: _KnownAccount, before: tuple[int, bool]) -> None:
        counter, was_revoked = before
        is_new = known.counter > counter or (known.rules.is_revoked and not was_revoked)
        if is_new and self.on_revoked is not None:
            await self.on_revoked(account)

    def _entry(self, account: str) -> _KnownAccount:
        return self._known.setdefault(account, _KnownAccount())

    def _age(self, known: _KnownAccount) -> float:
        return self._clock.monotonic() - known.read_at

    async def _refresh(self, account: str, known: _KnownAccount, *, force: bool = False) -> None:
        before = known.refusals
        try:
            await self._look(account, known, force=force)
        finally:
            await self._learnt(account, known, before)

    async def _look(self, account: str, known: _KnownAccount, *, force: bool) -> None:
        async with known.lock:
            if not force and self._age(known) < _FRESH_SECONDS:
                return
            asked_at = self._clock.monotonic()
            try:
                found = await self._read(account, known)
            except StoreUnavailable:
                if force or self._age(known) >= _PATIENCE_SECONDS:
                    raise
                return
            if isinstance(found, Found):
                self._take(known, self._open(self._key(account), account, found.data), found.etag)
                if known.second_is_older and known.read_at == float("-inf"):
                    # The second object is missing or old. If writing it fails now, the next change writes it.
                    with suppress(StoreError):
                        await self._put_beside(account, known)
            elif not isinstance(found, Unchanged | Absent):
                raise StoreUnavailable("the account's object could not be read")
            known.read_at = asked_at

    async def _read(self, account: str, known: _KnownAccount) -> GetOutcome:
        """Read the account's object; if none was seen yet, also check whether other objects show that it was lost."""
        store, place = self._ports.store, self._key(account)
        found = await store.get(place, if_none_match=known.etag or None)
        if known.stored is None:
            await self._read_beside(account, known)
        folder = place.removesuffix("account")
        # An account that was seen before, or has other objects, is not new.
        if isinstance(found, Absent) and (known.stored is not None or await holds_any(store, folder)):
            # Another replica may have created it between the two reads.
            found = await store.get(place)
            if isinstance(found, Absent):
                raise AccountLost(_LOST)
        return found

    async def _read_beside(self, account: str, known: _KnownAccount) -> GetOutcome:
        key = self._key_beside(account)
        found = await self._ports.store.get(key)
        if isinstance(found, Found):
            stored = self._open(key, account, found.data)
            known.second_counter = self._learn(known, stored.revocations)
            known.second_rules = _learn_rules(known, stored)
        return found

    def _take(self, known: _KnownAccount, stored: _Stored, etag: str) -> None:
        self._learn(known, stored.revocations)
        _learn_rules(known, stored)
        known.stored, known.etag = stored, etag

    def _learn(self, known: _KnownAccount, encoded: bytes) -> int:
        """Adopt a list of revocations unless a newer one is cached; return its counter, -1 if there is no list."""
        if not encoded:
            return -1
        try:
            revocations = Revocations.verify(encoded)
        except NotAccepted as error:
            raise CorruptNamespace("an account's revocations are not signed") from error
        if revocations.counter > known.counter:
            known.revocations, known.counter = encoded, revocations.counter
            known.agent_keys = frozenset(revocations.agent_keys)
            known.serials = frozenset(revocations.serials)
        return revocations.counter

    async def _create(
        self, account: str, known: _KnownAccount, address: str, revocations: bytes = b""
    ) -> bool:
        async with known.lock:
            if known.stored is not None:
                return False
            now = self._clock.monotonic()
            if self._served is None:
                # Both limits are charged before the account is created, and released if that fails, so that concurrent
                # requests do not all see the same remaining capacity.
                if self._total is None:
                    listing = self._ports.store.list("acct/")
                    self._total = len([info async for info in listing if info.key.endswith("/account")])
                if self._total >= self._caps.total:
                    raise NotAccepted("accounts_full")
                if self._counts(address) and (wait := take(((self._newcomers, address),), 1.0, now)):
                    raise RateLimited("this address made as many accounts as it may", retry_after=wait)
                self._add_to_total(1)
            made = False
            try:
                key = self._key(account)
                # The second object may have rules although this one is lost.
                stored = _Stored(_FORMAT, account, self._clock.now_ms(), revocations, rules=_set(known.rules))
                fresh = self._seal(key, stored)
                found = await create_or_read(self._ports, key, fresh)
                self._take(known, self._open(key, account, found.data), found.etag)
                known.read_at = now
                made = found.data == fresh
            finally:
                if not made and self._served is None:
                    self._add_to_total(-1)
                    if self._counts(address):
                        self._newcomers.spend(address, -1.0, self._clock.monotonic())
            return made

    def _counts(self, address: str) -> bool:
        return bool(address and self._caps.per_address_and_hour)

    def _add_to_total(self, accounts: int) -> None:
        if self._total is not None:
            self._total = max(0, self._total + accounts)

    def _key(self, account: str) -> str:
        return Layout.account(self._ports.keys.tag("account", account))

    def _key_beside(self, account: str) -> str:
        return Layout.revoked(self._ports.keys.tag("account", account))

    def _seal(self, key: str, stored: _Stored) -> bytes:
        return seal(
            self._ports.keys.metadata,
            ObjectType.ACCOUNT,
            _place_of(key),
            msgspec.msgpack.encode(stored),
            salt=self._ports.randomness.bytes(SALT_SIZE),
        )

    def _open(self, key: str, account: str, data: bytes) -> _Stored:
        stored = _open(self._ports.keys, key, data)
        if stored.account != account:
            raise CorruptNamespace("an account's object is another account's")
        return stored


def account_at(keys: RelayerKeys, key: str, data: bytes) -> str:
    """Return the id of the account to which an object belongs: its own object or the copy of its list of revocations.

    Raises:
        CorruptNamespace: it cannot be decrypted as an object with this key, or belongs to another account.
        UpgradeRequired: its format is unknown.
    """
    account = _open(keys, key, data).account
    tag = keys.tag("account", account)
    if key not in {Layout.account(tag), Layout.revoked(tag)}:
        raise CorruptNamespace("an account's object is another account's")
    return account


def revoked_at(keys: RelayerKeys, key: str, data: bytes) -> int:
    """Return the counter of the list of revocations in an account's object, -1 if there is none; raises as `account_at`."""
    encoded = _open(keys, key, data).revocations
    try:
        return Revocations.verify(encoded).counter if encoded else -1
    except NotAccepted as error:
        raise CorruptNamespace("an account's revocations are not signed") from error


def record_at(keys: RelayerKeys, key: str, data: bytes) -> AccountRecord:
    """Return the content of an account's object; raises as `account_at`."""
    stored = _open(keys, key, data)
    account, rules = account_at(keys, key, data), stored.rules or AccountRules()
    return AccountRecord(account, stored.created_at, stored.registration, rules, stored.revocations)


async def read_account(ports: LogPorts, account: str) -> tuple[AccountRecord | None, AccountRules]:
    """Return an account's own object, None if it is missing or cannot be read, and the newest rules of its two objects.

    Unlike `Accounts`, this never writes.

    Raises:
        StoreError: the store does not respond.
    """
    tag, records = ports.keys.tag("account", account), dict[str, AccountRecord]()
    for key in (Layout.account(tag), Layout.revoked(tag)):
        found = await ports.get(key)
        if found is not None:
            with suppress(CorruptNamespace, UpgradeRequired):
                records[key] = record_at(ports.keys, key, found.data)
    newest = max((record.rules for record in records.values()), key=lambda rules: rules.counter, default=None)
    return records.get(Layout.account(tag)), newest or AccountRules()


def _set(rules: AccountRules) -> AccountRules | None:
    """Return rules as they are stored: nothing for an account of which none were ever set."""
    return rules if rules.counter else None


def _learn_rules(known: _KnownAccount, stored: _Stored) -> int:
    """Adopt the rules of an object unless newer ones are cached; return their counter, 0 if it has none."""
    rules = stored.rules or AccountRules()
    if rules.counter > known.rules.counter:
        known.rules = rules
    return rules.counter


def _open(keys: RelayerKeys, key: str, data: bytes) -> _Stored:
    try:
        plain = unseal(keys.metadata, ObjectType.ACCOUNT, _place_of(key), data)
        stored = msgspec.msgpack.decode(plain, type=_Stored)
    except (UnsealError, msgspec.MsgspecError) as error:
        raise CorruptNamespace("an account's object does not open") from error
    if stored.format > _FORMAT:
        raise UpgradeRequired(f"an account's object has format {stored.format}; this relayer knows {_FORMAT}")
    return stored


def _place_of(key: str) -> bytes:
    # The account's id is not part of the context, so that an operator who has only the relayer key can find all accounts.
    return context(ObjectType.ACCOUNT, "", b"", key)


def _revoked(known: _KnownAccount, certificate: Certificate) -> bool:
    return certificate.agent_key in known.agent_keys or certificate.serial in known.serials
