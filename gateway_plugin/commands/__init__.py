"""What ``memrelay-gateway`` does, one module per group of commands. They may import all of the plugin; only `gateway_plugin.cli` imports them."""
