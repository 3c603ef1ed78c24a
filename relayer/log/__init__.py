"""The append-only log of a namespace in an object store. Comments cite the invariants I1 to I12 of docs/protocol.md."""
