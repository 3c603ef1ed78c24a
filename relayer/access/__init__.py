"""Who may ask: accounts with their revocations, the keys of the day, and what an accepted request may do."""
