"""`memrelay` as a version to come would be: it writes what this version does not understand.

    python newer_memrelay.py manifest write               manifests of the next format
    python newer_memrelay.py entry write                  an entry of the next version
    python newer_memrelay.py operation write              an operation of a kind that is not known yet
    python newer_memrelay.py ... serve                    a relayer that understands all of these

The real code runs, with a handful of definitions replaced before anything uses them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from relayer.domain import namespace, operations
from relayer.domain.operations import Origin


class Pin(msgspec.Struct, frozen=True, array_like=True, tag="pin"):
    """An operation of the future."""

    origin: Origin
    record: bytes


def teach_manifests() -> None:
    namespace.MANIFEST_FORMAT = 2


def teach_entries() -> None:
    operations.ENTRY_VERSION = 2
    decoder = msgspec.msgpack.Decoder(operations.Entry)
    operations.decode_entry = decoder.decode


def teach_operations() -> None:
    operations._KINDS = operations._KINDS | {"pin"}
    operations._DECODER = msgspec.msgpack.Decoder(operations.Operation | Pin)
    from relayer.domain.operations import OperationResult
    from relayer.domain.state import NamespaceState

    known = NamespaceState._change

    def change(self, operation, origin):
        return (
            self.done(OperationResult.RESTORED)
            if isinstance(operation, Pin)
            else known(self, operation, origin)
        )

    NamespaceState._change = change


def write() -> None:
    """Raise the format of every manifest if this version has a new one; else append one entry to every namespace, a pin if known."""
    import asyncio

    from relayer.access.store_keys import read_store_key
    from relayer.adapters.directory_store import DirectoryStore
    from relayer.adapters.local_key import LocalKey
    from relayer.adapters.system import SystemClock, SystemRandomness
    from relayer.crypto import RelayerKeys
    from relayer.domain.operations import Forget
    from relayer.log.namespace_log import NamespaceLog
    from relayer.log.objects import LogPorts, ManifestView
    from relayer.operator.catalogue import read_catalogue
    from relayer.ports import Swapped

    async def work() -> None:
        data = Path(os.environ["MEMRELAY_DATA"])
        clock = SystemClock()
        store = await DirectoryStore.open(data / "objects", clock=clock)
        relayer_key = bytes.fromhex((data / "relayer.key").read_text())
        provider = LocalKey(relayer_key, SystemRandomness())
        keys = RelayerKeys.derive(await read_store_key(store, provider))
        ports = LogPorts(store, clock, SystemRandomness(), keys)
        for listed in (await read_catalogue(ports)).namespaces:
            if namespace.MANIFEST_FORMAT > 1:
                view = ManifestView(ports, listed.account, listed.incarnation)
                seen = await view.see()
                new = msgspec.structs.replace(seen.manifest, format=namespace.MANIFEST_FORMAT)
                assert isinstance(await view.swap(seen, new), Swapped)
                continue
            log = NamespaceLog(ports, listed.account, listed.pointer)
            await log.start()
            origin = Origin(b"a" * 32, os.urandom(16))
            kind = Pin if "pin" in operations._KINDS else Forget
            await log.append([kind(origin, b"nobody" * 2 + b"none")])
            await log.close()
        await store.close()

    asyncio.run(work())


def main() -> None:
    variant, command, *rest = sys.argv[1:]
    {"manifest": teach_manifests, "entry": teach_entries, "operation": teach_operations}[variant]()
    if command == "write":
        write()
        return
    sys.argv = ["memrelay", command, *rest]
    from relayer.cli import app

    app()


if __name__ == "__main__":
    main()
