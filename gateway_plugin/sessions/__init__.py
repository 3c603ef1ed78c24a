"""Sessions: their identities, switches and the state that lasts from one turn to the next."""
