"""Functions of text alone: what is taken off it, and the words and shapes that are looked for in it.

Imports nothing else of the plugin; anything may import it.
"""
