"""What a promised job of the model is given, and what is appended when it ends.

The input, messages and the memories that hold them, is sealed in the log beside the promise. When the job runs, only what
is still live of it counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from relayer.domain.operations import (
    Audience,
    JobAccepted,
    JobFinished,
    Kind,
    Model,
    Operation,
    Origin,
    Record,
    Role,
    Source,
    Trust,
)
from relayer.domain.outcomes import JobState, Status
from relayer.extraction.language import guess_language
from relayer.extraction.llm.conversation import MOST_CHARACTERS, Line
from relayer.extraction.llm.extractor import Extraction
from relayer.extraction.normal_text import normal_text
from relayer.namespaces.context import Context
from relayer.namespaces.namespace import OpenNamespace
from relayer.wire import schemas
from relayer.wire.sealing import SALT_SIZE
from relayer.writing.drafts import EMBED, Draft, new_id, seal_results

# The works of these jobs, as the log names them.
EXTRACT = "extract"
SUMMARISE = "summarise"
_MOST_SHOWN = 48_000  # characters of one capture: about 12,000 tokens of English


class JobLine(msgspec.Struct, frozen=True, array_like=True):
    """One message of a job's input; ``record`` is the memory that holds it verbatim, empty when none was asked for."""

    role: Role
    text: str
    occurred_at: int | None = None
    speaker: str = ""
    message_id: str = ""
    record: bytes = b""


class JobInput(msgspec.Struct, frozen=True, array_like=True):
    """What a job needs to know, sealed in the log beside its promise."""

    lines: tuple[JobLine, ...]
    audience: Audience
    host: str
    agent: str
    session: str
    author: bytes


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(JobInput)


def input_of(records: Sequence[Record]) -> JobInput:
    """Return the input of a job about memories of one session, one at least."""
    lines = tuple(
        JobLine(
            record.source.role,
            record.text,
            record.occurred_at,
            record.source.speaker,
            "".join(record.source.message_ids[:1]),
            record.id,
        )
        for record in records
    )
    first = records[0]
    source = first.source
    return JobInput(lines, first.audience, source.host, source.agent, source.session, first.author)


def seal_input(ctx: Context, opened: OpenNamespace, job: bytes, given: JobInput) -> bytes:
    """Seal a job's input under its id."""
    return opened.keys.seal_record(job, _ENCODER.encode(given), salt=ctx.randomness.bytes(SALT_SIZE))


Shown = tuple[JobLine, tuple[bytes, ...]]


@dataclass(frozen=True, slots=True)
class JobTask:
    """A job whose turn has come.

    Attributes:
        opened: where.
        job: as the log knows it now.
        given: its input.
        shown: the newest lines that fit one question, of what is still live, each with the memories that hold it.
    """

    opened: OpenNamespace
    job: JobState
    given: JobInput
    shown: Sequence[Shown]

    @property
    def lines(self) -> list[Line]:
        """What the model reads."""
        return [Line(line.role, line.text, line.occurred_at, line.speaker) for line, _ in self.shown]

    @property
    def sources(self) -> tuple[bytes, ...]:
        """The memories that hold any of the lines, each once."""
        return tuple(dict.fromkeys(record for _, records in self.shown for record in records))

    def record(self, text: str, made_by: Model, trust: Trust, occurred_at: int | None) -> Record:
        """Return what a model made of the lines, as a memory without an id, among those to whom they were said."""
        given = self.given
        return Record(
            id=b"",
            namespace=self.opened.name,
            text=text,
            audience=given.audience,
            trust=trust,
            lang=guess_language(text),
            occurred_at=occurred_at,
            source=Source(host=given.host, agent=given.agent, session=given.session, role=Role.ASSISTANT),
            extractor=made_by,
            author=given.author,
        )

    def summary(self, text: str, made_by: Model) -> Draft:
        """Return a summary of all that was shown."""
        times = [line.occurred_at for line, _ in self.shown if line.occurred_at is not None]
        record = self.record(text, made_by, Trust.ASSISTANT, max(times, default=None))
        return Draft(replace(record, kind=Kind.SUMMARY), captured=True, sources=self.sources)


@dataclass(frozen=True, slots=True)
class Made:
    """What a model made of a task: drafts, each with the memory whose place it takes, empty for none."""

    found: Extraction
    drafts: Sequence[tuple[Draft, bytes]]


async def begin(opened: OpenNamespace, job: JobState) -> JobTask | None:
    """Return what there is to do; None when the job has ended meanwhile.

    Raises:
        UnsealError, msgspec.MsgspecError: the input cannot be read.
        RelayerError: the log could not be read.
    """
    await opened.read(schemas.Consistency.STRONG)
    current = opened.job(job.job)
    if current is None or current.outcome is not None:
        return None
    given = _DECODER.decode(opened.keys.unseal_record(current.job, current.sealed))
    return JobTask(opened, current, given, _fitting(_live(opened, given.lines)))


def _live(opened: OpenNamespace, lines: Sequence[JobLine]) -> list[Shown]:
    """Return the lines that are still live, with the memories that hold each verbatim: its own, or those it repeated."""
    repeated = {
        line.record: opened.keys.content_mac(normal_text(line.text))
        for line in lines
        if line.record and opened.state(line.record) is None
    }
    alike: dict[bytes, list[bytes]] = {mac: [] for mac in repeated.values()}
    if alike:
        for state in opened.states():
            if state.content in alike and state.status is Status.LIVE:
                alike[state.content].append(state.record)
    found: list[Shown] = []
    for line in lines:
        own = opened.state(line.record)
        records = tuple(alike[repeated[line.record]]) if line.record in repeated else ()
        if own is not None and own.status is Status.LIVE:
            records = (line.record,)
        if records or not line.record:
            found.append((line, records))
    return found


def _fitting(shown: Sequence[Shown]) -> list[Shown]:
    """Keep the newest lines that fit one question."""
    kept: list[Shown] = []
    room = _MOST_SHOWN
    for line, records in reversed(shown):
        room -= min(len(line.text), MOST_CHARACTERS)
        if room < 0:
            break
        kept.append((line, records))
    return kept[::-1]


async def end(ctx: Context, task: JobTask, made: Made | None) -> None:
    """End a job with what was made, if anything was; vectors that are missing come later, by its second operation.

    Raises:
        RelayerError: the log does not take it.
    """
    drafts = made.drafts if made is not None else ()
    sealed = await seal_results(ctx, task.opened, [draft for draft, _ in drafts]) if drafts else []
    results = [(one, old) for one, (_, old) in zip(sealed, drafts, strict=True) if one is not None]
    stored = tuple(one for one, _ in results)
    supersedes = tuple((one.record, old) for one, old in results if old)
    operations: list[Operation] = [JobFinished(task.job.job, stored=stored, supersedes=supersedes)]
    missing = tuple(one.record for one in stored if not one.vector)
    if missing:
        origin = Origin(author=b"", nonce=task.job.job, index=1)
        operations.append(JobAccepted(origin, new_id(ctx), EMBED, missing))
    await task.opened.append(operations)
