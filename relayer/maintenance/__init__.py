"""What a relayer does by itself: compaction, indexes, embeddings, expiry, the walk over what nobody opens."""
