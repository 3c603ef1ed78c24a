"""`fit_prior`, remembered: by what it was asked, for as long as the process lives."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relayer.search.baseline import Prior, fit_prior

_fitted: dict[tuple[object, ...], Prior] = {}


def fitted_once(
    rows: NDArray[np.float32] | None, prompts: NDArray[np.float32] | None, *texts: tuple[str, ...]
) -> Prior:
    """Return what `fit_prior` returns."""
    asked = (*(None if one is None else (one.shape, one.tobytes()) for one in (rows, prompts)), *texts)
    if asked not in _fitted:
        _fitted[asked] = fit_prior(rows, prompts, *texts)
    return _fitted[asked]
