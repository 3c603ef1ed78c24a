"""After a turn: which of its messages are worth remembering, and their way into the outbox.

Imports `gateway_plugin.turn`, the outbox, and recall only to drop answers that a capture outdates; the plugin and what turns files
into memories import it.
"""

from gateway_plugin.capture.capturer import MAX_SESSION, Captured, capture_turn

__all__ = ["MAX_SESSION", "Captured", "capture_turn"]
