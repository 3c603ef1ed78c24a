"""The numbers by which a prompt's memories are chosen by their relevance.

The relayer chooses them among the memories of one namespace (`relayer.search.relevance.chosen`). A client that merges the
responses of several namespaces chooses among all of them by the same numbers.
"""

from __future__ import annotations

from typing import Final

CHOSEN: Final = 0.3
"""The relevance of the least probable memory that a prompt gets; one of probability p has CHOSEN + (1 - CHOSEN) * p."""
CERTAIN: Final = 0.3
"""The probability of the best memory from which a result is certain."""
PROBABLY_HELPS: Final = CHOSEN + (1 - CHOSEN) * CERTAIN
"""The relevance of a memory of that probability."""
LEAST_SHARE: Final = 0.06
"""The share of the best memory's probability that others need."""
MOST_UNCERTAIN: Final = 3
"""The most memories of a result that is not certain."""
