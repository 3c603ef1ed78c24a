"""What is known of a turn and its session: what the host told, whose turn it is, whether memory is on, and what was noted of it.

Imports identity, gates and the outbox's marks, and neither recall nor capture, the two halves of a turn, which import it.
"""
