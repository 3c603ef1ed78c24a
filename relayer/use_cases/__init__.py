"""The use cases of the relayer: the operations that clients request, in one module each or a few related ones.

Unless its docstring says otherwise, a use case raises `RelayerError` as `relayer.namespaces.cache.OpenNamespaces.use` and the log.
"""
