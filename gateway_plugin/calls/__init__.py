"""Calls to a relayer: trust, signed requests, retries under one deadline, and errors.

`trust` decides which relayer may get a key, and `calling` sends the requests. `gateway_plugin.client` is built on this
package, which knows nothing of turns.
"""
