"""Captured turns on their way to the relayer: where they wait (`queue`), and who delivers them (`sender`).

Imports keys and calls to the relayer, and nothing of what decides about a turn; whoever composes a plugin or looks at what waits
may import it.
"""
