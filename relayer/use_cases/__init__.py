"""What a client can ask for, a module each."""
