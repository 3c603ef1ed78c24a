"""Before a turn: what the relayer is asked, which of its answers enter the prompt, and what is kept and written down of it.

Imports `gateway_plugin.turn` and what lies below, and nothing of capture; the plugin, its tools and capture import it.
"""
