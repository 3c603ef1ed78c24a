"""What an operator does to a store: verify, repair, back up, restore, inspect."""
