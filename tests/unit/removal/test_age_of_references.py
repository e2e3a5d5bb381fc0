"""The references behind a deletion: how old they may be, tested as an order of events between processes."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from delegation.errors import RunCancelled
from delegation.references.errors import ReferencesNotKnown
from delegation.removal.attempt import MemoryAttempt
from delegation.removal.choice import HandedToSpark
from delegation.removal.errors import NeighbourChanged
from delegation.removal.neighbours import AskedReferences, PassRequest

START = datetime(2026, 1, 1, tzinfo=UTC)


class NotedAttempt(MemoryAttempt):
    """Notes of each checkpoint whether the work moved."""

    def __init__(self, moved: list[bool]) -> None:
        super().__init__("task")
        self._moved = moved

    def checkpoint(self, *, moved: bool = True) -> None:
        self._moved.append(moved)
        super().checkpoint(moved=moved)


@dataclass
class Asker:
    """Attempts at one operation; a ReferenceCheck whose passes are made at once, unless they are `late`.

    While a job waits for one, what another process does is the rest of `checked`, after which the pass is made.
    """

    now: datetime = START
    spark_above: int | None = 10
    awaits_references: bool = False
    checked: list[int] = field(default_factory=list)
    moved: list[bool] = field(default_factory=list)
    passes: list[datetime] = field(default_factory=list)
    late: bool = False
    note: PassRequest | None = None
    found: Exception | None = None
    """What a look at other tables finds."""

    def __post_init__(self) -> None:
        self.attempt = NotedAttempt(self.moved)
        self.references = self

    def summary(self) -> list[dict[str, Any]]:
        return []

    def renew(self) -> None:
        self.passes.append(self.now)

    def ensure_known(self) -> None:
        if self.late or self.checked:
            raise ReferencesNotKnown("cat", self.checked.pop(0) if self.checked else 0, 9)

    def sleep(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def ask(self, left: int, *, after: float = 0) -> None:
        """Ask as another attempt does, so many minutes later."""
        self.now += timedelta(minutes=after)
        AskedReferences(self, lambda: self.note, lambda note: setattr(self, "note", note), look=self.look).ask(left)

    def look(self) -> None:
        if self.found is not None:
            raise self.found

    def in_a_job(self, *, after: float) -> None:
        self.spark_above, self.awaits_references = None, True
        self.ask(99, after=after)
        self.spark_above, self.awaits_references = 10, False


def handed_over(**fields: Any) -> Asker:
    """Return one whose first attempt was handed to Spark."""
    asker = Asker(**fields)
    with pytest.raises(HandedToSpark):
        asker.ask(11)
    return asker


@pytest.mark.parametrize("minutes", [0, 5, 14, 60])
def test_a_job_requires_a_pass_that_starts_after_it(minutes: int) -> None:
    asker = handed_over()
    asker.in_a_job(after=minutes)
    assert asker.passes == [START, START + timedelta(minutes=minutes)]


def test_a_job_requires_a_new_pass_after_an_earlier_job_that_ended() -> None:
    """The first one was lost while it waited: what is registered until the second one begins is in no pass."""
    asker = handed_over()
    asker.late = True
    asker.attempt = Cancelled(asker.moved)
    with pytest.raises(RunCancelled):
        asker.in_a_job(after=1)
    asker.attempt, asker.late = NotedAttempt(asker.moved), False
    asker.in_a_job(after=10)
    assert len(asker.passes) == 3
    assert asker.passes[-1] == asker.now


@pytest.mark.parametrize("found", [None, NeighbourChanged("cat.ns.other", "s3://lake/wh/other/snap-1.avro")])
def test_an_attempt_after_a_hand_over_requires_a_new_pass(found: Exception | None) -> None:
    """The look at other tables ended the hand-over, or a process without Spark has the attempt."""
    asker = Asker(found=found)
    with pytest.raises(HandedToSpark if found is None else NeighbourChanged):
        asker.ask(11)
    asker.spark_above = None
    asker.ask(11, after=10)
    assert asker.passes == [START, asker.now]


def test_an_attempt_that_waits_for_the_pass_requires_no_other_unless_a_former_release_handed_over() -> None:
    asker = Asker(late=True)
    for minutes in (0, 60):
        with pytest.raises(ReferencesNotKnown):
            asker.ask(11, after=minutes)
    assert asker.passes == [START]
    asker = Asker(note=PassRequest(asked=True, known_at=START), spark_above=None)
    asker.ask(11, after=1)
    assert asker.passes == [asker.now]


def test_a_job_waits_for_the_pass_of_another_process() -> None:
    """Ended, it would be queued again for as long: where every job begins late, none would delete."""
    asker = handed_over()
    asker.checked = [3, 5, 5, 5, 9]
    asker.in_a_job(after=30)
    assert asker.passes == [START, START + timedelta(minutes=30)]
    assert asker.moved == [True, True, False, False, True]
    assert asker.now == START + timedelta(minutes=30, seconds=25)


class Cancelled(NotedAttempt):
    """Is cancelled at its second checkpoint."""

    def checkpoint(self, *, moved: bool = True) -> None:
        super().checkpoint(moved=moved)
        if len(self._moved) == 2:
            raise RunCancelled("task")


def test_a_job_that_waits_stops_when_it_is_cancelled() -> None:
    asker = Asker(late=True)
    asker.attempt = Cancelled(asker.moved)
    with pytest.raises(RunCancelled):
        asker.in_a_job(after=30)
    assert asker.moved == [True, False]


def test_the_limit_itself_is_not_handed_over() -> None:
    Asker().ask(10)
