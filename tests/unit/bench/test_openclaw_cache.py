"""The arithmetic of the prompt cache."""

from __future__ import annotations

import pytest

from bench.openclaw_overhead import cacheable


@pytest.mark.row("CP-27")
def test_memories_behind_the_message_keep_more_of_the_cache_than_before_it() -> None:
    assert (
        cacheable("append") > cacheable("prepend") > cacheable("system-append") > cacheable("system-prepend")
    )


def test_nothing_of_a_prompt_that_memories_lead_is_cacheable_beyond_their_heading() -> None:
    assert cacheable("system-prepend") < 0.02
