from __future__ import annotations

import pytest

from gateway_plugin.commands.run import Output
from relayer.wire.service import NamespaceView


@pytest.mark.parametrize(("memories", "explained"), [(3, False), (None, True)])
def test_a_count_that_is_not_known_is_explained(capsys, memories, explained):
    view = NamespaceView.model_validate(
        {
            "name": "coder",
            "custody": "agent",
            "generation": 1,
            "state": "live",
            "created_at": 1_700_000_000_000,
            "memories": memories,
            "bytes": memories,
        }
    )
    Output(as_json=False).namespaces([view])
    shown = capsys.readouterr().out
    assert shown.splitlines()[1].split()[:2] == ["coder", "?" if explained else "3"]
    assert ("memrelay-gateway status --agent NAME" in shown) == explained
