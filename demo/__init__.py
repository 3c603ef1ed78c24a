"""``python -m demo``: a relayer and two agents for real, what they replay, and what must come of it."""
