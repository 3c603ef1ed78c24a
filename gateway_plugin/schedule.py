"""When a cron line is due next, in this machine's local time."""

from __future__ import annotations

from datetime import UTC, datetime

from cronsim import CronSim, CronSimError

_FIELDS = 5


def next_time(line: str, moment: float) -> float:
    """Return the first time of a cron line after a moment; both in seconds since the epoch.

    Raises:
        ValueError: it is not a cron line, or fits no day.
    """
    if len(line.split()) != _FIELDS:
        raise ValueError("a schedule has five fields, such as 0 3 * * * (every night at three)")
    local = datetime.fromtimestamp(moment, UTC).astimezone().replace(tzinfo=None)
    try:
        times = CronSim(line, local)
    except CronSimError as error:
        raise ValueError(f"is not a cron line: {error}") from error
    # When clocks are set back, a local time can be before the moment.
    return next(at for time in times if (at := time.timestamp()) > moment)
