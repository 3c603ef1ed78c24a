"""Memories as files: exports of other systems, files that people read, and files of this machine that are indexed.

The package imports the client, the transcripts and the filters of capture; commands import it.
"""
