"""A body costs about what its bytes cost to read, however wrong it is."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from relayer.http.accept import parse_body
from relayer.http.problems import HttpProblem
from relayer.wire.schemas import AnalyzeRequest, RecallRequest, RememberRequest


@pytest.mark.parametrize(
    ("schema", "body"),
    [
        (RememberRequest, {"items": [1] * 50_000}),
        (RememberRequest, {"items": [{"text": "a", "source": {"message_ids": [1] * 50_000}}]}),
        (AnalyzeRequest, {"turns": [1] * 50_000}),
        (RecallRequest, {"query": "a", "kinds": [1] * 50_000}),
        (RecallRequest, {"query": "a", "audiences": [1] * 50_000}),
        (RecallRequest, {"query": "a", "trusts": [1] * 50_000}),
    ],
    ids=["items", "message ids", "turns", "kinds", "audiences", "trusts"],
)
def test_a_list_that_is_too_long_is_refused_without_a_look_at_its_items(schema, body) -> None:
    with pytest.raises(ValidationError, match="must have at most") as caught:
        schema.model_validate(body)
    assert caught.value.error_count() <= 2


def test_an_object_with_keys_beyond_measure_is_not_looked_into() -> None:
    body = "{" + ",".join(f'"k{number}": 1' for number in range(1000)) + "}"
    with pytest.raises(HttpProblem) as caught:
        parse_body(body.encode(), RememberRequest)
    assert caught.value.code == "invalid_json"
    assert "keys" in caught.value.detail


def test_a_hundred_items_are_not_too_many() -> None:
    assert len(RememberRequest.model_validate({"items": [{"text": "a"}] * 100}).items) == 100
    with pytest.raises(ValidationError, match="at most 100 items"):
        RememberRequest.model_validate({"items": [{"text": "a"}] * 101})
