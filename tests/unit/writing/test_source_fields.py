from __future__ import annotations

from relayer.domain import operations as ops
from relayer.wire.schemas import SourceInfo


def test_every_field_of_a_source_that_a_client_sends_is_stored():
    assert set(SourceInfo.model_fields) == set(ops.Source.__struct_fields__) - {"agent", "span"}
