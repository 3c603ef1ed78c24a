"""Background jobs of a language model: facts of captures and summaries of sessions; pending jobs are in the log."""
