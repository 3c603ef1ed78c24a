"""A relayer inside a test, an embedder without a model, and a clock that a test moves."""
