"""Memory for programs that speak the Model Context Protocol: a server over standard streams, or over HTTP on this machine.

`memory` lists what is offered and runs the calls with the plugin, `server` implements the protocol, and `http` authenticates and
limits its HTTP form. `server` and `http` need the extra ``memrelay[mcp]``, the other modules do not. `credentials` stores one
agent's keys for such a server, `command_line` renders the configuration of each client program.
"""
