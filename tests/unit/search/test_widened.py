"""Rows in float16 score by the float32 that they are."""

import numpy as np

from relayer.search.rows import widened


def test_every_finite_float16_is_widened_to_the_float32_that_it_is():
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)].reshape(-1, 4)
    wide = widened(finite)
    assert wide.dtype == np.float32
    # To the bit: a zero keeps its sign.
    assert np.array_equal(wide.view(np.uint32), finite.astype(np.float32).view(np.uint32))
    assert np.array_equal(widened(finite[::2]), wide[::2])
    assert widened(wide) is wide
    assert widened(finite[:0]).shape == (0, 4)


def test_what_was_widened_can_be_written_to_and_its_source_stays():
    rows = np.ones((2, 4), np.float16)
    wide = widened(rows)
    wide[0] = 0
    assert rows.all()
