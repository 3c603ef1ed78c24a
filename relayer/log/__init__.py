"""The append log of a namespace over an object store; cites the invariants of docs/protocol.md."""
