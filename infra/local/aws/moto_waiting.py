"""Corrects the Wait states of moto: AWS reads a timestamp as UTC, moto compares it with local time.

West of Greenwich a retry would be hours late; east of it a state machine would loop until the task is due. moto also
truncates the remaining time to whole seconds, so almost a second is added.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from moto.stepfunctions.parser.asl.component.state.wait.wait_function.timestamp import Timestamp

# Untyped, because the code assigns a private attribute of moto's class.
_STATE: Any = Timestamp
_NAME = "_from_timestamp_string"
_ALMOST_A_SECOND = timedelta(seconds=1, microseconds=-1)


def as_local_time(moment: datetime) -> datetime:
    """Convert a naive UTC time to the naive local time that moto expects, so that whole seconds are rounded up."""
    return moment.replace(tzinfo=UTC).astimezone().replace(tzinfo=None) + _ALMOST_A_SECOND


def correct_wait_times() -> Callable[[], None]:
    """Have moto wait as AWS does; return a function that undoes it."""
    original = vars(Timestamp)[_NAME]
    parse = original.__func__

    def moment(timestamp: str) -> datetime | None:
        parsed = parse(timestamp)
        return None if parsed is None else as_local_time(parsed)

    setattr(_STATE, _NAME, staticmethod(moment))
    return lambda: setattr(_STATE, _NAME, original)
