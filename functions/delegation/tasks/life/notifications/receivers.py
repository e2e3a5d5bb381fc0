"""When a receiver of notifications is set apart, so that one that hangs, is slow or refuses delays no other.

A circuit breaker with a bulkhead. A receiver that is set apart gets its notifications from a queue of its own kind, one
at a time after growing pauses while it fails, until it has accepted several in a row quickly. Pure functions, no I/O.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from polaris_common.backoff import exponential

SLOW: Final = timedelta(milliseconds=500)
"""A delivery that takes longer is a strike, accepted or not."""
BLOCKING: Final = timedelta(seconds=2)
"""A delivery that takes longer sets its receiver apart at once."""
STRIKES: Final = 3
"""So many strikes in a row set a receiver apart."""
PROOF: Final = 3
"""So many quick acceptances in a row bring it back; twice as many after each relapse."""
_MOST_DOUBLINGS: Final = 6
PROBE: Final = timedelta(seconds=30)
"""How long nobody else delivers to a failing receiver while one delivery tries it; longer than a delivery takes."""
FIRST_PAUSE: Final = timedelta(seconds=30)
LONGEST_PAUSE: Final = timedelta(minutes=15)
FORGOTTEN_AFTER: Final = timedelta(hours=24)
"""A receiver that gave no cause to change its record for so long begins anew."""


@dataclass(frozen=True, slots=True)
class Receiver:
    """What the last deliveries to a receiver were like; one without a record is like one without strikes.

    `strikes` counts failed or slow deliveries in a row, `failures` failed ones, `quick` quick acceptances in a row
    since it was set apart, for the last time of `times_apart`. No delivery to one that is set apart begins before
    `not_before`. `revision` grows with every change.
    """

    channel: str
    changed_ts: datetime
    not_before: datetime
    strikes: int = 0
    failures: int = 0
    quick: int = 0
    times_apart: int = 0
    apart: bool = False
    revision: int = 1

    @property
    def is_failing(self) -> bool:
        """Whether it is set apart and its last delivery failed: one delivery at a time tries it."""
        return self.apart and self.failures > 0


def after_failure(before: Receiver | None, channel: str, took: timedelta, now: datetime) -> Receiver:
    """Return the record of a receiver after a failed delivery."""
    known = _known(before, channel, now)
    failures = known.failures + 1
    after = _struck(replace(known, failures=failures, quick=0), took, now)
    if not after.apart:
        return after
    tried = failures if known.apart else 1
    pause = exponential(tried, FIRST_PAUSE.total_seconds(), LONGEST_PAUSE.total_seconds())
    return replace(after, failures=tried, not_before=now + timedelta(seconds=pause))


def after_acceptance(before: Receiver | None, channel: str, took: timedelta, now: datetime) -> Receiver | None:
    """Return the record of a receiver after a delivery that it accepted; `before` if nothing changed."""
    if took > SLOW:
        return _struck(replace(_known(before, channel, now), failures=0, quick=0, not_before=now), took, now)
    if before is None or not (before.apart or before.strikes):
        return before
    quick = before.quick + 1
    still_apart = before.apart and quick < proof(before)
    return _changed(
        replace(before, strikes=0, failures=0, quick=quick if still_apart else 0, apart=still_apart, not_before=now),
        now,
    )


def claimed(receiver: Receiver, now: datetime) -> Receiver | None:
    """Return the record with which a delivery to a receiver that is set apart may begin, None while none may.

    The same record may begin any number of deliveries; another one has to be stored first, by one process only.
    """
    if now < receiver.not_before:
        return None
    return _changed(replace(receiver, not_before=now + PROBE), now) if receiver.is_failing else receiver


def proof(receiver: Receiver) -> int:
    """Return how many quick acceptances in a row bring a receiver back that is set apart."""
    return PROOF << min(receiver.times_apart - 1, _MOST_DOUBLINGS)


def _known(before: Receiver | None, channel: str, now: datetime) -> Receiver:
    return Receiver(channel, now, now, revision=0) if before is None else before


def _struck(receiver: Receiver, took: timedelta, now: datetime) -> Receiver:
    strikes = STRIKES if took > BLOCKING else min(receiver.strikes + 1, STRIKES)
    apart = receiver.apart or strikes >= STRIKES
    former = 0 if now - receiver.changed_ts >= FORGOTTEN_AFTER else receiver.times_apart
    times = receiver.times_apart if receiver.apart else former + apart
    return _changed(replace(receiver, strikes=strikes, apart=apart, times_apart=times), now)


def _changed(receiver: Receiver, now: datetime) -> Receiver:
    """Take the tag from an object that was written over the listed one, in case that it has it."""
    return replace(receiver, changed_ts=now, revision=receiver.revision + 1)
