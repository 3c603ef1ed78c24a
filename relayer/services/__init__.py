"""One module per use case; each takes its ports as parameters."""
