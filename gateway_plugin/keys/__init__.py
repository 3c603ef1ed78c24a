"""Identities and keys: agents, namespaces and people of a turn, the gateway's secret, and files that only this user may read."""
