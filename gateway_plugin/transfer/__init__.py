"""Memories as files: what other systems wrote, what people want to read, and which files of this machine are kept as memories.

Imports client, transcripts and the filters of capture; commands import it.
"""
