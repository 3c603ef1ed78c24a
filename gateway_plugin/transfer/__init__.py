"""Memories as files: what other systems wrote, and what people want to read."""
