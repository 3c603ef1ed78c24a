"""How many connections a server has, how long a request head may take, and which connection ends for a new one."""

from __future__ import annotations

import resource
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

# A store takes up to some sixty files at once, models, logs and what is read at the start some dozens.
_RESERVED_FILES = 192


def connections_within_files(most: int) -> int:
    """Return how many connections there may be, ``most`` at most, so that the process can open other files, too."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else min(most, soft - min(_RESERVED_FILES, soft // 2))


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds of one process.

    Attributes:
        most: connections at once.
        per_address: of one peer address; 0: any number.
        head_seconds: from the first byte of a request, or the connection's beginning, to the end of its head.
        answer_seconds: how long the peer may take next to nothing of an answer.
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
    """The connections of one process, of a relayer or an MCP server. Times are monotonic, in seconds.

    Tell it of each connection that opens, of each request head that is whole, of each answer that was sent. Where there are too many,
    one that was never accepted ends first, then one that is idle, then one of the account that has the most.
    """

    def __init__(self, limits: ConnectionLimits | None = None) -> None:
        self.limits = limits or ConnectionLimits()
        self.ended = 0
        # In the order of their last use, the latest last.
        self._open: OrderedDict[object, _State] = OrderedDict()
        self._of: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, connection: object, end: Callable[[], None], address: str, now: float) -> bool:
        """Count a new connection, ending another one if need be; False when none can go for it.

        Args:
            connection: names it.
            end: breaks it off.
            address: of the peer.
            now: the time.
        """
        if self.limits.per_address and self._of[address] >= self.limits.per_address:
            room = self._end_one(lambda state: state.address == address)
        else:
            room = len(self._open) < self.limits.most or self._end_one(lambda _: True)
        if room:
            self._open[connection] = _State(end, address, now + self.limits.head_seconds)
            self._of[address] += 1
        return room

    def leave(self, connection: object) -> None:
        """Forget a connection that is over; also twice."""
        state = self._open.pop(connection, None)
        if state is not None:
            self._of[state.address] -= 1
            if not self._of[state.address]:
                del self._of[state.address]

    def heard(self, connection: object, now: float) -> None:
        """Note bytes of a peer; between two requests they begin a head, which must end in time."""
        state = self._open.get(connection)
        if state is not None and state.due is None and not state.busy:
            state.due = now + self.limits.head_seconds

    def asked(self, connection: object) -> None:
        """Note that a head is whole, and its request being answered."""
        state = self._open.get(connection)
        if state is not None:
            state.due, state.busy = None, True

    def accepted(self, connection: object, account: str) -> None:
        """Note that its request was let in."""
        state = self._open.get(connection)
        if state is not None:
            state.account = account

    def answered(self, connection: object) -> None:
        """Note that the answer was sent: the connection waits for the next request."""
        state = self._open.get(connection)
        if state is not None:
            state.busy = False
            self._open.move_to_end(connection)

    def end_late(self, now: float) -> None:
        """End the connections whose head does not come."""
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
