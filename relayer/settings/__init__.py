"""What an operator tells a relayer: values of settings, their file, where the store is, where keys come from, and what ``init`` writes.

`relayer.settings.config` is the settings as a whole. Imports no adapter; what composes a relayer and its commands import it.
"""
