"""The commands of memories as files: ``import``, ``export`` and ``index``."""
