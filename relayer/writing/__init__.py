"""Memories before they are stored (drafts, redaction, merging), and their form in responses."""
