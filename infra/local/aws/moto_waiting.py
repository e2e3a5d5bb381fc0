"""Until when moto's state machines wait: AWS takes a timestamp as UTC, moto compares it with the clock on the wall.

West of Greenwich a retry would come hours late, east of it a state machine would turn in circles until it is due. Both
for whole seconds only: what moto cuts off the remaining time is added beforehand.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from moto.stepfunctions.parser.asl.component.state.wait.wait_function.timestamp import Timestamp

# An untyped attribute of a class that is moto's own.
_STATE: Any = Timestamp
_NAME = "_from_timestamp_string"
_ALMOST_A_SECOND = timedelta(seconds=1, microseconds=-1)


def on_the_wall(moment: datetime) -> datetime:
    """A naive UTC time as moto wants it: naive local time, late enough for whole seconds to be rounded up."""
    return moment.replace(tzinfo=UTC).astimezone().replace(tzinfo=None) + _ALMOST_A_SECOND


def mend() -> Callable[[], None]:
    """Have moto wait as AWS does; answers what undoes it."""
    original = vars(Timestamp)[_NAME]
    parse = original.__func__

    def moment(timestamp: str) -> datetime | None:
        parsed = parse(timestamp)
        return None if parsed is None else on_the_wall(parsed)

    setattr(_STATE, _NAME, staticmethod(moment))
    return lambda: setattr(_STATE, _NAME, original)
