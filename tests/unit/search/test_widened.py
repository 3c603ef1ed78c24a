from __future__ import annotations

import numpy as np

from relayer.search.rows import widened


def test_every_float16_is_widened_to_the_float32_that_it_is():
    every = np.arange(2**16, dtype=np.uint16).view(np.float16).reshape(-1, 4)
    wide = widened(every)
    assert wide.dtype == np.float32
    assert np.array_equal(wide, every.astype(np.float32), equal_nan=True)
    assert np.array_equal(widened(every[::2]), wide[::2], equal_nan=True)
    assert widened(wide) is wide
    assert widened(every[:0]).shape == (0, 4)
