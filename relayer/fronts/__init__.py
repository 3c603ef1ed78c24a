"""Fronts for clients of other protocols, each in a package of its own over the relayer's use cases.

A front is registered as an entry point of the group ``memrelay.fronts``, and its commands as one of ``memrelay.commands``; see
`relayer.wire.extensions`. Nothing else in `relayer` imports this package, so a front can be left out of an installation.
"""
