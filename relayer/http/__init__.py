"""The way of a request: authenticate, validate, call one service, map errors."""
