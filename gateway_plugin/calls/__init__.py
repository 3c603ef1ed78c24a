"""How a relayer is called: which one may be told a key, each attempt signed anew, one deadline for all of them, and what a no means.

Imports identity and keys, and knows nothing of turns. What calls it is `gateway_plugin.client`; others import an address or a pin.
"""
