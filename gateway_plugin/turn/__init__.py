"""A turn as the host describes it: its messages and query, the gates that decide about it, and its results."""
