"""How an operation or a request is known again: what became of each, for as long as it can come back (I8)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field

from relayer.domain.operations import OperationId, Origin
from relayer.domain.outcomes import Outcome

__all__ = ["NONCES_KEPT", "NONCE_LIFE_MS", "KnownOutcomes", "OutcomeRows", "RequestOutcomes"]

NONCE_LIFE_MS = 10 * 60 * 1000
NONCES_KEPT = 4096

OutcomeRows = Sequence[tuple[int, OperationId, Outcome]]
"""The outcomes of the operations whose nonces are kept, oldest first, with the time of their entries."""

RequestOutcomes = tuple[bytes, dict[int, Outcome]]
"""Of a request with an idempotency key: the body it belongs to, and what became of its operations by their index."""


@dataclass(slots=True)
class KnownOutcomes:
    """Outcomes by operation, for as long as a nonce lives, and by idempotency key, for ever.

    Attributes:
        requests: by idempotency key.
    """

    requests: MutableMapping[bytes, RequestOutcomes] = field(default_factory=dict)
    _outcomes: dict[OperationId, Outcome] = field(default_factory=dict)
    _order: deque[tuple[int, OperationId]] = field(default_factory=deque)
    # Of a stored state, until its outcomes are asked for: what returns them, and how many there are.
    _unread: tuple[Callable[[], OutcomeRows], int] | None = None

    @classmethod
    def stored(
        cls, requests: MutableMapping[bytes, RequestOutcomes], rows: Callable[[], OutcomeRows], count: int
    ) -> KnownOutcomes:
        """Go on from a stored state with so many outcomes, which ``rows`` returns when they are asked for."""
        return cls(requests, _unread=(rows, count))

    @property
    def held(self) -> tuple[int, int]:
        """How many outcomes are in memory, and how many are not read yet."""
        return len(self._outcomes), 0 if self._unread is None else self._unread[1]

    def read(self) -> None:
        """Read what a stored state has; `of` knows nothing of it before."""
        if self._unread is not None:
            known = self._unread[0]()
            self._unread = None
            self._outcomes = {operation: outcome for _, operation, outcome in known}
            self._order = deque((time, operation) for time, operation, _ in known)

    def rows(self) -> OutcomeRows:
        """Return what is kept of operations."""
        self.read()
        return tuple((time, known, self._outcomes[known]) for time, known in self._order)

    def of(self, operation: OperationId) -> Outcome | None:
        """Return what became of an operation, if it is kept."""
        return self._outcomes.get(operation)

    def of_request(self, author: bytes, nonce: bytes) -> dict[int, Outcome]:
        """Return what became of a request's operations by their index, in the order of the log, as far as they are kept."""
        return {
            index: outcome
            for (by, under, index), outcome in self._outcomes.items()
            if under == nonce and by == author
        }

    def note(self, operation: OperationId, outcome: Outcome, time: int) -> None:
        """Keep what became of an operation in an entry of this time."""
        self._outcomes[operation] = outcome
        self._order.append((time, operation))

    def note_request(self, origin: Origin, outcome: Outcome) -> None:
        """Keep what became of an operation of a request with an idempotency key."""
        self.requests.setdefault(origin.idempotency, (origin.body, {}))[1][origin.index] = outcome

    def trim(self, now: int) -> None:
        """Let go of nonces that can no longer come back (I8)."""
        while len(self._order) > NONCES_KEPT and self._order[0][0] < now - NONCE_LIFE_MS:
            _, operation = self._order.popleft()
            self._outcomes.pop(operation, None)
