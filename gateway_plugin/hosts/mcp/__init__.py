"""Memory for programs that speak the Model Context Protocol: a server over standard streams, or over HTTP on this machine.

`definitions` says what is offered, `memory` does it through the plugin, `server` speaks the protocol and `http` guards its HTTP
form; both need the extra ``memrelay[mcp]``, the rest does not. `credentials` are one agent's keys for such a server, `clients`
how each program is told of it.
"""
