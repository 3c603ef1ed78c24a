"""Limits for the connections of a server: how many there are, how long a request head may take, and which one is closed first."""

from __future__ import annotations

import resource
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

# The store opens up to some sixty files at once; models, logs and files that are read at startup add some dozens.
_RESERVED_FILES = 192


def connections_within_files(most: int) -> int:
    """Return the number of connections, at most ``most``, that leaves enough file descriptors for other files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else min(most, soft - min(_RESERVED_FILES, soft // 2))


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of one process.

    Attributes:
        most: maximum number of open connections.
        per_address: maximum number of open connections of one peer address; 0 for no limit.
        head_seconds: maximum seconds from the first byte of a request, or from the opening of the connection, to the end of
            the request head.
        answer_seconds: maximum seconds in which the peer may read next to nothing of a response.
    """

    most: int = 1024
    per_address: int = 0
    head_seconds: float = 15.0
    answer_seconds: float = 30.0


@dataclass(slots=True)
class _State:
    end: Callable[[], None]
    address: str
    due: float | None
    account: str = ""
    busy: bool = False


class Connections:
    """The open connections of one process, of a relayer or an MCP server. Times are monotonic, in seconds.

    The server reports each opened connection, each complete request head and each response that was sent. If there are too many
    connections, one that never sent an accepted request is closed first, then an idle one, then one of the account with the most.
    """

    def __init__(self, limits: ConnectionLimits | None = None) -> None:
        self.limits = limits or ConnectionLimits()
        self.ended = 0
        # Ordered by last use, the most recent one last.
        self._open: OrderedDict[object, _State] = OrderedDict()
        self._of: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, connection: object, end: Callable[[], None], address: str, now: float) -> bool:
        """Register a new connection, and close another one if needed. Return False if none can be closed for it."""
        if self.limits.per_address and self._of[address] >= self.limits.per_address:
            room = self._end_one(lambda state: state.address == address)
        else:
            room = len(self._open) < self.limits.most or self._end_one(lambda _: True)
        if room:
            self._open[connection] = _State(end, address, now + self.limits.head_seconds)
            self._of[address] += 1
        return room

    def leave(self, connection: object) -> None:
        """Remove a closed connection. Calling this twice is harmless."""
        state = self._open.pop(connection, None)
        if state is not None:
            self._of[state.address] -= 1
            if not self._of[state.address]:
                del self._of[state.address]

    def heard(self, connection: object, now: float) -> None:
        """Record that the peer sent bytes. Between two requests they start a request head, which must be complete in time."""
        state = self._open.get(connection)
        if state is not None and state.due is None and not state.busy:
            state.due = now + self.limits.head_seconds

    def asked(self, connection: object) -> None:
        """Record that a request head is complete and its request is being answered."""
        state = self._open.get(connection)
        if state is not None:
            state.due, state.busy = None, True

    def accepted(self, connection: object, account: str) -> None:
        """Record that the request of a connection was accepted for an account."""
        state = self._open.get(connection)
        if state is not None:
            state.account = account

    def answered(self, connection: object) -> None:
        """Record that the response was sent, so that the connection is idle until the next request."""
        state = self._open.get(connection)
        if state is not None:
            state.busy = False
            self._open.move_to_end(connection)

    def end_late(self, now: float) -> None:
        """Close the connections whose request head is overdue."""
        for connection, state in list(self._open.items()):
            if state.due is not None and state.due <= now:
                self._end(connection)

    def _end_one(self, fits: Callable[[_State], bool]) -> bool:
        some = [(connection, state) for connection, state in self._open.items() if fits(state)]
        victim = next((connection for connection, state in some if not state.account), None)
        if victim is None:
            victim = next((connection for connection, state in some if not state.busy), None)
        if victim is None:
            [(account, count)] = Counter(state.account for _, state in some).most_common(1)
            if count == 1:
                return False
            victim = next(connection for connection, state in some if state.account == account)
        self._end(victim)
        return True

    def _end(self, connection: object) -> None:
        end = self._open[connection].end
        self.leave(connection)
        self.ended += 1
        end()
