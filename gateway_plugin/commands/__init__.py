"""The commands of ``memrelay-gateway``, one module per group. They may import all of the plugin; only its `cli` imports them."""
