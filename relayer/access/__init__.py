"""Access control: accounts and revocations, the daily fleet keys, quotas, and what an accepted request may do."""
