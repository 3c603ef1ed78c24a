"""Capture after a turn: which messages are worth remembering, and how they reach the outbox."""
