"""Finding memories of an open namespace: one by its id, those a filter means, and when each of them held."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager

from relayer.access.principal import Access
from relayer.domain.operations import Forget, Origin
from relayer.domain.outcomes import Outcome, Refusal
from relayer.domain.record import Dialogue, Record
from relayer.domain.standing import RecordState, Standing
from relayer.errors import Refused
from relayer.lib.deadline import Deadline
from relayer.namespaces.context import Context
from relayer.namespaces.namespace import OpenNamespace
from relayer.wire import codec as ulid
from relayer.wire import schemas
from relayer.wire.errors import Malformed
from relayer.wire.memories import Selection

# What a turn that was kept word for word has as memories have it.
_OF_TURNS = frozenset({"sessions", "hosts", "audiences", "created_after", "created_before"})


def select(opened: OpenNamespace, selection: Selection) -> Iterator[tuple[Record, RecordState]]:
    """Yield the memories that pass every filter, oldest first, whatever their standing; `fresh` first."""
    ids = frozenset(map(ulid.parse, selection.ids))
    for state in list(opened.log.state.records.values()):
        record = opened.view.get(state.record)
        if record is not None and (not ids or state.record in ids) and _passes(record, state, selection):
            yield record, state


def select_turns(opened: OpenNamespace, selection: Selection) -> Iterator[tuple[Dialogue, RecordState]]:
    """Yield the kept turns that pass every filter, none where one asks for what only memories have; `fresh` first.

    A turn may only repeat what another session said before: then it hangs on memories that are not of its session.
    """
    if not selection.filters <= _OF_TURNS:
        return
    for record, number in opened.view.dialogues.everything():
        turn, state = opened.view.known(number), opened.log.state.records.get(record)
        if isinstance(turn, Dialogue) and state is not None and _passes(turn, state, selection):
            yield turn, state


def active_at(record: Record, state: RecordState) -> int:
    """Return when a memory was last stored, said again, forgotten or restored, in ms."""
    return max(record.created_at, state.changed_at, state.reinforced_at)


def _passes(record: Record, state: RecordState, wanted: Selection) -> bool:
    source = record.source
    among = (
        (wanted.kinds, record.kind),
        (wanted.audiences, record.audience),
        (wanted.trusts, record.trust),
        (wanted.hosts, source.host),
        (wanted.sessions, source.session),
        (wanted.speakers, source.speaker),
    )
    if any(values and value not in values for values, value in among):
        return False
    flags = ((wanted.suspect, record.suspect), (wanted.pinned, record.pinned))
    if any(flag is not None and flag != value for flag, value in flags):
        return False
    return (
        _within(record.created_at, wanted.created_after, wanted.created_before)
        and _within(record.occurred_at, wanted.occurred_after, wanted.occurred_before)
        and (wanted.inactive_since is None or active_at(record, state) < wanted.inactive_since)
    )


def _within(at: int | None, after: int | None, before: int | None) -> bool:
    if after is None and before is None:
        return True
    return at is not None and (after is None or at >= after) and (before is None or at < before)


def holds_from(record: Record) -> int:
    """Return from when on a memory holds, in ms: as stated, or since it was said, or since it is known."""
    for time in (record.valid_from, record.occurred_at):
        if time is not None:
            return time
    return record.created_at


def holds_until(opened: OpenNamespace, record: Record, state: RecordState) -> int | None:
    """Return until when a memory holds, in ms: as stated, or until the one in its place does; None when it does."""
    if state.standing is not Standing.SUPERSEDED:
        return record.valid_to
    successor = opened.view.get(state.superseded_by)
    ended = state.changed_at
    if successor is not None and successor.valid_from is not None:
        ended = successor.valid_from
    return ended if record.valid_to is None else min(ended, record.valid_to)


def held_at(opened: OpenNamespace, record: Record, at: int) -> bool:
    """Whether a memory held at a time in ms; its first instant counts, its last does not."""
    until = holds_until(opened, record, opened.log.state.records[record.id])
    return holds_from(record) <= at and (until is None or at < until)


def past_numbers(
    opened: OpenNamespace, standings: Iterable[str], allowed: AbstractSet[int] | None
) -> set[int]:
    """Return the numbers of memories of these standings, among those that are allowed (None: all)."""
    view = opened.view
    wanted = frozenset(standings)
    found = (
        view.number_of(state.record)
        for state in opened.log.state.records.values()
        if state.standing in wanted
    )
    return {number for number in found if number is not None and (allowed is None or number in allowed)}


def no_such_memory() -> Refused:
    """Return the one answer for ids that are unknown, malformed, erased, or somebody else's."""
    return Refused("not_found", "no such memory in this namespace")


def nonce_reused() -> Refused:
    """Return the answer for a signature whose nonce was seen with another operation."""
    return Refused("nonce_reused", "this signature's nonce belongs to another operation: sign anew")


def idempotency_conflict() -> Refused:
    """Return the answer for an idempotency key that was seen with another body."""
    return Refused(
        Refusal.IDEMPOTENCY_CONFLICT, "this idempotency_key was used with another body: use a new key"
    )


async def fresh(opened: OpenNamespace, deadline: Deadline) -> None:
    """Bring log and view up to every write that was acknowledged."""
    async with deadline.step("read"):
        await opened.read(schemas.Consistency.STRONG, None)


def seen_before(opened: OpenNamespace, access: Access) -> dict[int, Outcome]:
    """Return what became of the operations of this very request when it came before, by index; `fresh` first.

    A request whose operations depend on what is there is evaluated once. What was stored after the first answer is not
    what its author meant, whoever sends it again.
    """
    return opened.log.state.outcomes_of(access.principal.author, access.principal.nonce)


def evaluated(access: Access) -> Forget:
    """Return an operation that changes nothing: it stands in the log for a request that found nothing to do."""
    principal = access.principal
    return Forget(Origin(principal.author, principal.nonce, 0, principal.expires), b"")


def parse_id(text: str) -> bytes:
    """Return an id's bytes; raises `Refused` ``not_found`` for what is none."""
    try:
        return ulid.parse(text)
    except Malformed as error:
        raise no_such_memory() from error


@asynccontextmanager
async def look_up(
    ctx: Context, access: Access, memory_id: str, deadline: Deadline
) -> AsyncIterator[tuple[OpenNamespace, bytes]]:
    """Open the namespace that a memory must be in, up to date; gives it and the bytes of the id.

    Raises:
        Refused: ``not_found``: the id is none, or there is no such namespace.
        RelayerError: as `relayer.namespaces.cache.OpenNamespaces.use_if_exists` and the log.
    """
    wanted = parse_id(memory_id)
    async with ctx.namespaces.use_if_exists(access, deadline) as opened:
        if opened is None:
            raise no_such_memory()
        await fresh(opened, deadline)
        yield opened, wanted
