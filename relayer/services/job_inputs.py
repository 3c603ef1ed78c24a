"""What a promised job of the model is given: messages and the memories that hold them, sealed in the log beside the promise.

When the job runs, only what is still live of it counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from relayer.domain.record import Audience, Record, Role
from relayer.domain.standing import JobState, Standing
from relayer.extraction.llm.conversation import MOST_CHARACTERS
from relayer.extraction.normal_text import normal_text
from relayer.services.context import Context
from relayer.services.open_namespace import OpenNamespace
from relayer.wire.sealing import SALT_SIZE

__all__ = [
    "EXTRACT",
    "SUMMARISE",
    "JobInput",
    "JobLine",
    "Shown",
    "all_of",
    "input_of",
    "live_lines",
    "seal_input",
    "unseal_input",
]

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


Shown = Sequence[tuple[JobLine, tuple[bytes, ...]]]

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


def unseal_input(opened: OpenNamespace, job: JobState) -> JobInput:
    """Open a job's input; raises `relayer.wire.errors.UnsealError` or `msgspec.MsgspecError`."""
    return _DECODER.decode(opened.keys.unseal_record(job.job, job.sealed))


def live_lines(opened: OpenNamespace, given: JobInput) -> list[tuple[JobLine, tuple[bytes, ...]]]:
    """Return the newest lines that fit one question, of what is still live, each with the memories that hold it."""
    sources = _sources(opened, given.lines)
    return _fitting(
        [
            (line, records)
            for line, records in zip(given.lines, sources, strict=True)
            if records or not line.record
        ]
    )


def _sources(opened: OpenNamespace, lines: Sequence[JobLine]) -> list[tuple[bytes, ...]]:
    """Return for each line the live memories that hold it verbatim: its own, or those it was a duplicate of."""
    records = opened.log.state.records
    alike: dict[bytes, list[bytes]] = {
        opened.keys.content_mac(normal_text(line.text)): []
        for line in lines
        if line.record and line.record not in records
    }
    if alike:
        for state in records.values():
            if state.content in alike and state.standing is Standing.LIVE:
                alike[state.content].append(state.record)
    found: list[tuple[bytes, ...]] = []
    for line in lines:
        own = records.get(line.record)
        if own is not None:
            found.append((line.record,) if own.standing is Standing.LIVE else ())
        elif line.record:
            found.append(tuple(alike[opened.keys.content_mac(normal_text(line.text))]))
        else:
            found.append(())
    return found


def _fitting(shown: Shown) -> list[tuple[JobLine, tuple[bytes, ...]]]:
    """Keep the newest lines that fit one question."""
    kept: list[tuple[JobLine, tuple[bytes, ...]]] = []
    room = _MOST_SHOWN
    for line, records in reversed(shown):
        room -= min(len(line.text), MOST_CHARACTERS)
        if room < 0:
            break
        kept.append((line, records))
    return kept[::-1]


def all_of(shown: Shown) -> tuple[bytes, ...]:
    """Return the memories that hold any of the lines, each once."""
    return tuple(dict.fromkeys(record for _, records in shown for record in records))
