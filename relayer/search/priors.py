"""Priors of the null distribution; ``python bench/relevance_prior.py`` measures and prints them anew."""

from __future__ import annotations

from relayer.search.relevance import Null, Prior

__all__ = ["LEXICAL_PRIOR", "PRIORS"]

# By sha256 of the model's weights: vectors of two models do not compare.
PRIORS: dict[str, Prior] = {
    # all-MiniLM-L6-v2
    "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6": Prior(
        (
            (1, Null(0.038, 0.170)),
            (3, Null(0.087, 0.223)),
            (10, Null(0.135, 0.296)),
            (30, Null(0.185, 0.384)),
            (100, Null(0.248, 0.544)),
            (158, Null(0.268, 0.566)),
        )
    ),
}

# Of the covered share of terms alone, when no vector can be had.
LEXICAL_PRIOR = Prior(
    (
        (1, Null(0.000, 0.000)),
        (3, Null(0.000, 0.000)),
        (10, Null(0.000, 0.198)),
        (30, Null(0.000, 0.281)),
        (100, Null(0.000, 0.393)),
        (158, Null(0.138, 0.402)),
    )
)
