"""From what a client sends to what is appended: drafts, redaction, merging; and how a memory is shown."""
