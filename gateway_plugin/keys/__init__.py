"""Identities and keys: agents and namespaces of a turn, the gateway's secret, and files that only this user may read."""
