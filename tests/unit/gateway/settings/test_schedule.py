"""Cron lines: when the next time is, and what is no cron line."""

from __future__ import annotations

import time
from datetime import datetime

import pytest

from gateway_plugin.errors import SettingsError
from gateway_plugin.settings.model import load_settings, next_time


def local(text: str) -> float:
    return datetime.fromisoformat(text).astimezone().timestamp()


@pytest.mark.parametrize(
    ("line", "moment", "due"),
    [
        ("0 3 * * *", "2026-05-04 02:59:59", "2026-05-04 03:00"),
        ("0 3 * * *", "2026-05-04 03:00", "2026-05-05 03:00"),
        ("*/15 * * * *", "2026-05-04 10:46", "2026-05-04 11:00"),
        ("30 8-10/2 * * 1-5", "2026-05-08 10:31", "2026-05-11 08:30"),
        ("0 0 29 2 *", "2026-05-04 00:00", "2028-02-29 00:00"),
        ("0 12 1 * 7", "2026-05-04 00:00", "2026-05-10 12:00"),
        ("0 12 13 * 5", "2026-05-09 00:00", "2026-05-13 12:00"),
        ("5 4 1,15 12 *", "2026-12-15 04:05", "2027-12-01 04:05"),
        ("0 3 * * mon", "2026-05-05 00:00", "2026-05-11 03:00"),
    ],
)
def test_the_next_time_is_the_first_one_that_fits_behind_a_moment(line: str, moment: str, due: str) -> None:
    assert next_time(line, local(moment)) == local(due)


@pytest.mark.parametrize(
    ("moment", "due"),
    [
        # 2:30 does not exist on 29 March, and twice on 25 October.
        ("2026-03-28 03:00+01:00", "2026-03-29 03:30+02:00"),
        ("2026-10-25 01:00+02:00", "2026-10-25 02:30+02:00"),
        ("2026-10-25 02:30+02:00", "2026-10-26 02:30+01:00"),
        ("2026-10-25 02:10+01:00", "2026-10-26 02:30+01:00"),
    ],
)
def test_a_day_on_which_clocks_are_set_has_the_time_once(
    monkeypatch: pytest.MonkeyPatch, moment: str, due: str
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert next_time("30 2 * * *", local(moment)) == local(due)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "line",
    [
        "", "0 3 * *", "60 3 * * *", "0 3 0 * *", "0 3 * * 8", "* * * * * *", "5-1 * * * *", "*/0 * * * *",
        "0 0 31 2 *",
    ],
)  # fmt: skip
def test_what_is_no_schedule_is_refused_by_name(line: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings({"consolidation": {"schedule": line}}, {})
    assert "consolidation.schedule" in str(refused.value)
