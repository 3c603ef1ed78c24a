"""Recall before a turn: from the user's prompt to the block of memories that goes into the model's prompt."""
