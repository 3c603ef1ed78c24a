"""From turns to memories worth keeping."""
