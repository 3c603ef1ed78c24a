"""Adapters for the programs that host the plugin. They only translate, and decide nothing about memories."""
