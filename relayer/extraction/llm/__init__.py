"""The ``llm`` extractor: a language model proposes facts, and what it cannot prove is dropped without asking it."""
