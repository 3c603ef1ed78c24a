"""The relayer's API for code that is not asynchronous: each call of `RelayerClient`, waited for."""

from __future__ import annotations

import aiohttp

from gateway_plugin.calls.trust import TrustStore
from gateway_plugin.client import RelayerClient
from gateway_plugin.clock import Clock
from gateway_plugin.plugin import OnThread, waited

__all__ = ["SyncRelayerClient"]


class SyncRelayerClient(OnThread[RelayerClient]):
    """Takes the arguments of `RelayerClient`, whose methods these are: same deadlines, same errors."""

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
