"""When upkeep may begin: windows that open at a cron expression's times in a time zone. A window stays open for a
length of real time: one from 01:00 for three hours ends at 05:00 local time when clocks go forward, and at 03:00 when
they go back."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final

from delegation.cron import cron_times, zone_named
from delegation.upkeep.errors import ScheduleInvalid
from polaris_common.errors import printable

LONGEST: Final = timedelta(days=7)
SHORTEST: Final = timedelta(minutes=1)
_LONGEST_CRON: Final = 100


def zone_of(name: str) -> tzinfo:
    """Return the time zone of a name. Raises ScheduleInvalid."""
    try:
        return zone_named(name)
    except ValueError as error:
        raise ScheduleInvalid(str(error)) from None


def day_of(moment: datetime, zone: str) -> date:
    """Return the calendar day of a moment in a zone: the day of a budget. Raises ScheduleInvalid."""
    return moment.astimezone(zone_of(zone)).date()


@dataclass(frozen=True, slots=True)
class Window:
    """Open for `lasts` after each time of `cron`, five fields in the zone; raises ScheduleInvalid. Overlapping windows
    are open from the first opening to the last end."""

    cron: str
    lasts: timedelta
    zone: str = "UTC"

    def __post_init__(self) -> None:
        shown = printable(self.cron[:_LONGEST_CRON])
        if len(self.cron) > _LONGEST_CRON:
            raise ScheduleInvalid(f"the window {shown!r} has more than {_LONGEST_CRON} characters")
        if not SHORTEST <= self.lasts <= LONGEST:
            raise ScheduleInvalid(f"the window {shown!r} is open for {self.lasts}, not for a minute to seven days")
        next(self.openings(datetime(2000, 1, 1, tzinfo=UTC)))

    def is_open(self, now: datetime) -> bool:
        return self.opened_at(now) is not None

    def opened_at(self, now: datetime) -> datetime | None:
        """Return the first opening whose length is not over, in UTC; None while the window is closed."""
        opening = next(one for one in self.openings(now - self.lasts))
        return opening if opening <= now else None

    def opens_after(self, now: datetime) -> datetime:
        """Return the next opening after now, in UTC."""
        return next(self.openings(now))

    def openings(self, after: datetime) -> Iterator[datetime]:
        """Yield the openings after a moment, in UTC, each once and in order. Raises ScheduleInvalid."""
        zone = zone_of(self.zone)
        try:
            yield from cron_times(self.cron, zone, after)
        except ValueError as error:
            raise ScheduleInvalid(f"the window {printable(self.cron)!r}: {error}") from None
