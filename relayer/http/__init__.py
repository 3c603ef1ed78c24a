"""The HTTP front: authenticate, validate, call one service, map errors."""
