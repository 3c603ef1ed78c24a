"""A process beside a host that is not written in Python: JSON-RPC 2.0, one message a line, over standard input and output."""
