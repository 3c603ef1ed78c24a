"""Where each object of a deployment lives in its store.

A key shows no name and no text: accounts and namespaces stand in it as keyed hashes, incarnations are random. Slots and
epochs are padded with zeros, so that the order of keys is the order of the log.
"""

from __future__ import annotations

from dataclasses import dataclass

from relayer.domain.entry import check_key
from relayer.wire.codec import render


@dataclass(frozen=True, slots=True)
class Layout:
    """Object keys below ``prefix``, which may be empty.

    Every method returns the key without the prefix: that is the object's id inside its seal, so that a bucket copied
    under another prefix still opens. `at` makes the key that the store is asked for.

    Raises:
        ValueError: the prefix is neither empty nor an object key.
    """

    prefix: str = ""

    def __post_init__(self) -> None:
        if self.prefix:
            check_key(self.prefix)

    def at(self, key: str) -> str:
        """Return the key in the store."""
        return f"{self.prefix}/{key}" if self.prefix else key

    @staticmethod
    def relayer() -> str:
        """The sealed constant that says whose store this is."""
        return "relayer"

    @staticmethod
    def probed(probe_tag: str) -> str:
        """The record of a passed probe."""
        return f"probed/{probe_tag}"

    @staticmethod
    def fleet(day: str) -> str:
        """The relayers' key pair of a day (``YYYYMMDD``)."""
        return f"fleet/{day}"

    @staticmethod
    def account(account_tag: str) -> str:
        """The account object."""
        return f"acct/{account_tag}/account"

    @staticmethod
    def revoked(account_tag: str) -> str:
        """The account's list of revocations once more, so that neither object can be put back alone."""
        return f"acct/{account_tag}/revoked"

    @staticmethod
    def pointers(account_tag: str) -> str:
        """What the keys of all pointers of an account start with."""
        return f"acct/{account_tag}/ns/"

    @staticmethod
    def pointer(account_tag: str, namespace_tag: str) -> str:
        """The pointer of a name."""
        return f"acct/{account_tag}/ns/{namespace_tag}"

    @staticmethod
    def erasing() -> str:
        """What the keys of all erasures that are under way start with."""
        return "erasing/"

    @staticmethod
    def erased() -> str:
        """What the keys of all confirmed erasures start with."""
        return "erased/"

    @staticmethod
    def report(account_tag: str, erasure: bytes, *, confirmed: bool) -> str:
        """The report of an erasure: of one that is under way, or of one that is over."""
        return f"{'erased' if confirmed else 'erasing'}/{account_tag}/{render(erasure)}"

    @staticmethod
    def incarnation(incarnation: bytes) -> str:
        """What the keys of everything in an incarnation start with."""
        return f"ns/{incarnation.hex()}/"

    @staticmethod
    def keyrings(incarnation: bytes) -> str:
        """What the keys of all keyrings start with."""
        return f"ns/{incarnation.hex()}/keyring/"

    @staticmethod
    def keyring(incarnation: bytes, epoch: int) -> str:
        """The keyring of an epoch."""
        return f"ns/{incarnation.hex()}/keyring/{epoch:08d}"

    @staticmethod
    def manifest(incarnation: bytes) -> str:
        """The manifest."""
        return f"ns/{incarnation.hex()}/manifest"

    @staticmethod
    def entries(incarnation: bytes) -> str:
        """What the keys of all entries start with."""
        return f"ns/{incarnation.hex()}/wal/"

    @staticmethod
    def segments(incarnation: bytes) -> str:
        """What the keys of all segments start with."""
        return f"ns/{incarnation.hex()}/seg/"

    @staticmethod
    def segment(incarnation: bytes, first_seq: int, ulid: bytes) -> str:
        """A segment; the ULID keeps apart what several relayers make of the same entries."""
        return f"ns/{incarnation.hex()}/seg/{first_seq:020d}-{render(ulid)}"

    @staticmethod
    def indexes(incarnation: bytes) -> str:
        """What the keys of all stored indexes start with."""
        return f"ns/{incarnation.hex()}/index/"

    @staticmethod
    def index(incarnation: bytes, seq: int, ulid: bytes) -> str:
        """An index of the state after an entry."""
        return f"ns/{incarnation.hex()}/index/{seq:020d}-{render(ulid)}"

    @staticmethod
    def entry(incarnation: bytes, seq: int) -> str:
        """The entry in a slot."""
        return f"ns/{incarnation.hex()}/wal/{seq:020d}"
