"""A selection of the orders of events of `matrix`, beside expiries whose files executors read, plan and delete.

Run it by hand; ROUNDS is how often each event is played, each time before another call:

    PYTHONPATH=functions:. python -m tests.faults.expiry.spark_matrix [spark|here] [ROUNDS]

With `spark` on a real session with executors as separate processes, with `here` their functions run in this process,
each twice. In every third play all processes die at the call that follows the event, from then on too. What has to
follow is as in `matrix`.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest import mock

from delegation.removal import spark as spark_jobs
from delegation.removal.expiry.context import ExpiryContext, ExpiryResult
from tests.faults.crashes.kills import POLL_SECONDS
from tests.faults.crashes.switch import StoreServer
from tests.faults.expiry.events import EVENTS, Event
from tests.faults.expiry.matrix import ANSWERS, Play, calls_of, told
from tests.faults.expiry.tale import Expire
from tests.kit.explorer import play_all
from tests.spark_sessions import spark_session
from tests.unit.removal.expiry.spark.executors_here import expire_with_executors_here

_APART = 37


@contextmanager
def on_spark() -> Iterator[Expire]:
    """Yield what runs an attempt with the executors of a real session."""
    from delegation.removal.expiry.spark import expire_with_spark

    with spark_session("local[2]") as session, StoreServer() as server:
        session.sparkContext.setLogLevel("OFF")  # Spark logs pages for each killed worker

        def expire(ctx: ExpiryContext) -> ExpiryResult:
            with mock.patch.object(spark_jobs, "POLL_SECONDS", POLL_SECONDS):
                return expire_with_spark(session.sparkContext, ctx, server.resources(ctx))  # type: ignore[arg-type]

        yield expire


@contextmanager
def here() -> Iterator[Expire]:
    """Yield what runs an attempt with the executors' functions in this process."""
    yield expire_with_executors_here


def selected(expire: Expire, rounds: int, events: Sequence[Event] = EVENTS) -> Iterator[Play]:
    """Yield plays that have each event once a round, at calls apart; in every third one all processes die there."""
    calls = {tight: calls_of(tight=tight, expire=expire) for tight in (False, True)}
    for number in range(rounds * len(events)):
        tight = number % 2 == 1
        at = 1 + number * _APART % calls[tight]
        kill_at = at if number % 3 == 0 else None
        answer = ANSWERS[0] if number % 5 else ANSWERS[1 + number % 2]
        yield Play(((at, events[number % len(events)]),), tight, kill_at, after=number % 2 == 0, answer=answer)


def main(engine: str, rounds: int) -> int:
    """Play and print the result."""
    with on_spark() if engine == "spark" else here() as expire:
        return 1 if play_all(engine, selected(expire, rounds), lambda play: told(play, expire)).wrong else 0


if __name__ == "__main__":
    engine, rounds = (*sys.argv[1:], "spark", "1")[:2] if len(sys.argv) != 2 else (sys.argv[1], "1")
    sys.exit(main(engine, int(rounds)))
