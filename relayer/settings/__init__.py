"""What an operator tells a relayer: values of settings and their file, where the store is, and where keys come from.

`relayer.settings.config` is the settings as a whole. Imports no adapter; what composes a relayer and its commands import it.
"""
