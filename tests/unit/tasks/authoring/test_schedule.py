"""When a task runs: later, once for a key, repeatedly, again after a success."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from delegation.tasks.life.model import Status
from delegation.tasks.stores.memory import MemoryTaskStore
from tests.kit.tasks.builders import HOUR, MINUTE, NOW, SECOND, Clock
from tests.kit.tasks.sites import ADD, ONE, Site, Sum, Total, add


@pytest.mark.parametrize("when", [{"at": NOW + HOUR}, {"delay": HOUR}])
def test_a_task_is_submitted_for_later(when: dict) -> None:
    site = Site()
    submitted = site.client().submit(ADD, ONE, **when)
    site.clock.advance(HOUR - SECOND)
    assert site.worker("w", ADD).run_once() is None
    site.clock.advance(SECOND)
    assert site.worker("w", ADD).run_once() is not None
    assert submitted.handle.wait() == Total(total=3)


def test_a_task_recurs_by_a_cron_expression() -> None:
    site = Site()
    submitted = site.client().submit(ADD, ONE, cron="30 3 * * *")
    worker = site.worker("w", ADD)
    assert worker.run_once() is None
    site.clock.now = datetime(2026, 11, 22, 3, 30, tzinfo=UTC)
    assert worker.run_once() is not None
    head = site.head(submitted.task_id)
    assert head.status is Status.SUBMITTED
    assert head.next_scheduled_run_ts == datetime(2026, 11, 23, 3, 30, tzinfo=UTC)


def test_a_recurring_submission_without_a_key_is_known_by_its_parameters() -> None:
    """Each start of a process submitted another task that never ends."""
    site = Site()
    loose = replace(ADD, identify=None, every=HOUR)
    first, again = (site.client().submit(loose, ONE) for _ in range(2))
    assert (again.task_id, again.is_new) == (first.task_id, False)
    assert site.client().submit(loose, Sum(left=5, right=5)).task_id != first.task_id
    assert site.client().submit(loose, ONE, every=MINUTE).task_id == first.task_id
    assert site.head(first.task_id).recurrence_seconds == 60
    once = replace(ADD, identify=None)
    assert site.client().submit(once, ONE).task_id != site.client().submit(once, ONE).task_id


def test_a_schedule_and_its_parameters_are_changed_by_submitting_again() -> None:
    site = Site()
    keyed = replace(ADD, identify=None)
    task_id = site.client().submit(keyed, ONE, key="k", every=HOUR).task_id
    worker = site.worker("w", keyed)
    worker.run_once()
    assert site.client().submit(keyed, Sum(left=5, right=5), key="k", every=MINUTE).task_id == task_id
    head = site.head(task_id)
    assert (head.recurrence_seconds, head.next_scheduled_run_ts) == (60, NOW + MINUTE)
    site.clock.advance(MINUTE)
    worker.run_once()
    runs = [row for row in site.store.history(task_id) if row.status is Status.SUCCESS]
    assert [row.result_extended for row in runs] == ['{"total":3}', '{"total":10}']


def test_a_task_runs_again_after_its_success_by_choice() -> None:
    site = Site()
    runs: list[int] = []
    behavior = replace(ADD, work=lambda parameters, run: runs.append(1) or add(parameters, run))
    worker = site.worker("w", behavior)
    for rerun, total in [(False, 1), (False, 1), (True, 2)]:
        submitted = site.client().submit(behavior, ONE, rerun=rerun)
        worker.run_once()
        assert (submitted.handle.wait(), len(runs)) == (Total(total=3), total)


class CountedStore(MemoryTaskStore):
    """Counts how often a head is read."""

    reads = 0

    def get(self, task_id: str):
        self.reads += 1
        return super().get(task_id)


def test_who_waits_does_not_read_again_before_the_recheck_time() -> None:
    store, clock = CountedStore(), Clock()
    site = Site(store, clock)
    submitted = site.client().submit(ADD, ONE, delay=HOUR)
    store.reads = 0

    def sleep(seconds: float) -> None:
        clock.advance(timedelta(seconds=seconds))
        if clock.now >= NOW + HOUR:
            site.worker("w", ADD).run_once()

    assert submitted.handle.wait(sleep=sleep) == Total(total=3)
    assert store.reads < 100
