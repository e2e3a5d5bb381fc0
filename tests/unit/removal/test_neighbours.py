"""The check of neighbouring tables before a job starts: which errors it raises, and that a function always passes."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest

from delegation.errors import RunCancelled, RunHandedOver, RunPaused, RunStopped
from delegation.removal import neighbours
from delegation.removal.attempt import MemoryAttempt
from delegation.removal.errors import NeighbourUnreadable
from delegation.removal.expiry.context import ExpiryOptions, ExpirySettings
from delegation.removal.neighbourhood import Neighbour
from delegation.removal.neighbours import LONGEST, look_at_neighbours
from delegation.storage.locations import Roots
from polaris_common.errors import DelegationError
from tests.kit.lakes.lake import Lake, identifier, neighbour, rows

ROOTS = Roots(["s3://lake/wh/t"])


@dataclass
class Looker:
    """A Search in which each other table takes ten seconds to load."""

    others: list[Neighbour | NeighbourUnreadable]
    options: ExpiryOptions = field(default_factory=ExpiryOptions)
    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    seen: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.attempt = MemoryAttempt("task")
        self.identifier = identifier("t")
        self.settings = ExpirySettings()

    def clock(self) -> datetime:
        return self.now

    def neighbours(self, _roots: Roots | None) -> Iterator[Neighbour | NeighbourUnreadable]:
        for one in self.others:
            self.now += timedelta(seconds=10)
            yield one

    def note(self, error: NeighbourUnreadable) -> None:
        self.seen.append(error.who)


def unreadable(name: str) -> NeighbourUnreadable:
    return NeighbourUnreadable(name, DelegationError("no", code="DENIED"))


def damaged(lake: Lake, name: str) -> Neighbour:
    """Return a table inside the location of `t` whose manifest lists are damaged."""
    lake.create(name, location=f"s3://lake/wh/t/{name}").append(rows(1))
    for uri in lake.below(f"s3://lake/wh/t/{name}/metadata/snap-"):
        lake.write(uri, b"damaged")
    return neighbour(lake, name)


@pytest.fixture
def lake() -> Lake:
    return Lake()


def test_it_ends_after_a_minute_however_many_tables_there_are() -> None:
    looker = Looker([unreadable(f"cat.ns.{number}") for number in range(1_000)])
    look_at_neighbours(looker, ROOTS, looker.note)
    assert len(looker.seen) == LONGEST / timedelta(seconds=10)


def test_a_table_whose_manifest_list_is_damaged_is_found(lake: Lake) -> None:
    looker = Looker([damaged(lake, "inside")])
    with pytest.raises(NeighbourUnreadable, match="inside"):
        look_at_neighbours(looker, ROOTS, looker.note)


class Stopped(Looker):
    """Its attempt is stopped while unchanged clones are asked for, of which none is yielded."""

    error: RunStopped

    def neighbours(self, _roots: Roots | None) -> Iterator[Neighbour | NeighbourUnreadable]:
        yield unreadable("cat.ns.first")
        raise self.error


@pytest.mark.parametrize("error", [RunHandedOver("task"), RunPaused("task", "paused"), RunCancelled("task")], ids=type)
def test_the_check_ends_with_what_ends_the_attempt_unless_that_has_no_time_for_it(error: RunStopped) -> None:
    """The rest is left to the job."""
    looker = Stopped([])
    looker.error = error
    with contextlib.nullcontext() if type(error) is RunHandedOver else pytest.raises(type(error)):
        look_at_neighbours(looker, ROOTS, looker.note)
    assert looker.seen == ["cat.ns.first"]


def test_metadata_that_cannot_be_read_is_decided_on_as_the_job_does(lake: Lake) -> None:
    other = damaged(lake, "inside")
    other = replace(other, table=replace(other.table, metadata={"format-version": 99}))
    looker = Looker([other, unreadable("cat.ns.next")])
    look_at_neighbours(looker, ROOTS, looker.note)
    assert looker.seen == ["cat.ns.inside", "cat.ns.next"]


@pytest.mark.parametrize(("bound", "lists"), [("none", 6), ("manifests", 1), ("time", 2)])
def test_of_a_table_with_many_manifest_lists_only_some_are_read(
    lake: Lake, bound: str, lists: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create("inside", location="s3://lake/wh/t/inside")
    for number in range(6):
        table.append(rows(number))
    looker = Looker([neighbour(lake, "inside")])
    looker.settings = replace(looker.settings, read_threads=1)
    read: list[datetime] = []

    def checkpoint(*, moved: bool = True) -> None:
        read.append(looker.now)
        looker.now += LONGEST / 2 if bound == "time" else timedelta(0)

    monkeypatch.setattr(looker.attempt, "checkpoint", checkpoint)
    if bound == "manifests":
        monkeypatch.setattr(neighbours, "MOST_MANIFESTS", 0)
    look_at_neighbours(looker, ROOTS, looker.note)
    assert len(read) == lists


@pytest.mark.parametrize("accepted", ["exempt", "former", "report", "elsewhere"])
def test_what_holds_no_job_back_holds_none_back_before_it(lake: Lake, accepted: str) -> None:
    other = damaged(lake, "inside")
    options = ExpiryOptions(neighbour="report") if accepted == "report" else ExpiryOptions()
    other = replace(other, exempt=accepted == "exempt", former=accepted == "former")
    looker = Looker([other], options=options)
    look_at_neighbours(looker, Roots(["s3://lake/wh/u"]) if accepted == "elsewhere" else ROOTS, looker.note)
    assert looker.now > datetime(2026, 1, 1, tzinfo=UTC)
