"""Erasure: of memories and of namespaces, the reports that confirm it, and the permanent deletion of objects."""
