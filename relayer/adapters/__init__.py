"""Adapters that implement `relayer.ports`: stores, embedders, chat models, clocks. Only code that starts processes uses them."""
