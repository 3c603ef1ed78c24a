"""The append-only log of a namespace in an object store. Comments cite the invariants I1 to I12 of docs/protocol.md.

Unless its docstring says otherwise, what uses the store raises `StoreError` if the store does not respond, `CorruptNamespace` if
an object cannot be unsealed for its place, and `UpgradeRequired` if a newer version wrote it (I12). Trying again is safe.
"""
