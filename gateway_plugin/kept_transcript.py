"""Reading the dialogue of a session from the relayer, which has what ``capture.storeTranscript`` kept of it (MS-11).

For when the host's own log of it is gone, or another gateway's. There are the turns of which something is remembered, as they
were captured: without secrets, filler and what is doubted.
"""

from __future__ import annotations

from typing import Final

from gateway_plugin.client import RelayerClient
from gateway_plugin.errors import GatewayError, RelayerRefused
from gateway_plugin.identity import Identity
from gateway_plugin.injection import scan
from gateway_plugin.recall.selection import audible_to
from gateway_plugin.session_keys import Audience
from gateway_plugin.tool_arguments import ToolError, TranscriptArguments
from gateway_plugin.turn.messages import moment_of
from gateway_plugin.turn.transcript import NoSuchLog, Said
from relayer.wire.transcript import TranscriptRequest

__all__ = ["read_kept"]

_DEADLINE: Final = 15.0
_MAX_SESSION: Final = 512
_SPEAKERS: Final = {"user": "User", "assistant": "Assistant"}
_HEADING: Final = (
    "(The host has no log of this session. Kept by the relayer, of the turns that left a memory:)"
)


async def read_kept(
    client: RelayerClient,
    asked: TranscriptArguments,
    absent: NoSuchLog,
    *,
    whose: Identity,
    audience: Audience | None,
    session: str,
) -> str:
    """Return what `gateway_plugin.turn.transcript.read_transcript` would, after a line that says where it is from.

    Args:
        client: the relayer.
        asked: the model's arguments; the path is a session key here.
        absent: what the host said.
        whose: whose session it is.
        audience: who reads the answer; in a group only ``session``, the group's own, is read.
        session: the session key of this turn, empty outside any.

    Raises:
        ToolError: there is nothing of it here either, or the anchor is not in it.
    """
    audiences = audible_to(audience)
    if len(asked.path) > _MAX_SESSION or (audiences and asked.path != session):
        raise absent
    named = {} if asked.anchor is None else {"anchor": asked.anchor, "at": moment_of(asked.anchor)}
    request = TranscriptRequest(session=asked.path, limit=asked.turns, audiences=audiences, **named)
    try:
        kept = await client.transcript(whose, request, deadline=_DEADLINE)
    except RelayerRefused as error:
        # A relayer of before it kept any has no such route.
        if error.status in {404, 405}:
            raise absent from error
        raise _not_told(absent, error) from error
    except GatewayError as error:
        raise _not_told(absent, error) from error
    if not kept.total:
        raise absent
    if not kept.lines:
        raise ToolError(
            "anchor: no message that was kept of this session has that id, and none is as old as that time"
        )
    said = [Said(line.id, _SPEAKERS[line.role], line.text, line.call) for line in kept.lines]
    return "\n".join([_HEADING, *(one.line for one in said if not scan(one.text).blocked)])


def _not_told(absent: NoSuchLog, error: GatewayError) -> ToolError:
    return ToolError(f"{absent}; and the relayer could not be asked: {error}")
