"""A namespace that is in use: its log as state, its records and index, and which ones are kept open. Answers questions."""
