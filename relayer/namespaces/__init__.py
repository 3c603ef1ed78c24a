"""Open namespaces: their state, records and search indexes, the cache that keeps them open, and their erasures."""
