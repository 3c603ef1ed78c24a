"""A bridge process for hosts that are not written in Python: JSON-RPC 2.0 over standard input and output, one message a line."""
