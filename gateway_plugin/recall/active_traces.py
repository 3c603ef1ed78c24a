"""Traces of active mode, for who debugs a prompt: what the model was shown and what it said, in files on this machine.

Off unless ``active.persistTranscripts`` asks for them (AM-23): they hold conversations in the clear. Each is a file of its
own, ``agents/<agent>/sessions/<transcriptDir>/<id>.jsonl`` below the plugin's state directory, for its owner's eyes alone.
"""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Final

from relayer.wire.answers import ActiveRecallRequest, ActiveRecallResponse

__all__ = ["MOST_KEPT", "ActiveTraces"]

MOST_KEPT: Final = 200
"""Of each agent; beyond that the oldest goes."""


class ActiveTraces:
    """Writes traces.

    Args:
        root: the plugin's state directory.
        directory: ``active.transcriptDir``, a plain relative path.
    """

    def __init__(self, root: Path, directory: str) -> None:
        self._root = root
        self._directory = directory

    def write(
        self, agent: str, now_ms: int, request: ActiveRecallRequest, answer: ActiveRecallResponse
    ) -> None:
        """Write one trace; the agent's name is in normal form.

        Raises:
            OSError: it cannot be written.
        """
        place = self._root / "agents" / agent / "sessions" / self._directory
        _make_private(place, self._root)
        lines = (
            {"at": now_ms, "role": "user", "style": request.style, "content": request.context},
            {
                "role": "assistant",
                "status": answer.status,
                "reason": answer.reason,
                "content": answer.summary,
                "memories": [memory.id for memory in answer.memories],
            },
        )
        file = place / f"{now_ms:014d}-{secrets.token_hex(4)}.jsonl"
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as sink:
            sink.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        for old in sorted(place.glob("*.jsonl"))[:-MOST_KEPT]:
            old.unlink(missing_ok=True)


def _make_private(place: Path, root: Path) -> None:
    """Make a directory and what is missing above it; the mode of `Path.mkdir` holds for the last one alone."""
    missing = [one for one in (place, *place.parents) if one == root or one.is_relative_to(root)]
    for one in reversed(missing):
        one.mkdir(mode=0o700, parents=True, exist_ok=True)
