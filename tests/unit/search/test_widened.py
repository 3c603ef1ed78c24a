"""Rows in float16 score by the float32 that they are."""

import numpy as np
import pytest

from relayer.search.rows import widened, widened_pieces


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


@pytest.mark.parametrize("cuts", [(), (1,), (6,), (3, 4), (1, 2, 3, 5, 16), (0, 7, 7, 24)])
def test_rows_are_widened_from_pieces_wherever_they_were_cut(cuts):
    rows = np.linspace(-1, 1, 12, dtype=np.float16).reshape(3, 4)
    data = rows.tobytes()
    ends = (*cuts, len(data))
    pieces = [memoryview(data)[start:end] for start, end in zip((0, *cuts), ends, strict=True)]
    wide = widened_pieces(pieces, 4)
    assert np.array_equal(wide, rows.astype(np.float32))
    wide[0] = 0
    assert widened_pieces([data], 4).any(axis=1).all()


def test_what_is_no_whole_number_of_rows_is_refused():
    with pytest.raises(ValueError, match="dimension"):
        widened_pieces([bytes(8), bytes(3)], 4)
    assert widened_pieces([], 4).shape == (0, 4)
