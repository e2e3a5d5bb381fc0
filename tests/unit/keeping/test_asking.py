"""How old the references may be with which files are deleted, as an order of hand-overs."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from delegation.keeping.asking import AskedAnew, AskedReferences
from delegation.references.errors import ReferencesNotKnown
from delegation.worksets.attempt import MemoryAttempt
from delegation.worksets.engines.choice import HandedToSpark

START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Asker:
    """Attempts at one operation; a ReferenceCheck whose passes are made at once, unless they are `late`."""

    now: datetime = START
    spark_above: int | None = 10
    passes: list[datetime] = field(default_factory=list)
    late: bool = False
    note: AskedAnew | None = None

    def __post_init__(self) -> None:
        self.attempt = MemoryAttempt("task")
        self.references = self

    def clock(self) -> datetime:
        return self.now

    def summary(self) -> list[dict[str, Any]]:
        return []

    def renew(self) -> None:
        self.passes.append(self.now)

    def ensure_known(self) -> None:
        if self.late:
            raise ReferencesNotKnown("cat", 0, 1)

    def ask(self, left: int, *, after: float = 0) -> None:
        """Ask as another attempt does, so many minutes later."""
        self.now += timedelta(minutes=after)
        AskedReferences(self, lambda: self.note, lambda note: setattr(self, "note", note)).ask(left)

    def in_a_job(self, *, after: float) -> None:
        self.spark_above = None
        self.ask(99, after=after)
        self.spark_above = 10


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


@pytest.mark.parametrize(("left", "handed"), [(10, False), (11, True)])
def test_the_limit_itself_is_not_handed_over(left: int, *, handed: bool) -> None:
    asker = Asker()
    if handed:
        with pytest.raises(HandedToSpark):
            asker.ask(left)
    else:
        asker.ask(left)
