"""The use cases of the relayer: the operations that clients request, in one module each or a few related ones."""
