"""A relayer in a program's own process logs to standard error, which its program's own output must not be mixed with."""

from __future__ import annotations

import contextlib
import io

import httpx
import structlog

from relayer import telemetry
from relayer.testing.local_relayer import threaded_relayer


def test_a_relayer_in_a_program_that_set_up_no_logging_writes_nothing_to_standard_output() -> None:
    structlog.reset_defaults()
    telemetry.output.stream = None
    output, errors = io.StringIO(), io.StringIO()
    with threaded_relayer() as relayer, contextlib.redirect_stdout(output):
        with contextlib.redirect_stderr(errors):
            # The line of a request is written after its answer, and before the next one's.
            for _ in range(2):
                httpx.get(relayer.url + "/v1/keys", trust_env=False)
        assert output.getvalue() == ""
        assert "/v1/keys" in errors.getvalue()
