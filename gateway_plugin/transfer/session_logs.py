"""Session logs of hosts as memories: who said what, when and in which session, without what is not worth keeping."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from gateway_plugin.bounded_files import NotRead
from gateway_plugin.capture.filters import Origin, judge
from gateway_plugin.settings import CaptureSettings
from gateway_plugin.transfer.exports import ImportProblem
from gateway_plugin.turn.transcript import dialogue
from relayer.wire.redaction import redact
from relayer.wire.schemas import SourceInfo
from relayer.wire.transfer import ImportItem

__all__ = ["read_session_log"]

_MAX_REFERENCE: Final = 500


def read_session_log(path: Path, shown: str, settings: CaptureSettings, *, root: Path) -> list[ImportItem]:
    """Read a log of OpenClaw, Claude Code or Codex.

    What a capture would leave out is left out, secrets are taken out, and what is left is heard in direct messages alone:
    a log does not tell who could read the conversation.

    Args:
        path: of the log.
        shown: how its memories name it as their source.
        settings: the bounds of a capture.
        root: the real path of the folder that nothing may lead out of.

    Raises:
        ImportProblem: it cannot be read.
    """
    try:
        said = [*dialogue(root, path.relative_to(root))]
    except NotRead as error:
        raise ImportProblem(str(error)) from error
    items = []
    for one in said:
        origin = Origin.USER if one.speaker == "User" else Origin.ASSISTANT
        judgement = judge(one.text, origin=origin, settings=settings)
        clean = redact(judgement.text, settings.redaction)
        if one.call or not judgement.keep or clean.blocked:
            continue
        items.append(
            ImportItem(
                text=clean.text,
                kind="imported",
                trust="imported",
                audience="direct",
                suspect=bool(judgement.suspect),
                occurred_at=one.at,
                source=SourceInfo(
                    session=path.stem[:_MAX_REFERENCE],
                    transcript=shown[:_MAX_REFERENCE],
                    role="user" if origin is Origin.USER else "assistant",
                    message_ids=(one.id[:_MAX_REFERENCE],) if one.id else (),
                    reference=f"{shown[: _MAX_REFERENCE // 2]}#{one.id[: _MAX_REFERENCE // 2]}"
                    if one.id
                    else shown[:_MAX_REFERENCE],
                ),
            )
        )
    return items
