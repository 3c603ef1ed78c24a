"""What open namespaces are counted as is what they take."""

from __future__ import annotations

import pytest

from bench.log_memory import fill, measured


@pytest.mark.tier("all")
@pytest.mark.parametrize(("size", "how_many"), [(50, 80), (1_000, 4)])
async def test_the_bytes_that_the_cache_counts_are_within_a_half_of_resident_memory(tmp_path, size, how_many):
    await fill(tmp_path, size, how_many)
    for begin in ("log", "index"):
        found = measured(tmp_path, how_many, begin)
        assert 0.67 < found["believed"] / found["resident"] < 1.5, (begin, found)
