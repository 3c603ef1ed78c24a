"""Test helpers: a relayer inside the test's process, a gateway, an embedder without a model, and a clock that tests control."""
