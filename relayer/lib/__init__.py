"""Shared building blocks for all layers: concurrency and load control, periodic tasks, the job queue, text classifiers."""
