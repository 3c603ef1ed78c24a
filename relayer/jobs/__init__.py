"""What a language model does later: facts of captures and notes of sessions, promised in the log."""
