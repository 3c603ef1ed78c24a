"""A second front for clients of MemWal (Walrus Memory): its wire contract over the same use cases, custody ``relayer`` alone.

names      what its accounts, namespaces, job and blob ids are here
contract   what it sends, and how it is told that something is wrong
accept     who asks: its headers and signature, windows, nonces, points
front      the table of routes, and the way of a request
public     what needs no signature: versions, configuration, the one question that its clients ask of Sui
storing    remember, bulk, analyze, and what became of them
finding    recall, ask, embed
opaque     what its clients sealed themselves: bytes and a vector
listings   namespaces, memories, counts; and deletion
sessions   of MCP clients: how many, and whose
tools      what MCP clients are offered, by the handlers above
mcp        their protocol: Streamable HTTP and a stream of events
"""
