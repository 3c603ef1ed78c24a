"""What a store holds, as far as the relayer key shows: accounts, and the names of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from relayer.domain.namespace import Pointer, PointerState
from relayer.errors import CorruptNamespace, UpgradeRequired
from relayer.log.layout import Layout
from relayer.log.log_ports import LogPorts
from relayer.log.sealed_objects import ObjectSealer
from relayer.log.together import AT_ONCE, together
from relayer.operator.findings import Finding, Flaw
from relayer.ports import Found
from relayer.services.accounts import account_at, revoked_at

__all__ = ["RESTORE", "Catalogue", "Listed", "keys_below", "read_catalogue"]

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
