"""A process that is killed at every call of a drop in turn: the repeat, or the recurring task, brings the right end.

The calls are all requests to the catalog, as the caller and as the service, and all calls of the stores of tombstones
and tasks; each is killed before and after it takes effect.
"""

import contextlib
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from delegation.gateway.drop.tombstones import TombstoneState
from delegation.storage.memory import Faults, Killed
from tests.unit.gateway.drop.world import DropWorld

S = TombstoneState
Act = Callable[[DropWorld], object]


@pytest.fixture(scope="module")
def made() -> Iterator[list[DropWorld]]:
    worlds: list[DropWorld] = []
    yield worlds
    for one in worlds:
        one.close()


def kills(act: Act, prepare: Act, made: list[DropWorld], **properties: str) -> Iterator[tuple[str, DropWorld]]:
    """Yield a world for each call of `act`, killed at it, before and after its effect, with the call's name."""

    def prepared() -> DropWorld:
        here = DropWorld(**properties)
        made.append(here)
        prepare(here)
        here.restart()
        return here

    counted = prepared()
    act(counted)
    names = counted.faults.names
    assert len(names) > 3
    for number, name in enumerate(names, 1):
        for after in (False, True):
            here = prepared()
            here.restart(Faults(kill_at=number, after=after))
            with contextlib.suppress(Killed):
                act(here)
            here.restart()
            yield f"{'after' if after else 'before'} {number} {name}", here


def two_tables(here: DropWorld) -> None:
    here.table("other")
    here.others = here.data()  # type: ignore[attr-defined]
    here.own = here.table()  # type: ignore[attr-defined]


def is_whole(here: DropWorld) -> bool:
    """Whether the table has its name and all its files, and nothing is hidden."""
    return (here.uuid(), here.hidden(), len(here.data())) == (here.own, [], 2 * len(here.others))


def is_purged(here: DropWorld) -> bool:
    """Whether the table and its files are gone, and other files are intact."""
    return (here.uuid(), here.hidden(), here.data()) == (None, [], here.others)


def test_a_killed_drop_that_is_repeated_drops_the_table_once(made):
    for call, here in kills(lambda here: here.drop(), two_tables, made):
        assert here.drop().status == 204, call
        assert here.uuid() is None, call
        here.settle()
        assert is_purged(here), call
        states = {one.state for one in here.records.newest(9).tombstones}
        assert states <= {S.DROPPED, S.CLEARED}, call
        assert here.failed == [], call


def test_a_killed_drop_that_is_never_repeated_is_finished_or_was_never_begun(made):
    ends = set()
    for call, here in kills(lambda here: here.drop(), two_tables, made):
        was_renamed = here.uuid() is None
        here.settle()
        assert is_purged(here) if was_renamed else is_whole(here), call
        assert all(one.check_at is None for one in here.records.newest(9).tombstones), call
        ends.add(was_renamed)
    assert ends == {False, True}


def dropped(here: DropWorld) -> None:
    two_tables(here)
    assert here.drop().status == 204


@pytest.mark.long
def test_a_killed_purge_is_finished(made):
    for call, here in kills(lambda here: here.run_due(), dropped, made):
        here.settle()
        assert is_purged(here), call
        assert here.record().state is S.DROPPED, call
        (task,) = here.drop_tasks()
        assert task.status == "SUCCESS", call


def with_days_of_grace(here: DropWorld) -> None:
    dropped(here)


def restored(here: DropWorld) -> None:
    here.tombstones.restore(here.record().tombstone_id)


@pytest.mark.parametrize("repeated", [True, False])
def test_a_killed_restore_is_finished_by_its_repeat_or_the_recurring_task(made, repeated):
    ends = set()
    for call, here in kills(restored, with_days_of_grace, made, grace="7d"):
        if repeated:
            restored(here)
            assert is_whole(here), call
        here.settle()
        ends.add(is_whole(here))
        if not is_whole(here):
            # Nothing was taken yet: the tombstone waits out its grace period.
            assert (here.record().state, len(here.hidden()), len(here.data())) == (S.RENAMED, 1, 2 * len(here.others))
            assert here.drop_tasks()[0].status == "SUBMITTED", call
    assert ends == ({True} if repeated else {False, True})


def with_a_damaged_manifest(here: DropWorld) -> None:
    two_tables(here)
    damaged = [where for where in here.lake.objects if where[1].startswith("wh/ns/orders/") and "-m0" in where[1]]
    here.lake.objects[damaged[0]] = b"damaged"
    here.on_sleep = here.run_due


@pytest.mark.long
def test_a_killed_waiting_drop_whose_purge_is_refused_leaves_the_table_or_a_tombstone(made):
    """The caller that waits and repeats gets 409 and the table back, whatever was killed."""
    for call, here in kills(lambda here: here.drop(), with_a_damaged_manifest, made, mode="wait"):
        here.on_sleep = here.run_due
        answer = here.drop()
        if answer.code == "STILL_PURGING":  # the killed process was the one that purged: its lease has to end
            here.clock.advance(timedelta(minutes=11))
            answer = here.drop()
        assert (answer.status, is_whole(here)) == (409, True), call
