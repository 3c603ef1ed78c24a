"""Adapters that implement `relayer.ports`: stores, embedders, chat models, clocks. Only code that starts a process imports them."""
