"""The extraction of memories worth keeping from the messages of a conversation."""
