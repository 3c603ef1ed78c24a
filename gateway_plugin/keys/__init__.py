"""Whose keys this process has: where the secret comes from, what is made of it, and the certificates and sealed keys of a request.

Imports of the plugin only errors, private files and `gateway_plugin.identity`; whatever needs keys may import it.
"""
