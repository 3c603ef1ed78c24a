"""Priors of the null distribution; ``python bench/relevance_prior.py`` measures and prints them anew."""

from __future__ import annotations

from relayer.search.relevance import Null, Prior

__all__ = ["LEXICAL_PRIOR", "PRIORS"]

# By sha256 of the model's weights: vectors of two models do not compare.
PRIORS: dict[str, Prior] = {
    # all-MiniLM-L6-v2
    "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6": Prior(
        (
            (1, Null(0.004, 0.244)),
            (3, Null(0.056, 0.285)),
            (10, Null(0.104, 0.359)),
            (30, Null(0.143, 0.448)),
            (100, Null(0.193, 0.488)),
            (158, Null(0.224, 0.512)),
        )
    ),
}

# Of the covered share of terms alone, when no vector can be had.
LEXICAL_PRIOR = Prior(
    (
        (1, Null(0.000, 0.000)),
        (3, Null(0.000, 0.149)),
        (10, Null(0.000, 0.216)),
        (30, Null(0.000, 0.297)),
        (100, Null(0.000, 0.340)),
        (158, Null(0.000, 0.340)),
    )
)
