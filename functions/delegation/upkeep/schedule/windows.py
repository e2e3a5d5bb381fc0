"""When upkeep may begin: windows that open at the times of a cron expression in a time zone.

A window opens at each time of the expression and stays open for a length of real time: one that opens at 01:00 for
three hours is open until 05:00 local time in the night when clocks go forward, and until 03:00 when they go back. A
time that daylight saving leaves out opens the window right after the gap, one that it repeats opens it once, as
Debian's cron does (cron(8), Notes).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from delegation.errors import printable
from delegation.upkeep.errors import ScheduleInvalid

LONGEST: Final = timedelta(days=7)
SHORTEST: Final = timedelta(minutes=1)
_LONGEST_CRON: Final = 100
_LONGEST_ZONE: Final = 64
_FIELDS: Final = 5
_LONGEST_SHIFT: Final = timedelta(hours=3)
"""Zones set their clocks back by two hours at most (Antarctica/Troll).

The library counts local times, so where it begins in a repeated hour it returns times before its beginning.
"""


def zone_named(name: str) -> tzinfo:
    """Return the time zone of a name of the tz database; raises ScheduleInvalid."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name[:_LONGEST_ZONE])
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ScheduleInvalid(f"the time zone {printable(name[:_LONGEST_ZONE])!r} is not known") from None


def day_of(moment: datetime, zone: str) -> date:
    """Return the calendar day of a moment in a zone: the day of a budget; raises ScheduleInvalid."""
    return moment.astimezone(zone_named(zone)).date()


@dataclass(frozen=True, slots=True)
class Window:
    """Open for `lasts` after each time of `cron`, five fields in the zone; raises ScheduleInvalid.

    Windows that overlap are open from the first opening to the last end.
    """

    cron: str
    lasts: timedelta
    zone: str = "UTC"

    def __post_init__(self) -> None:
        """Check the expression, the zone and the length."""
        shown = printable(self.cron[:_LONGEST_CRON])
        if len(self.cron) > _LONGEST_CRON or len(self.cron.split()) != _FIELDS:
            raise ScheduleInvalid(f"the window {shown!r} does not have five fields: minute, hour, day, month, weekday")
        if not SHORTEST <= self.lasts <= LONGEST:
            raise ScheduleInvalid(f"the window {shown!r} is open for {self.lasts}, not for a minute to seven days")
        next(self.openings(datetime(2000, 1, 1, tzinfo=UTC)))

    def is_open(self, now: datetime) -> bool:
        """Whether a run may begin now."""
        return self.opened_at(now) is not None

    def opened_at(self, now: datetime) -> datetime | None:
        """Return the first opening whose length is not over, in UTC; None while the window is closed."""
        opening = next(one for one in self.openings(now - self.lasts))
        return opening if opening <= now else None

    def opens_after(self, now: datetime) -> datetime:
        """Return the next opening after now, in UTC."""
        return next(self.openings(now))

    def openings(self, after: datetime) -> Iterator[datetime]:
        """Yield the openings after a moment, in UTC, each once and in order; raises ScheduleInvalid.

        The library is imported here, because most processes never compute a time.
        """
        from cronsim import CronSim, CronSimError  # noqa: PLC0415

        zone = zone_named(self.zone)
        shown = printable(self.cron)
        try:
            last = after.astimezone(UTC)
            for opening in CronSim(self.cron, (last - _LONGEST_SHIFT).astimezone(zone)):
                moment = opening.astimezone(UTC)
                if moment > last:
                    last = moment
                    yield moment
        except CronSimError as error:
            raise ScheduleInvalid(f"the window {shown!r}: {error}") from None
        raise ScheduleInvalid(f"the window {shown!r} does not open in the next fifty years")
