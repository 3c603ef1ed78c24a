from __future__ import annotations

import pytest
from wire_vectors import vectors


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``@pytest.mark.vectors("file", "list")`` runs a test once per row of a list of a vector file."""
    for mark in metafunc.definition.iter_markers("vectors"):
        rows = vectors(mark.args[0])[mark.args[1]]
        ids = [row.get("why") if isinstance(row, dict) else None for row in rows]
        metafunc.parametrize("row", rows, ids=[name or str(at) for at, name in enumerate(ids)])


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "vectors(file, list): once per row of a list of a vector file")
