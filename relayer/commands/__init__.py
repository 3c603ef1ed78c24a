"""What ``memrelay`` does: run a relayer, look after its key, and the operator's work on a store.

Imports what a command runs, all of relayer at most; only `relayer.cli` imports it. `operator`, `options` and `failures` need the base
install alone, so that ``memrelay --help`` works without the server's packages; the rest is imported when its command runs.
"""
