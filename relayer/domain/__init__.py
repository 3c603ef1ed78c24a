"""Values and rules: records, operations, the namespace's state. No I/O, no clock, no randomness."""
