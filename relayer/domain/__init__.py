"""The domain model: records, operations and the namespace's state. It uses no I/O, no clock and no randomness."""
