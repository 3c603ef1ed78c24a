"""Cron schedules: the next time of a cron line, in this machine's local time zone."""

from __future__ import annotations

from datetime import UTC, datetime

from cronsim import CronSim, CronSimError

_FIELDS = 5


def next_time(line: str, moment: float) -> float:
    """Return the next time of a cron line, in seconds since the epoch.

    Args:
        line: five fields, such as ``0 3 * * *``.
        moment: the time after which to search, in seconds since the epoch.

    Raises:
        ValueError: the line is not a cron line, or matches no day.

    Example:
        >>> next_time("0 3 * * *", 0.0) > 0.0
        True
    """
    if len(line.split()) != _FIELDS:
        raise ValueError("a schedule has five fields, such as 0 3 * * * (every night at three)")
    local = datetime.fromtimestamp(moment, UTC).astimezone().replace(tzinfo=None)
    try:
        times = CronSim(line, local)
    except CronSimError as error:
        raise ValueError(f"is not a cron line: {error}") from error
    # When clocks are set back, the next local time can be before the moment; such times are skipped.
    return next(at for time in times if (at := time.timestamp()) > moment)
