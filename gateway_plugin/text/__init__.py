"""Functions on plain text: removing wrappers and envelopes, matching operators' patterns, and parsing JSON.

The package imports no other part of the plugin, so every module may import it.
"""
