"""Finding memories: dense search, relevance, and when to stay silent."""
