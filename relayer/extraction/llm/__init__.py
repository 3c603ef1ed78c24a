"""The ``llm`` extractor: a language model proposes facts, and code drops those that the conversation does not prove."""
