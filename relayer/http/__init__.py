"""The HTTP server: authenticate and validate each request, call one use case, and map errors to problem responses."""
