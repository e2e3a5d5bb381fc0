"""Every event before every call of an expiry: of the catalog, of both stores, of the policies and of the other tables.

Run it by hand; STEP plays every so many calls, PAIRS as many pairs of events chosen by a seed:

    PYTHONPATH=functions:. python -m tests.faults.expiry.matrix [STEP] [PAIRS]

Each event is played in one attempt, with the process killed before and after the call that follows it, and while the
first commit has no answer. Afterwards attempts are repeated until the task ends. Nothing that any table, ref or
promised snapshot reads may be gone, there may be one commit, a lost ref is reported, and what the task says is so.
"""

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from delegation.removal.expiry.run import expire_snapshots
from tests.faults.expiry.events import EVENTS, Event, commit_arrives
from tests.faults.expiry.tale import Answer, Calls, Expire, Tale
from tests.kit.explorer import play_all

ANSWERS: Sequence[Answer] = ("at once", "lost", "late")


@dataclass(frozen=True)
class Play:
    """Events by the number of the call that each is before, and where the process is killed."""

    events: tuple[tuple[int, Event], ...]
    tight: bool = False
    kill_at: int | None = None
    after: bool = False
    answer: Answer = "at once"
    between: tuple[Event, ...] = ()

    def __str__(self) -> str:
        events = ", ".join(f"{event.__name__}@{at}" for at, event in self.events)
        killed = "" if self.kill_at is None else f" killed {'after' if self.after else 'before'} {self.kill_at}"
        between = "".join(f", then {event.__name__}" for event in self.between)
        return f"{events}{' tight' if self.tight else ''} commit answered {self.answer}{killed}{between}"


def perform(play: Play, expire: Expire = expire_snapshots) -> tuple[Tale, list[str]]:
    """Play with an engine; return the state at the end and what is wrong."""
    tale = Tale(tight=play.tight, answer=play.answer, expire=expire)
    acts = _acts(tale, play.events)
    ended = tale.attempt(Calls(acts, kill_at=play.kill_at, after=play.after))
    found = tale.wrong_files()
    for event in play.between:
        event(tale)
    if ended is None:
        try:
            ended = tale.finish()
        except AssertionError as error:
            return tale, [*found, str(error)]
    return tale, found or tale.wrong(ended)


def told(play: Play, expire: Expire = expire_snapshots) -> tuple[str, list[str]]:
    """Play with an engine; return how it ended, with a note if an event was in a window, and what is wrong."""
    tale, found = perform(play, expire)
    ended = getattr(tale.ended, "code", "") or getattr(tale.ended, "status", "none")
    return f"{ended} with an event in a window" if tale.windows() else ended, found


def _acts(tale: Tale, events: Sequence[tuple[int, Event]]) -> Mapping[int, "Acts"]:
    found: dict[int, Acts] = {}
    for at, event in events:
        found.setdefault(at, Acts(tale)).events.append(event)
    return found


@dataclass
class Acts:
    """Events before one call, in order."""

    tale: Tale
    events: list[Event] = field(default_factory=list)

    def __call__(self) -> None:
        for event in self.events:
            event(self.tale)


@cache
def calls_of(*, tight: bool, answer: Answer = "at once", expire: Expire = expire_snapshots) -> int:
    """Return the number of calls of an undisturbed attempt."""
    tale, calls = Tale(tight=tight, answer=answer, expire=expire), Calls({})
    tale.attempt(calls)
    return calls.calls


def singles(events: Sequence[Event] = EVENTS, step: int = 1) -> Iterator[Play]:
    """Yield every event before every `step`th call, in one attempt and killed there."""
    for number, event in enumerate(events):
        for tight in (False, True):
            for at in range(1 + number % step, calls_of(tight=tight) + 1, step):
                one = ((at, event),)
                yield Play(one, tight)
                yield Play(one, tight, kill_at=at)
                yield Play(one, tight, kill_at=at, after=True)


def unanswered(events: Sequence[Event] = EVENTS, step: int = 1) -> Iterator[Play]:
    """Yield every event while the first commit has no answer, and the commit that arrives later, or never."""
    for number, event in enumerate(events):
        for at in range(1 + number % step, calls_of(tight=False, answer="lost") + 1, step):
            yield Play(((at, event),), answer="lost")
            yield Play(((at, event),), answer="late")
            yield Play(((at, event),), answer="late", between=(commit_arrives,))
            yield Play(((at, event), (at + 1, commit_arrives)), answer="late")


def pairs(number: int, seed: int = 1) -> Iterator[Play]:
    """Yield events in twos and threes at calls chosen by a seed."""
    choose = random.Random(seed)
    most = calls_of(tight=True)
    for _ in range(number):
        ats = sorted(choose.randint(1, most) for _ in range(choose.choice((2, 2, 3))))
        chosen = tuple((at, choose.choice(EVENTS)) for at in ats)
        kill_at = choose.choice((None, None, ats[-1], choose.randint(ats[0], most)))
        between = tuple(choose.choice(EVENTS) for _ in range(choose.choice((0, 0, 1))) if kill_at is not None)
        answer: Answer = choose.choice(ANSWERS)
        yield Play(chosen, choose.random() < 0.5, kill_at, choose.random() < 0.5, answer, between)


def main(step: int, number: int) -> int:
    """Play and print the result."""
    plays = {"single": singles(step=step), "unanswered": unanswered(step=step), "pairs": pairs(number)}
    return 1 if sum(len(play_all(name, some, told).wrong) for name, some in plays.items()) else 0


if __name__ == "__main__":
    sys.exit(main(*(int(one) for one in (*sys.argv[1:], "1", "20000")[:2])))
