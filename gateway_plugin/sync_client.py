"""The relayer's API for synchronous code.

`SyncRelayerClient` runs a `gateway_plugin.client.RelayerClient` on an event loop in a thread of its own, and each of its
methods waits for the asynchronous method of the same name.
"""

from __future__ import annotations

import aiohttp

from gateway_plugin.calls.clock import Clock
from gateway_plugin.calls.trust import TrustStore
from gateway_plugin.client import RelayerClient
from gateway_plugin.plugin import OnThread, waited

__all__ = ["SyncRelayerClient"]


class SyncRelayerClient(OnThread[RelayerClient]):
    """A client of one relayer for any number of agents, for synchronous code.

    Its methods are those of `gateway_plugin.client.RelayerClient`, with the same arguments, deadlines and errors. Close
    it with `close`, or use it as a context manager.

    Args:
        url: the URL of the relayer, without a path.
        trust: the file in which the identities of relayers are pinned.
        relayer_identity: the identity that the relayer must have, 32 bytes; None pins the identity at first use.
        clock: the source of the current time.
        http: the HTTP session to use; the caller closes it. None creates a session.

    Raises:
        SettingsError: the URL is malformed, has a path, or would send keys unencrypted.
    """

    def __init__(
        self,
        url: str,
        *,
        trust: TrustStore,
        relayer_identity: bytes | None = None,
        clock: Clock | None = None,
        http: aiohttp.ClientSession | None = None,
    ) -> None:
        client = RelayerClient(url, trust=trust, relayer_identity=relayer_identity, clock=clock, http=http)
        super().__init__(client, "memrelay-client")

    recall = waited(RelayerClient.recall)
    remember = waited(RelayerClient.remember)
    analyze = waited(RelayerClient.analyze)
    list_memories = waited(RelayerClient.list_memories)
    get_memory = waited(RelayerClient.get_memory)
    forget = waited(RelayerClient.forget)
    active_recall = waited(RelayerClient.active_recall)
    ask = waited(RelayerClient.ask)
    supersede = waited(RelayerClient.supersede)
    restore = waited(RelayerClient.restore)
    delete = waited(RelayerClient.delete)
    context = waited(RelayerClient.context)
    changes = waited(RelayerClient.changes)
    import_memories = waited(RelayerClient.import_memories)
    namespaces = waited(RelayerClient.namespaces)
    job = waited(RelayerClient.job)
    version = waited(RelayerClient.version)
    trust = waited(RelayerClient.trust)
