"""What lies in a store, by kind and by whom it belongs to, and how a finding about it is said."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from relayer.access.accounts import account_at, revoked_at
from relayer.domain.namespace import Pointer, PointerState
from relayer.errors import CorruptNamespace, RelayerError, UpgradeRequired
from relayer.lib.single_flight import AT_ONCE, together
from relayer.log.layout import Layout
from relayer.log.log_ports import LogPorts
from relayer.log.sealed_objects import ObjectSealer
from relayer.ports import Found

UNREADABLE_REPORT = "ask for that erasure again, then remove this object"


class Flaw(Enum):
    """What can be wrong with a store; the values are stable words of the JSON output."""

    DAMAGED = "damaged"
    ABSENT = "absent"
    NEWER = "newer_version"
    NO_ACCOUNT = "unknown_account"
    NO_BODY = "body_lost"
    WRONG_SEAL = "inner_seal"
    NO_NAME = "without_a_name"
    LEFT_OVER = "left_over"
    UNFINISHED = "unfinished"

    @staticmethod
    def of(error: RelayerError) -> Flaw:
        """Return what an object that could not be read has."""
        return Flaw.NEWER if isinstance(error, UpgradeRequired) else Flaw.DAMAGED

    @property
    def harmless(self) -> bool:
        """Whether nothing is lost and nothing is refused because of it."""
        return self in {Flaw.LEFT_OVER, Flaw.UNFINISHED}


@dataclass(frozen=True, slots=True)
class Finding:
    """One flaw: the object's key without the prefix, a sentence, what to do, and which entries it concerns."""

    flaw: Flaw
    key: str
    sentence: str
    fix: str = ""
    first_seq: int = 0
    last_seq: int = 0

    def row(self) -> dict[str, object]:
        """Return it for JSON."""
        entries = {"first_seq": self.first_seq, "last_seq": self.last_seq} if self.last_seq else {}
        return {
            "flaw": self.flaw.value,
            "harmless": self.flaw.harmless,
            "key": self.key,
            "what": self.sentence,
            "fix": self.fix,
            **entries,
        }


class Kind(Enum):
    """The kinds of objects in a store; the values are stable words of the JSON output."""

    ENTRY = "entry"
    SEGMENT = "segment"
    INDEX = "index"
    MANIFEST = "manifest"
    KEYRING = "keyring"
    POINTER = "pointer"
    ACCOUNT = "account"
    FLEET = "fleet"
    RELAYER = "relayer"
    PROBE = "probe"
    ERASURE = "erasure"
    QUARANTINE = "quarantine"
    OTHER = "other"


_NAMESPACE = r"ns/([0-9a-f]{32})/"
_PATTERNS = [
    (Kind.ENTRY, re.compile(_NAMESPACE + r"wal/\d{20}")),
    (Kind.SEGMENT, re.compile(_NAMESPACE + r"seg/[^/]+(?:/\d{4})?")),
    (Kind.INDEX, re.compile(_NAMESPACE + r"index/[^/]+(?:/\d{4})?")),
    (Kind.MANIFEST, re.compile(_NAMESPACE + r"manifest")),
    (Kind.KEYRING, re.compile(_NAMESPACE + r"keyring/\d{8}")),
    (Kind.POINTER, re.compile(r"acct/[0-9a-f]{40}/ns/[0-9a-f]{40}")),
    (Kind.ACCOUNT, re.compile(r"acct/[0-9a-f]{40}/(?:account|revoked)")),
    (Kind.ERASURE, re.compile(r"(?:erasing|erased)/[0-9a-f]{40}/[0-9a-z]{26}")),
    (Kind.FLEET, re.compile(r"fleet/\d{8}")),
    (Kind.RELAYER, re.compile(r"relayer")),
    (Kind.PROBE, re.compile(r"probed?/.+")),
    (Kind.QUARANTINE, re.compile(r"quarantine/.+")),
]


def kind_of(key: str) -> Kind:
    """Return the kind of the object at a key, which is without the store's prefix."""
    return next((kind for kind, pattern in _PATTERNS if pattern.fullmatch(key)), Kind.OTHER)


def incarnation_of(key: str) -> bytes | None:
    """Return the incarnation that an object belongs to, if it belongs to one."""
    found = re.match(_NAMESPACE, key)
    return None if found is None else bytes.fromhex(found[1])


RESTORE = "restore it from a backup"
_MEND = "memrelay repair --apply makes it anew from what is left, a backup has it as it was"


@dataclass(frozen=True, slots=True)
class Listed:
    """A name of an account, and the incarnation it stands for; ``key`` is the pointer's, without the prefix."""

    account: str
    key: str
    pointer: Pointer

    @property
    def incarnation(self) -> bytes:
        """Which objects below ``ns/`` are its own."""
        return self.pointer.incarnation

    @property
    def live(self) -> bool:
        """Whether it may be served."""
        return self.pointer.state is PointerState.LIVE


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Accounts by id, their names in order, and what of both does not open.

    ``mendable`` are accounts whose object is lost, or older than the list of revocations beside it.
    """

    accounts: tuple[str, ...]
    namespaces: tuple[Listed, ...]
    findings: tuple[Finding, ...]
    mendable: tuple[str, ...] = ()

    def named(self, name: str, account: str | None = None) -> list[Listed]:
        """Return what has this name, in every account or in one."""
        return [
            listed
            for listed in self.namespaces
            if listed.pointer.name == name and account in {None, listed.account}
        ]


async def read_catalogue(ports: LogPorts, known: Iterable[str] = ()) -> Catalogue:
    """List accounts and their pointers.

    Args:
        ports: the store.
        known: ids of accounts that are looked for even if their own object is lost.

    Raises:
        StoreError: the store did not answer.
    """
    keys = await keys_below(ports, "acct/")
    reader = _Reader(ports)
    for window in _windows([key for key in keys if key.endswith(("/account", "/revoked"))]):
        await together([reader.account(key) for key in window])
    for account in known:
        reader.accounts.setdefault(ports.keys.tag("account", account), account)
    mendable = reader.compare({key.split("/")[1] for key in keys}, keys)
    for window in _windows([key for key in keys if "/ns/" in key]):
        await together([reader.pointer(key) for key in window])
    tags = {key.split("/")[1] for key in keys}
    return Catalogue(
        tuple(sorted(account for tag, account in reader.accounts.items() if tag in tags)),
        tuple(sorted(reader.listed, key=lambda item: (item.account, item.pointer.name))),
        tuple(reader.findings),
        tuple(mendable),
    )


async def keys_below(ports: LogPorts, start: str) -> list[str]:
    """Return the keys that begin so, without the store's prefix, in order."""
    strip = len(ports.layout.at("x")) - 1
    return sorted([row.key[strip:] async for row in ports.store.list(ports.layout.at(start))])


class _Reader:
    def __init__(self, ports: LogPorts) -> None:
        self._ports = ports
        self._sealer = ObjectSealer(ports)
        self.accounts: dict[str, str] = {}
        self.listed: list[Listed] = []
        self.findings: list[Finding] = []
        self._counters: dict[str, int] = {}

    async def account(self, key: str) -> None:
        found = await self._ports.store.get(self._ports.layout.at(key))
        if not isinstance(found, Found):
            return
        try:
            self.accounts[key.split("/")[1]] = account_at(self._ports.keys, key, found.data)
            self._counters[key] = revoked_at(self._ports.keys, key, found.data)
        except (CorruptNamespace, UpgradeRequired) as error:
            fix = f"{RESTORE}, or name the account with --account to see what is below it"
            self.findings.append(Finding(Flaw.of(error), key, str(error), fix))

    def compare(self, tags: Iterable[str], keys: Iterable[str]) -> list[str]:
        """Look for accounts without their object, or whose object is older than the list beside it; returns their ids."""
        there, found = set(keys), list[str]()
        for tag in sorted(self.accounts.keys() & set(tags)):
            key, beside = Layout.account(tag), Layout.revoked(tag)
            if key not in there:
                flaw, sentence = Flaw.ABSENT, "the object of an account is lost: relayers let nobody of it in"
            elif self._counters.get(key, -1) < self._counters.get(beside, -1) and key in self._counters:
                flaw = Flaw.DAMAGED
                sentence = "the object of an account is older than the list of revocations beside it"
            else:
                continue
            fix = _MEND if beside in self._counters else f"{_MEND}; its owner then sends the list again"
            self.findings.append(Finding(flaw, key, sentence, fix))
            found.append(self.accounts[tag])
        return found

    async def pointer(self, key: str) -> None:
        account = self.accounts.get(key.split("/")[1])
        if account is None:
            sentence = "the account of a name is not known: its object is lost or does not open"
            self.findings.append(Finding(Flaw.NO_ACCOUNT, key, sentence, "give its id with --account"))
            return
        found = await self._ports.store.get(self._ports.layout.at(key))
        if not isinstance(found, Found):
            return
        try:
            pointer = self._open(account, key, found.data)
        except (CorruptNamespace, UpgradeRequired) as error:
            self.findings.append(Finding(Flaw.of(error), key, str(error), RESTORE))
        else:
            self.listed.append(Listed(account, key, pointer))

    def _open(self, account: str, key: str, data: bytes) -> Pointer:
        pointer = self._sealer.unseal_pointer(account, key, data)
        if key != self._key_of(account, pointer.name):
            raise CorruptNamespace("a pointer names another namespace than its key")
        return pointer

    def _key_of(self, account: str, name: str) -> str:
        tag = self._ports.keys.tag
        return Layout.pointer(tag("account", account), tag("namespace", account, name))


def _windows(keys: list[str]) -> Iterable[list[str]]:
    return (keys[start : start + AT_ONCE] for start in range(0, len(keys), AT_ONCE))
