"""A second HTTP front for clients of MemWal (Walrus Memory).

It implements MemWal's API with memrelay's use cases, for namespaces of custody ``relayer`` only.

contract   schemas of request bodies, errors, and MemWal's accounts, namespaces and ids in terms of memrelay's
accept     authentication: headers, signatures, time windows, nonces, rate limits (points)
front      the front: finds the route, authenticates, calls the handler, renders errors
table      the table of routes; creates the front
commands   registers memrelay account; the commands are in accounts
public     routes without a signature: versions, configuration, and the one Sui request that clients make
memories   remember, bulk, analyze, and the status of their jobs; recall, ask, embed
opaque     data that clients sealed themselves: bytes and a vector
listings   namespaces, memories, counts; and deletion
sessions   sessions of MCP clients: their streams, running calls and limits
mcp        the Model Context Protocol: Streamable HTTP and server-sent events, and its tools, which use the handlers above
"""
