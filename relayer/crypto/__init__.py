"""The relayer's own key hierarchy, namespace keys and fleet keys; pure functions over bytes."""
