import numpy as np
import pytest

from relayer.search.rows import search_row, validated_vector


def unit(*values: float):
    vector = np.array(values, dtype=np.float32)
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize(
    "vector",
    [
        np.zeros(3),
        np.array([np.nan, 0, 1]),
        np.array([np.inf, 0, 0]),
        np.array([1.0, 1.0, 1.0]),
        np.array([1.0, 0.0]),
        np.array([[1.0, 0.0, 0.0]]),
        np.array([0.01, 0.0, 0.0]),
    ],
    ids=["zero", "nan", "infinite", "too-long", "dimension", "matrix", "vanishing"],
)
def test_a_vector_that_cannot_be_ranked_is_refused(vector):
    with pytest.raises(ValueError, match="vector"):
        validated_vector(vector, 3)


def test_a_refusal_shows_no_component():
    with pytest.raises(ValueError, match="vector") as refusal:
        validated_vector(np.array([7.25, 7.25, 7.25]), 3)
    assert "7.25" not in str(refusal.value)


def test_float16_and_float64_become_float32():
    for dtype in (np.float16, np.float64):
        assert validated_vector(unit(1, 2, 3).astype(dtype), 3).dtype == np.float32


def test_a_memory_without_context_is_searched_by_its_own_vector():
    own = unit(1, 0, 0)
    assert np.array_equal(search_row(own, None), own)


def test_context_that_disagrees_shortens_the_row():
    own, context = unit(1, 0, 0), unit(0, 1, 0)
    row = search_row(own, context)
    np.testing.assert_allclose(row, [0.5, 0.5, 0.0])
    # Not normalised again: it matches either half with half the cosine, not with 0.71.
    assert row @ own == pytest.approx(0.5)


def test_a_row_loses_nothing_when_it_is_stored_as_float16():
    own, context = unit(1, 2, 3), unit(3, 1, 2)
    row = search_row(own, context)
    assert np.array_equal(row.astype(np.float16).astype(np.float32), row)
    assert np.allclose(row, (own + context) / 2, atol=1e-3)
