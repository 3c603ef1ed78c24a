"""What an operator does to a store by hand: verify, repair, inspect, compact, collect, count, upgrade, back up, restore."""
