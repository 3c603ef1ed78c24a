"""Configuration of a relayer: its settings, their file, the location of the store, and the sources of keys.

`relayer.settings.config` defines and loads all settings; `relayer.settings.keys` finds or creates the keys they refer to. This
package imports no adapters. It is imported by the modules that assemble a relayer and by its commands.
"""
