"""How old the references may be with which files are deleted, as an order of hand-overs."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from delegation.errors import RunCancelled
from delegation.keeping.asking import AskedAnew, AskedReferences
from delegation.keeping.errors import NeighbourChanged
from delegation.references.errors import ReferencesNotKnown
from delegation.worksets.attempt import MemoryAttempt
from delegation.worksets.engines.choice import HandedToSpark

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
    note: AskedAnew | None = None
    found: Exception | None = None
    """What a look at other tables finds."""

    def __post_init__(self) -> None:
        self.attempt = NotedAttempt(self.moved)
        self.references = self

    def clock(self) -> datetime:
        return self.now

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


def test_a_job_that_begins_soon_asks_for_no_other_pass() -> None:
    asker = Asker()
    with pytest.raises(HandedToSpark):
        asker.ask(11)
    asker.in_a_job(after=15)
    assert asker.passes == [START]


def test_a_job_that_begins_late_asks_for_another_pass() -> None:
    asker = Asker()
    with pytest.raises(HandedToSpark):
        asker.ask(11)
    asker.in_a_job(after=15.1)
    assert asker.passes == [START, asker.now]


def test_a_pass_does_not_become_younger_by_another_hand_over() -> None:
    """Jobs that fail before they use it, one after the other, each less than 15 minutes after the one before."""
    asker = Asker()
    for minutes in (0, 10):
        with pytest.raises(HandedToSpark):
            asker.ask(11, after=minutes)
    asker.in_a_job(after=10)
    assert asker.passes == [START, asker.now]


def test_a_pass_does_not_become_younger_while_looks_at_other_tables_fail() -> None:
    """A table that is registered meanwhile, at the files to delete, is in no pass that is older."""
    asker = Asker(found=NeighbourChanged("cat.ns.other", "s3://lake/wh/other/snap-1.avro"))
    for minutes in (0, 10):
        with pytest.raises(NeighbourChanged):
            asker.ask(11, after=minutes)
    asker.found = None
    with pytest.raises(HandedToSpark):
        asker.ask(11, after=10)
    asker.in_a_job(after=1)
    assert asker.passes == [START, START + timedelta(minutes=20)]


def test_the_time_of_a_pass_counts_from_when_it_is_known() -> None:
    asker = Asker(late=True)
    for minutes in (0, 60):
        with pytest.raises(ReferencesNotKnown):
            asker.ask(11, after=minutes)
    asker.late = False
    with pytest.raises(HandedToSpark):
        asker.ask(11, after=60)
    asker.in_a_job(after=14)
    assert asker.passes == [START]


def test_a_job_that_begins_late_waits_for_the_pass_of_another_process() -> None:
    """Ended, it would be queued again for as long: where every job begins late, none would delete."""
    asker = Asker()
    with pytest.raises(HandedToSpark):
        asker.ask(11)
    asker.checked = [3, 5, 5, 5, 9]
    asker.in_a_job(after=30)
    assert asker.passes == [START, START + timedelta(minutes=30)]
    assert asker.moved == [True, True, False, False, True]
    assert asker.now == START + timedelta(minutes=30, seconds=25)


def test_a_job_waits_for_a_pass_that_another_attempt_asked_for() -> None:
    asker = Asker(late=True)
    with pytest.raises(ReferencesNotKnown):
        asker.ask(11)
    asker.late, asker.checked = False, [1]
    asker.in_a_job(after=1)
    assert asker.passes == [START]


def test_a_job_that_waits_stops_when_it_is_cancelled() -> None:
    class Cancelled(NotedAttempt):
        def checkpoint(self, *, moved: bool = True) -> None:
            super().checkpoint(moved=moved)
            if len(self._moved) == 2:
                raise RunCancelled("task")

    asker = Asker(late=True)
    asker.attempt = Cancelled(asker.moved)
    with pytest.raises(RunCancelled):
        asker.in_a_job(after=30)
    assert asker.moved == [True, False]


@pytest.mark.parametrize(("left", "handed"), [(10, False), (11, True)])
def test_the_limit_itself_is_not_handed_over(left: int, *, handed: bool) -> None:
    asker = Asker()
    if handed:
        with pytest.raises(HandedToSpark):
            asker.ask(left)
    else:
        asker.ask(left)
