"""Who asks, and what accounts have to do with it: which ones this relayer serves, and what they have taken back.

An account comes into being with the first thing that is kept for it, a namespace or a list of revocations: one small
sealed object, under a name that says nothing without the relayer's key. It holds the account's revocations as the account signed them, so that the relayer cannot invent any.

The list is in a second object beside it. The newest of the two counts, so that putting one of them back, or deleting it,
takes nothing back; and where the account's own object is gone, and anything else of it is there, nobody is let in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec
from cachetools import LRUCache

from relayer.access.fleet import create_or_read
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
from relayer.wire.errors import NotAccepted, UnsealError
from relayer.wire.sealing import SALT_SIZE, ObjectType, context, seal, unseal
from relayer.wire.signing import Certificate, Revocations, Right


@dataclass(frozen=True, slots=True)
class Principal:
    """An agent whose certificate and signature were accepted. Times are in ms since the epoch.

    ``nonce`` and ``expires`` are the signature's; together with the signing key they make a write the same write when
    it is sent twice (I7). ``body_digest`` is the SHA-256 of the request's body; ``peer`` is the name under which the machine that
    asks is counted, empty for none.
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
        """Whether the certificate grants a right on a namespace."""
        return self.certificate.allows(namespace, right)


@dataclass(frozen=True, slots=True)
class Access:
    """A principal's way into one namespace; its right was checked.

    ``secret`` is the namespace secret (from the sealed key, or derived for custody ``relayer``) and ``key_not_after``
    the time in ms until which the relayer may hold it.
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
        """Return whose operation it is: this request's one of that index."""
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
    """How far ``accounts = open`` goes: accounts in all, and new ones per peer address and hour (0: any)."""

    total: int = 10_000
    per_address_and_hour: int = 20


class DelegateKey(msgspec.Struct, frozen=True, array_like=True):
    """A key that signs for a registered account: 32 bytes; ``added_at`` in ms."""

    key: bytes
    label: str = ""
    added_at: int = 0


class Registration(msgspec.Struct, frozen=True, array_like=True):
    """What an operator registered for clients that sign without certificates: the id that they know, and their keys."""

    shown: str
    keys: tuple[DelegateKey, ...] = ()
    active: bool = True

    def admits(self, key: bytes) -> bool:
        """Whether a key signs for it now."""
        return self.active and any(one.key == key for one in self.keys)


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    format: int
    account: str
    created_at: int
    revocations: bytes = b""
    registration: Registration | None = None


@dataclass(slots=True)
class _KnownAccount:
    """What was last read of an account; ``read_at`` is monotonic, in seconds.

    ``revocations`` is the newest list that was seen, ``beside`` the counter of the one in the second object.
    """

    stored: _Stored | None = None
    etag: str = ""
    read_at: float = float("-inf")
    revocations: bytes = b""
    counter: int = -1
    beside: int = -1
    agent_keys: frozenset[bytes] = frozenset()
    serials: frozenset[bytes] = frozenset()
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Accounts:
    """Admission and revocation, as far as this replica knows it.

    Args:
        ports: the store of the account objects, and what reading them takes.
        served: the ids that are served; None serves every account, up to ``caps``.
        caps: see `AccountCaps`.

    Attributes:
        on_revoked: told each account of which this replica learns that it took something back: opened keys must go.
    """

    def __init__(
        self,
        ports: LogPorts,
        *,
        served: frozenset[str] | None = None,
        caps: AccountCaps | None = None,
    ) -> None:
        self._ports = ports
        self._clock = ports.clock
        self._served = served
        self._caps = caps or AccountCaps()
        self.on_revoked: Callable[[str], Awaitable[None]] | None = None
        self._known: LRUCache[str, _KnownAccount] = LRUCache(_MOST_KNOWN)
        hourly = float(self._caps.per_address_and_hour)
        self._newcomers = Buckets(Limit(hourly, hourly / 3600))
        # How many accounts there are, once they were counted.
        self._total: int | None = None

    def serves(self, account: str) -> bool:
        """Whether an account may come in at all; touches nothing."""
        return self._served is None or account in self._served

    def knows(self, account: str) -> bool:
        """Whether this replica has read that an account has something here."""
        known = self._known.get(account)
        return known is not None and known.stored is not None

    def admits_now(self, certificate: Certificate) -> bool:
        """Whether what is known lets a certificate in; False means that `admit` has to look, or to refuse."""
        account = certificate.account
        known = self._known.get(account)
        return (
            known is not None
            and known.stored is not None
            and self.serves(account)
            and self._age(known) < _FRESH_SECONDS
            and not _revoked(known, certificate)
        )

    async def admit(self, certificate: Certificate, *, revokes: bool = False) -> None:
        """Let a certificate in, by a list of revocations at most 15 s old.

        While the store does not answer, what was read in the last five minutes counts; after that nobody comes in.

        Args:
            certificate: verified, in its time.
            revokes: whether it is about the list of revocations alone, which the account signs: the way back for a lost one.

        Raises:
            NotAccepted: ``account_not_served`` or ``revoked``.
            AccountLost: the account's object is gone.
            StoreError: the store does not answer, and what is known is too old.
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

    async def make(self, account: str, address: str = "") -> bool:
        """Create an account if it does not exist, before anything is kept for it; returns whether this call created it.

        Args:
            account: admitted.
            address: of the peer, by `relayer.http.limits.peer_name`, for the hourly cap; empty for none.

        Raises:
            NotAccepted: ``accounts_full``.
            RateLimited: the peer made as many in the last hour as it may.
            StoreError: the store does not answer.
        """
        known = self._entry(account)
        return known.stored is None and await self._create(account, known, address)

    async def revocations(self, account: str) -> bytes:
        """Return the list of revocations that is in place, as the account signed it; empty when there is none.

        Raises:
            StoreError: the store does not answer.
        """
        known = self._entry(account)
        with suppress(AccountLost):
            await self._refresh(account, known, force=True)
        return known.revocations

    async def revoke(self, encoded: bytes, *, account: str, address: str = "") -> Revocations:
        """Put a newer list of revocations in place; it counts on this replica at once.

        Raises:
            Refused: ``revocations_invalid`` (not a list that this account signed) or ``stale_counter``.
            NotAccepted, RateLimited: as `make`, for an account that has nothing here.
            StoreError: the store does not answer.
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
            before = known.counter
            try:
                if known.stored is None:
                    await self._create(account, known, address, encoded)
                # The second object last: it is never the newer one, unless somebody put the first one back.
                if await self._put(account, known, encoded) and await self._put_beside(account, known):
                    return revocations
            finally:
                # Whatever the store answered last: what this replica knows to be taken back counts here at once.
                await self._learnt(account, known, before)
            await self._clock.sleep(0.2)
        raise StoreUnavailable("the account's object could not be changed")

    async def registration(self, account: str) -> Registration | None:
        """Return what is registered for an account, at most 15 s old; None for one that is not, or has nothing here.

        Raises:
            AccountLost: the account's object is gone.
            StoreError: the store does not answer, and what is known is too old.
        """
        known = self._entry(account)
        if self._age(known) >= _FRESH_SECONDS:
            await self._refresh(account, known)
        return None if known.stored is None else known.stored.registration

    async def register(
        self, account: str, change: Callable[[Registration | None], Registration]
    ) -> Registration:
        """Replace what is registered for an account by what ``change`` makes of it; other relayers know it 15 s later.

        Raises:
            AccountLost: the account's object is gone.
            StoreError: the store does not answer.
        """
        known = self._entry(account)
        for _ in range(_SWAPS):
            await self._refresh(account, known, force=True)
            await self._create(account, known, "")
            if known.stored is not None:
                new = change(known.stored.registration)
                if await self._swap(account, known, msgspec.structs.replace(known.stored, registration=new)):
                    return new
            await self._clock.sleep(0.2)
        raise StoreUnavailable("the account's object could not be changed")

    async def mend(self, account: str) -> None:
        """Make the account's object anew from the newest list that is left: an operator's work, while no relayer runs.

        Raises:
            CorruptNamespace: one of its objects is there and does not open.
            StoreError: the store did not answer, or somebody else wrote it; doing it again is safe.
        """
        known = self._entry(account)
        with suppress(AccountLost):
            await self._refresh(account, known, force=True)
        await self._create(account, known, "", known.revocations)
        if not await self._put(account, known, known.revocations):
            raise StoreUnavailable("the account's object could not be changed")

    async def _put(self, account: str, known: _KnownAccount, encoded: bytes) -> bool:
        """Write a list into the account's object; False if that has to be tried again."""
        if known.stored is None or known.stored.revocations == encoded:
            return known.stored is not None
        return await self._swap(account, known, msgspec.structs.replace(known.stored, revocations=encoded))

    async def _swap(self, account: str, known: _KnownAccount, updated: _Stored) -> bool:
        key = self._key(account)
        outcome = await self._ports.store.swap(
            self._ports.layout.at(key), self._seal(key, updated), known.etag
        )
        if isinstance(outcome, Swapped):
            self._take(known, updated, outcome.etag)
        return isinstance(outcome, Swapped)

    async def _put_beside(self, account: str, known: _KnownAccount) -> bool:
        """Have the second object hold the newest list, too; False if that has to be tried again."""
        key = self._key_beside(account)
        place = self._ports.layout.at(key)
        found = await self._read_beside(account, known)
        if known.beside >= known.counter:
            return True
        data = self._seal(key, _Stored(_FORMAT, account, self._clock.now_ms(), known.revocations))
        store = self._ports.store
        if isinstance(found, Found):
            return isinstance(await store.swap(place, data, found.etag), Swapped)
        return isinstance(await store.create(place, data), Created)

    async def _learnt(self, account: str, known: _KnownAccount, before: int) -> None:
        if known.counter > before and self.on_revoked is not None:
            await self.on_revoked(account)

    def _entry(self, account: str) -> _KnownAccount:
        return self._known.setdefault(account, _KnownAccount())

    def _age(self, known: _KnownAccount) -> float:
        return self._clock.monotonic() - known.read_at

    async def _refresh(self, account: str, known: _KnownAccount, *, force: bool = False) -> None:
        before = known.counter
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
                if known.beside < known.counter and known.read_at == float("-inf"):
                    # The list of a store that has none beside it yet; whatever the store answers, the next revocation does.
                    with suppress(StoreError):
                        await self._put_beside(account, known)
            elif not isinstance(found, Unchanged | Absent):
                raise StoreUnavailable("the account's object could not be read")
            known.read_at = asked_at

    async def _read(self, account: str, known: _KnownAccount) -> GetOutcome:
        """Ask for the account's object, and while none was seen also for what would be left of a lost one."""
        store, place = self._ports.store, self._place(account)
        found = await store.get(place, if_none_match=known.etag or None)
        if known.stored is None:
            await self._read_beside(account, known)
        if isinstance(found, Absent) and (known.stored is not None or await self._is_used(account)):
            # Another replica may have made it between the two questions.
            found = await store.get(place)
            if isinstance(found, Absent):
                raise AccountLost(_LOST)
        return found

    async def _read_beside(self, account: str, known: _KnownAccount) -> GetOutcome:
        key = self._key_beside(account)
        found = await self._ports.store.get(self._ports.layout.at(key))
        if isinstance(found, Found):
            known.beside = self._learn(known, self._open(key, account, found.data).revocations)
        return found

    async def _is_used(self, account: str) -> bool:
        """Whether the store has anything of an account."""
        start = self._place(account).removesuffix("account")
        async for _ in self._ports.store.list(start):
            return True
        return False

    def _take(self, known: _KnownAccount, stored: _Stored, etag: str) -> None:
        self._learn(known, stored.revocations)
        known.stored, known.etag = stored, etag

    def _learn(self, known: _KnownAccount, encoded: bytes) -> int:
        """Let a list count unless a newer one is known; returns its counter, -1 for none."""
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
            # Taken before the first await, and given back: requests that come at once must not all find the same room.
            await self._take_place(address, now)
            made = False
            try:
                key = self._key(account)
                fresh = self._seal(key, _Stored(_FORMAT, account, self._clock.now_ms(), revocations))
                found = await create_or_read(self._ports, key, fresh)
                self._take(known, self._open(key, account, found.data), found.etag)
                known.read_at = now
                made = found.data == fresh
            finally:
                if not made:
                    self._give_place(address)
            return made

    async def _take_place(self, address: str, now: float) -> None:
        if self._served is not None:
            return
        if await self._count() >= self._caps.total:
            raise NotAccepted("accounts_full")
        if self._counts(address):
            wait = take(((self._newcomers, address),), 1.0, now)
            if wait:
                raise RateLimited("this address made as many accounts as it may", retry_after=wait)
        self._add_to_total(1)

    def _give_place(self, address: str) -> None:
        if self._served is not None:
            return
        self._add_to_total(-1)
        if self._counts(address):
            self._newcomers.spend(address, -1.0, self._clock.monotonic())

    def _counts(self, address: str) -> bool:
        return bool(address and self._caps.per_address_and_hour)

    async def _count(self) -> int:
        if self._total is None:
            listing = self._ports.store.list(self._ports.layout.at("acct/"))
            self._total = len([info async for info in listing if info.key.endswith("/account")])
        return self._total

    def _add_to_total(self, accounts: int) -> None:
        if self._total is not None:
            self._total = max(0, self._total + accounts)

    def _key(self, account: str) -> str:
        return Layout.account(self._ports.keys.tag("account", account))

    def _key_beside(self, account: str) -> str:
        return Layout.revoked(self._ports.keys.tag("account", account))

    def _place(self, account: str) -> str:
        return self._ports.layout.at(self._key(account))

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
    """Return the id of the account whose object, or list beside it, has this key of the layout and these bytes.

    Raises:
        CorruptNamespace: it does not open in its place, or belongs to another one.
        UpgradeRequired: its format is unknown.
    """
    account = _open(keys, key, data).account
    tag = keys.tag("account", account)
    if key not in {Layout.account(tag), Layout.revoked(tag)}:
        raise CorruptNamespace("an account's object is another account's")
    return account


def revoked_at(keys: RelayerKeys, key: str, data: bytes) -> int:
    """Return the counter of the list in such an object, -1 for none; raises as `account_at`."""
    encoded = _open(keys, key, data).revocations
    try:
        return Revocations.verify(encoded).counter if encoded else -1
    except NotAccepted as error:
        raise CorruptNamespace("an account's revocations are not signed") from error


def registration_at(keys: RelayerKeys, key: str, data: bytes) -> Registration | None:
    """Return what is registered in such an object; raises as `account_at`."""
    return _open(keys, key, data).registration


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
    # Without the account's id: whoever has the relayer key and lost every list of ids finds them here.
    return context(ObjectType.ACCOUNT, "", b"", key)


def _revoked(known: _KnownAccount, certificate: Certificate) -> bool:
    return certificate.agent_key in known.agent_keys or certificate.serial in known.serials
