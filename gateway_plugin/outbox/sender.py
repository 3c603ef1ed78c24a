"""Delivery of the outbox's items to the relayer, in order within each namespace, in the background.

`Sender` runs the delivery loop. After a temporary failure an item stays in the outbox and is retried with growing pauses
(`Pauses`), which hold back its own namespace only; if the account's quota is full, the pause is long. An item that the relayer
refuses permanently becomes a dead letter, and the next one is delivered. Waiting for delivery ends at the caller's timeout, or
earlier if the awaited deliveries fail. Several processes may share an outbox: the one that claims it delivers for all, and
the others check regularly whether it still does. `Positions` stores the newest log position of each namespace. `erase_texts`
deletes items that contain what a person has erased.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from gateway_plugin.calls.calling import uneven
from gateway_plugin.client import RelayerClient
from gateway_plugin.errors import GatewayError, RelayerRefused, RelayerUnreachable, RelayerUntrusted
from gateway_plugin.keys.identity import Identity, NamespaceRef
from gateway_plugin.outbox.queue import (
    Outbox,
    OutboxItem,
    OutboxUnavailable,
    RevisionConflict,
    ValueUpdate,
    Versioned,
)
from relayer.wire.calls import doubled
from relayer.wire.codec import Malformed, Reader, lp
from relayer.wire.fields import Audience, Position
from relayer.wire.schemas import AnalyzeRequest, AnalyzeResponse, TurnItem

_LONGEST: Final = 60.0


@dataclass(slots=True)
class _Pause:
    """A namespace whose last delivery failed."""

    error: GatewayError
    failures: int
    serial: int
    until: float


class Pauses:
    """The pauses of one sender.

    The ``first`` pause, in seconds, is doubled up to a minute, and shortened by up to a half at random.

    Attributes:
        failures: how many there were in all.
    """

    def __init__(self, first: float) -> None:
        self.failures = 0
        self._first = first
        self._pauses: dict[str, _Pause] = {}

    def __contains__(self, namespace: str) -> bool:
        return namespace in self._pauses

    @property
    def latest(self) -> str:
        """Return the message of the newest failure among the current pauses; "" if there is none."""
        newest = max(self._pauses.values(), key=lambda pause: pause.serial, default=None)
        return str(newest.error) if newest is not None else ""

    def failed(self, namespace: str, error: GatewayError, now: float, *, at_least: float = 0.0) -> None:
        """Begin the next pause of a namespace, of ``at_least`` so many seconds."""
        self.failures += 1
        before = self._pauses.get(namespace)
        failures = before.failures + 1 if before is not None else 1
        pause = max(at_least, uneven(doubled(self._first, failures - 1, _LONGEST)))
        self._pauses[namespace] = _Pause(error, failures, self.failures, now + pause)

    def delivered(self, namespace: str) -> None:
        """End a namespace's pause, and those of all that could not reach or trust the relayer, because it responds now."""
        self.end(namespace)
        for other, pause in list(self._pauses.items()):
            if isinstance(pause.error, RelayerUnreachable | RelayerUntrusted):
                del self._pauses[other]

    def end(self, namespace: str) -> None:
        """End a namespace's pause: what failed is given up."""
        self._pauses.pop(namespace, None)

    def clear(self) -> None:
        """End all pauses, because no item is waiting any more."""
        self._pauses.clear()

    def cut_short(self) -> None:
        """Let all namespaces be retried now. Their numbers of failures are kept."""
        for pause in self._pauses.values():
            pause.until = 0.0

    def ends(self, now: float) -> dict[str, float]:
        """Return the namespaces that still wait, and until when."""
        return {namespace: pause.until for namespace, pause in self._pauses.items() if pause.until > now}

    def failed_since(self, failures: int) -> set[str]:
        """Return the namespaces that failed after so many failures, and were not delivered to since."""
        return {namespace for namespace, pause in self._pauses.items() if pause.serial > failures}


# Of the answers that blame the request, these pass: not signed in, account revoked for now, timed out, out of order, too many.
_PASSING: Final = frozenset({401, 403, 408, 409, 429})
# Of those, these do not pass by themselves: asking again would only hide that a person has to look.
_LASTING: Final = {
    "wrong_namespace_key": "the namespace was created with a different secret than the one of this gateway",
    "wrong_custody": "the namespace was created by a client whose key is managed by the relayer",
}
# And these pass when a person acted: kept, told once, and asked for again after so many seconds, not every minute.
_FULL: Final = "quota_exceeded"
_FULL_PAUSE: Final = 900.0
# An unexpected failure may pass; one that comes back this often is the item's own.
_STRANGE_FAILURES: Final = 5
_LOOK_SECONDS: Final = 1.0
_LOOK_SECONDS_WAITED_FOR: Final = 0.05
# Another process delivers, and why it does not is not known here: a turn waits for it no longer than this.
_PATIENCE_WITH_OTHERS: Final = 0.3
_T = TypeVar("_T")


class Sender:
    """One delivery loop over one outbox.

    Args:
        identity_of: finds the keys for an item; raises `IdentityError` when they are not held.
        first_pause: seconds before the first retry; doubled up to a minute.
        notify: told a sentence for a person when turns are given up, or wait for room at the relayer; once for each agent and reason.
        heard: told the position that the relayer gave with a delivery.
        judged: told what the relayer kept of a captured turn, and what not.
        meanwhile: called, off the event loop, whenever the outbox was worked on and at the end.
        promised: told whose jobs wait for the host's model; None where it has none to lend.
    """

    def __init__(
        self,
        client: RelayerClient,
        outbox: Outbox,
        identity_of: Callable[[NamespaceRef], Identity],
        *,
        first_pause: float = 1.0,
        notify: Callable[[str], None] | None = None,
        heard: Callable[[NamespaceRef, Position], None] | None = None,
        judged: Callable[[OutboxItem, AnalyzeResponse], None] | None = None,
        meanwhile: Callable[[], None] | None = None,
        promised: Callable[[NamespaceRef], None] | None = None,
    ) -> None:
        self.delivered = 0
        self._promised = promised
        self._client = client
        self._outbox = outbox
        self._identity_of = identity_of
        self._notify = notify
        self._heard = heard
        self._judged = judged
        self._meanwhile = meanwhile
        self._strange: Counter[str] = Counter()
        self._told: set[tuple[str, str]] = set()
        self._pauses = Pauses(first_pause)
        self._broken = ""
        self._waited_for = 0
        self._work = asyncio.Event()
        self._progress = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._attempt: tuple[OutboxItem, asyncio.Task[None]] | None = None

    @property
    def last_error(self) -> str:
        """Return the message of the latest failure that holds back delivery; "" if there is none."""
        return self._pauses.latest or self._broken

    def wake(self) -> None:
        """Note that the outbox has something; starts the loop when it is not running yet."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="memrelay-sender")
        self._work.set()

    def start(self) -> None:
        """Go on with what an earlier process left behind."""
        if self._task is None and self._outbox.waiting():
            self.wake()

    async def settled(self, namespace: str, seconds: float) -> bool:
        """Wait until a namespace has nothing waiting; False when time is up or its deliveries fail."""
        if self._outbox.waiting(namespace) == 0:
            return True
        if not self._outbox.claim():
            seconds = min(seconds, _PATIENCE_WITH_OTHERS)
        self.wake()
        await self._wait(lambda: self._outbox.waiting(namespace) == 0 or namespace in self._pauses, seconds)
        return self._outbox.waiting(namespace) == 0

    async def flush(self, seconds: float) -> bool:
        """Try everything now, and wait until nothing waits; False when time is up or what still waits failed again."""
        if self._outbox.waiting() == 0:
            return True
        before = self._pauses.failures
        self._pauses.cut_short()
        self.wake()
        await self._wait(lambda: self._nothing_but(self._pauses.failed_since(before)), seconds)
        return self._outbox.waiting() == 0

    async def aclose(self) -> None:
        """Stop the loop; what was not delivered stays in the outbox."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        await off_loop(self._outbox, self._outbox.tidy)
        self._outbox.release()
        await self._meantime()

    def abandon(self, matches: Callable[[OutboxItem], bool]) -> None:
        """End the attempt under way if its item matches: it was destroyed. What was sent already cannot be called back."""
        if self._attempt is not None and matches(self._attempt[0]):
            self._attempt[1].cancel()

    async def _wait(self, done: Callable[[], bool], seconds: float) -> None:
        self._waited_for += 1
        self._work.set()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds), self._progress:
                    await self._progress.wait_for(done)
        finally:
            self._waited_for -= 1

    def _nothing_but(self, namespaces: set[str]) -> bool:
        """Return whether no other namespace has waiting items; True also if the outbox cannot be read."""
        if not namespaces:
            return self._outbox.waiting() == 0 or bool(self._broken)
        try:
            return self._outbox.head(namespaces) is None
        except OutboxUnavailable:
            return True

    async def _run(self) -> None:
        while True:
            self._work.clear()
            try:
                until = await self._round()
                self._broken = ""
            except OutboxUnavailable as error:
                self._broken = str(error)
                until = asyncio.get_running_loop().time() + _LOOK_SECONDS
            async with self._progress:
                self._progress.notify_all()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._work.wait()

    async def _round(self) -> float | None:
        """Deliver what can be delivered now; return when to look again, None for only when woken."""
        loop = asyncio.get_running_loop()
        while self._outbox.claim():
            now = loop.time()
            ends = self._pauses.ends(now)
            item = self._outbox.head(ends)
            if item is not None:
                await self._try(item)
                continue
            await self._meantime()
            if self._outbox.waiting() == 0:
                self._pauses.clear()
                self._outbox.release()
                return None
            # Others may add to a file without being able to wake this process.
            latest = [now + _LOOK_SECONDS] if self._outbox.durable else []
            return min([*ends.values(), *latest], default=None)
        await self._meantime()
        if self._outbox.waiting() == 0:
            return None
        return loop.time() + (_LOOK_SECONDS_WAITED_FOR if self._waited_for else _LOOK_SECONDS)

    async def _meantime(self) -> None:
        if self._meanwhile is not None:
            with contextlib.suppress(OutboxUnavailable):
                await off_loop(self._outbox, self._meanwhile)

    async def _try(self, item: OutboxItem) -> None:
        namespace, loop = item.owner.namespace, asyncio.get_running_loop()
        try:
            if await self._attempted(item):
                self._pauses.delivered(namespace)
        except GatewayError as error:
            full = isinstance(error, RelayerRefused) and error.code == _FULL
            self._pauses.failed(namespace, error, loop.time(), at_least=_FULL_PAUSE if full else 0.0)
            if full:
                agent = item.owner.agent
                self._tell(agent, f"captured turns of agent {agent} wait in the outbox: {error}")
        except Exception as error:  # noqa: BLE001 - one bad item must not stop the others
            kind = type(error).__name__
            self._strange[item.key] += 1
            if self._strange[item.key] < _STRANGE_FAILURES:
                strange = GatewayError(f"a captured turn could not be sent ({kind})")
                self._pauses.failed(namespace, strange, loop.time())
            else:
                del self._strange[item.key]
                self._pauses.end(namespace)
                await self._give_up(item, f"it could not be sent ({kind})")
        async with self._progress:
            self._progress.notify_all()
        # A caller that waits for the relayer does not wait for this machine's disk.
        await off_loop(self._outbox, self._outbox.tidy)

    async def _attempted(self, item: OutboxItem) -> bool:
        """Deliver an item; False when it was abandoned meanwhile. Raises as `_deliver`."""
        attempt = asyncio.create_task(self._deliver(item))
        self._attempt = (item, attempt)
        try:
            await asyncio.wait({attempt})
        finally:
            self._attempt = None
            if not attempt.done():
                attempt.cancel()
                await asyncio.wait({attempt})
        if attempt.cancelled():
            return False
        attempt.result()
        return True

    async def _deliver(self, item: OutboxItem) -> None:
        """Deliver or bury an item; raises `GatewayError` when it should be tried again."""
        try:
            identity, request = self._identity_of(item.owner), item.request
            if self._promised is not None:
                request = request.model_copy(update={"host_model": True})
            answer = await self._client.analyze(identity, request)
            if self._heard is not None and answer.position is not None:
                self._heard(item.owner, answer.position)
            if self._judged is not None and item.request.turns:
                self._judged(item, answer)
            if self._promised is not None and answer.host_model:
                self._promised(item.owner)
        except RelayerRefused as error:
            if not error.accepted:
                # Of this request, or of a copy that a proxy changed: the item stays.
                raise
            # The key says what the item says: under the same key, the relayer has it already.
            if error.code != "idempotency_conflict":
                if error.code not in _LASTING and (error.status in _PASSING or error.status >= 500):
                    raise
                if not item.request.turns:
                    # The end of a session, to a relayer that has no use for it: nothing of anybody's is lost.
                    await off_loop(self._outbox, self._outbox.delivered, item)
                    return
                advice = f", {_LASTING[error.code]}" if error.code in _LASTING else ""
                await self._give_up(item, f"{error.status} {error.code}{advice}")
                return
        self._outbox.pass_over(item)
        self.delivered += 1

    async def _give_up(self, item: OutboxItem, reason: str) -> None:
        await off_loop(self._outbox, self._outbox.refused, item, reason)
        agent = item.owner.agent
        self._tell(agent, f"a captured turn of agent {agent} was dropped: {reason}", reason)

    def _tell(self, agent: str, sentence: str, reason: str = _FULL) -> None:
        if self._notify is not None and (agent, reason) not in self._told:
            self._told.add((agent, reason))
            self._notify(f"memrelay: {sentence}")


async def off_loop(outbox: Outbox, work: Callable[..., _T], *arguments: object) -> _T:
    """Do something that writes to an outbox, off the event loop where it waits for a disk."""
    if not outbox.durable:
        return work(*arguments)
    try:
        thread = asyncio.get_running_loop().run_in_executor(None, lambda: work(*arguments))
    except RuntimeError:
        # The interpreter is ending and starts no threads any more; the write is still owed.
        return work(*arguments)
    return await thread


_POSITION: Final = "position"
_RESETS: Final = "position resets"
"""The name of a value without content: its revision counts how often the position was forgotten."""


class Positions:
    """The newest position of each namespace's log that this gateway has seen, so that a log set back is noticed.

    A relayer that is asked to be at least as far as the remembered position either is, or says ``rollback_detected``.
    `persist` writes what changed, sealed, next to the outbox, from any thread: a store that was set back while no
    gateway ran is noticed too. `forget` accepts a log as it is, for all processes that share the outbox; each of them
    learns of it from `was_reset`.
    """

    def __init__(self, outbox: Outbox, *, kept: bool = True) -> None:
        self._outbox = outbox
        self._kept = kept
        self._known: dict[str, Position | None] = {}
        self._resets: dict[str, int] = {}
        self._changed: dict[str, NamespaceRef] = {}
        self._lock = threading.Lock()

    @property
    def changed(self) -> bool:
        """Return whether there are changes to write."""
        return bool(self._changed)

    def newest(self, owner: NamespaceRef) -> Position | None:
        """Return the newest position seen, or None."""
        if owner.namespace not in self._known:
            self.was_reset(owner)
        return self._known.setdefault(owner.namespace, None)

    def saw(self, owner: NamespaceRef, position: Position) -> None:
        """Note a position, unless a newer one is known."""
        known = self.newest(owner)
        if known is None or position.seq > known.seq:
            self.replace(owner, position)

    def replace(self, owner: NamespaceRef, position: Position | None) -> None:
        """Note a position whatever is known: the relayer could not compare the known one."""
        with self._lock:
            self._known[owner.namespace] = position
            if self._kept:
                self._changed[owner.namespace] = owner

    def forget(self, owner: NamespaceRef) -> None:
        """Forget the position of a namespace, because its owner erased it or accepts its state.

        Raises:
            OutboxUnavailable: the file cannot be written.
        """
        self._outbox.compare_and_set(
            ValueUpdate(owner, _POSITION, b""), ValueUpdate(owner, _RESETS, b"", lasting=True)
        )

    def was_reset(self, owner: NamespaceRef) -> bool:
        """Return whether a process called `forget` for a namespace since the last call here, and read the position again then."""
        namespace = owner.namespace
        try:
            stored, resets = self._read(owner)
        except OutboxUnavailable:
            return False
        with self._lock:
            before = self._resets.get(namespace)
            self._resets[namespace] = resets
            # The count is lower after the file was lost, of which the owner knows nothing.
            if before is None or resets <= before:
                self._known.setdefault(namespace, _position_of(stored))
                return False
            self._known[namespace] = _position_of(stored)
            self._changed.pop(namespace, None)
            return True

    def persist(self) -> None:
        """Write what changed. Raises `OutboxUnavailable`: the file cannot be written; the next call tries again."""
        while self._changed:
            with self._lock:
                namespace, owner = next(iter(self._changed.items()))
                position = self._known[namespace]
                del self._changed[namespace]
            try:
                value = b"" if position is None else lp(position.seq, bytes.fromhex(position.digest))
                stored, resets = self._read(owner)
                # A position of before a reset must not come back; `was_reset` reads the current one.
                if resets <= self._resets.get(namespace, resets):
                    self._outbox.compare_and_set(ValueUpdate(owner, _POSITION, value, stored.revision))
            except (OutboxUnavailable, RevisionConflict) as error:
                with self._lock:
                    self._changed.setdefault(namespace, owner)
                if isinstance(error, OutboxUnavailable):
                    raise

    def _read(self, owner: NamespaceRef) -> tuple[Versioned, int]:
        stored, resets = self._outbox.get_all(((owner, _POSITION), (owner, _RESETS)))
        return stored, resets.revision


def _position_of(stored: Versioned) -> Position | None:
    try:
        reader = Reader(stored.value)
        return Position(seq=reader.integer(), digest=reader.bytes(32).hex())
    except Malformed:
        return None


def erase_texts(outbox: Outbox, namespace: str, texts: Iterable[str]) -> int:
    """Delete the waiting turns of a namespace that contain one of these texts, and return their number.

    Other turns of the same capture stay in the outbox under a new idempotency key. If some of them were delivered before, the
    relayer recognises their texts. They are not kept as a transcript any more, because an answer may repeat an erased text.

    Raises:
        OutboxUnavailable: the outbox cannot be changed.
    """
    wanted = [said for said in map(_said, texts) if said]

    def is_wanted(_request: AnalyzeRequest, turn: TurnItem) -> bool:
        said = _said(turn.text)
        return any(one in said for one in wanted)

    return _erase(outbox, namespace, is_wanted)


def erase_people(outbox: Outbox, namespace: str, senders: Collection[str]) -> int:
    """Delete the waiting turns of people, in groups and in direct chats that are kept apart, and return their number.

    ``senders`` are ids, see `gateway_plugin.keys.identity.platform_id`. Raises like `erase_texts`.
    """

    def is_wanted(request: AnalyzeRequest, turn: TurnItem) -> bool:
        return turn.sender in senders or (request.audience is Audience.DIRECT and request.place in senders)

    return _erase(outbox, namespace, is_wanted)


def _erase(outbox: Outbox, namespace: str, is_wanted: Callable[[AnalyzeRequest, TurnItem], bool]) -> int:
    def holds(item: OutboxItem) -> bool:
        request = item.request
        return item.owner.namespace == namespace and any(is_wanted(request, turn) for turn in request.turns)

    waiting = [letter.item for letter in outbox.queued() if letter.item and holds(letter.item)]
    dead = [letter.item for letter in outbox.dead_letters() if letter.item and holds(letter.item)]
    if waiting or dead:
        outbox.remove(holds)
    for item in waiting:
        kept = tuple(
            turn.model_copy(update={"calls": ()})
            for turn in item.request.turns
            if not is_wanted(item.request, turn)
        )
        if kept:
            # Like the relayer, keep no transcript of a turn of which a part was erased.
            changes = {"turns": kept, "idempotency_key": secrets.token_hex(16), "store_transcript": False}
            request = item.request.model_copy(update=changes)
            outbox.put(OutboxItem(item.owner, request, item.queued_at))
    return sum(is_wanted(item.request, turn) for item in (*waiting, *dead) for turn in item.request.turns)


def forget_namespace(outbox: Outbox, owner: NamespaceRef) -> int:
    """Delete the waiting items of a namespace and the recorded state of its log, and return the number of turns.

    Raises:
        OutboxUnavailable: the outbox cannot be changed.
    """
    count = _erase(outbox, owner.namespace, lambda _request, _turn: True)
    outbox.remove(lambda item: item.owner.namespace == owner.namespace)
    Positions(outbox).forget(owner)
    return count


def _said(text: str) -> str:
    return " ".join(text.split()).casefold()
