"""Captured turns on their way to the relayer: where they wait (`queue`), and who delivers them (`sender`).

The package imports keys and the client of the relayer, and none of the modules that decide about a turn. Modules that compose a
plugin or show the waiting items may import it.
"""
