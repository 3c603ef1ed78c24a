"""Search for memories: by vectors and terms, with a decision whether any memory is relevant."""
