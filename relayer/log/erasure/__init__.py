"""Erasing: memories, namespaces, the reports that confirm it, and what destroys objects."""
