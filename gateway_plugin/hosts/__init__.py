"""Adapters for the programs that the plugin plugs into; each translates and decides nothing about memories."""
