"""A time from a request is one that an answer can show."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from relayer.wire.fields import parse_time, render_time
from relayer.wire.schemas import MemoryItem, RecallRequest, TurnItem

FIRST, LAST = -2_208_988_800_000, 7_258_118_399_999


@pytest.mark.parametrize("value", [FIRST - 1, LAST + 1, 10**17, -(10**15), 2**63, -(2**70)])
def test_a_number_outside_the_years_that_can_be_shown_is_refused(value: int) -> None:
    with pytest.raises(ValidationError, match="1900 and 2199"):
        MemoryItem.model_validate({"text": "a memory", "occurred_at": value})
    with pytest.raises(ValidationError, match="1900 and 2199"):
        TurnItem.model_validate({"role": "user", "text": "a turn", "occurred_at": value})
    with pytest.raises(ValidationError, match="1900 and 2199"):
        RecallRequest.model_validate({"query": "a query", "occurred_after": value})


@pytest.mark.parametrize("value", [FIRST, 0, LAST])
def test_every_accepted_number_can_be_shown_and_read_back(value: int) -> None:
    assert parse_time(render_time(parse_time(value))) == value
