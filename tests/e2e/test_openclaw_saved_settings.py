"""Settings that are saved while a turn goes on, and what the log and the commands say at the start."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from e2e_relayer import Relayer
from openclaw_gateway import RELOAD_FAILED, Gateway, memrelay_plugins
from processes import wait_until
from stub_model import StubModel, said


@pytest.fixture
def held(model: StubModel) -> Iterator[threading.Event]:
    """Lets the model answer, once it is set, what a turn with the word "slowly" asks."""
    go_on = threading.Event()

    def answer(request: dict[str, Any]) -> str | None:
        if "slowly" in said(request):
            go_on.wait(60)
        return None

    model.answer_with(answer)
    yield go_on
    go_on.set()
    model.answer_with(lambda _request: None)


@pytest.mark.row("CP-09", level="e2e")
@pytest.mark.parametrize("capture", [True, False])
def test_a_setting_that_is_saved_during_a_turn_holds_soon_after_it(
    gateway: Gateway,
    relayer: Relayer,
    model: StubModel,
    held: threading.Event,
    capture: bool,
) -> None:
    gateway.reload(memrelay_plugins(relayer.url, autoCapture=capture))
    begun = len(gateway.log_text())
    question = f"Please answer slowly, in {len(str(capture))} words."
    turn = threading.Thread(target=gateway.chat, args=(question,), kwargs={"user": f"slow-{capture}"})
    turn.start()
    wait_until(lambda: bool(model.asked(question)))
    whole = gateway.config()
    gateway.write_config(
        whole | {"plugins": memrelay_plugins(relayer.url, autoRecall=False, autoCapture=capture)}
    )
    wait_until(lambda: RELOAD_FAILED in gateway.log_text()[begun:])
    held.set()
    turn.join()
    hooks = "auto-capture" if capture else None
    wanted = f"memrelay: registered hooks: {hooks}\n" if hooks else "memrelay: no hooks registered"
    wait_until(lambda: wanted in gateway.log_text()[begun:])


def test_a_command_of_the_host_begins_with_no_word_of_a_failure(gateway: Gateway) -> None:
    done = gateway.cli("memrelay", "list", "--json")
    assert done.returncode == 0, done.stderr
    assert "failed during register" not in done.stdout + done.stderr
    assert "intentionally unavailable" not in done.stdout + done.stderr
    assert "memories" in json.loads(done.stdout)


def test_the_last_word_of_the_log_on_health_is_what_is_so(gateway: Gateway, relayer: Relayer) -> None:
    gateway.reload(memrelay_plugins(relayer.url, autoCapture=False))
    begun = len(gateway.log_text())
    gateway.reload(memrelay_plugins(relayer.url))
    wait_until(lambda: "memrelay: connected (ok" in gateway.log_text()[begun:])
    assert "health check failed" not in gateway.log_text()[begun:]
