"""What the demonstration replays: a conversation between two agents and their people, and questions about it."""
