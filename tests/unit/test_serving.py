"""What one of several workers is given of what a relayer may take."""

from __future__ import annotations

from pathlib import Path

import pytest

from relayer.errors import ConfigurationError
from relayer.serving import share_of
from relayer.settings.config import RelayerSettings, load_settings


def settings(tmp_path: Path, **given: object) -> RelayerSettings:
    return load_settings({"data": tmp_path, **given}, {})


def test_what_bounds_the_relayer_as_a_whole_is_divided_and_rounded_up(tmp_path: Path) -> None:
    whole = settings(tmp_path, cache_bytes=10_000_001, connections=1_001, model_at_once=4)
    share = share_of(whole, 2)
    assert (share.cache_bytes, share.connections, share.model_at_once) == (5_000_001, 501, 2)
    assert share_of(whole, 8).model_at_once == 1
    assert share.quota == whole.quota


def test_the_bound_of_an_address_is_divided_and_stays_none_where_there_is_none(tmp_path: Path) -> None:
    assert share_of(settings(tmp_path), 4).most_per_address == 0
    assert share_of(settings(tmp_path, connections_per_address=10), 4).most_per_address == 3


@pytest.mark.parametrize(("given", "wanted"), [("3", 3), (2, 2), ("auto", "auto")])
def test_workers_are_a_number_or_auto(tmp_path: Path, given: object, wanted: object) -> None:
    assert settings(tmp_path, workers=given).workers == wanted


@pytest.mark.parametrize("given", ["0", "65", "all", "1.5", ""])
def test_other_workers_are_refused_by_the_name_of_the_setting(tmp_path: Path, given: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^--workers"):
        settings(tmp_path, workers=given)
