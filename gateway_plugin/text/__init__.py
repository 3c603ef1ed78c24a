"""Functions on plain text: removing wrappers and envelopes, and matching patterns.

The package imports no other part of the plugin, so every module may import it.
"""
