"""The commands of ``memrelay``: run a relayer, manage its key, and operate a store.

Commands may import all of relayer; only `relayer.cli` imports them. `deferred` needs only the base installation, so that
``memrelay --help`` works without the server's packages. The other modules are imported when one of their commands runs.
"""
