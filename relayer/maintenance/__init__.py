"""Background maintenance: compaction, stored indexes, embeddings, expiry, and garbage collection in unopened namespaces."""
