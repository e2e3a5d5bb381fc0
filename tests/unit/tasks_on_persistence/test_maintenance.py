"""Marking and sweeping as a recurring task: what is garbage goes, what is reachable stays, one task for all."""

import pytest

from delegation.persistence.backends.memory import MemoryBackend
from delegation.persistence.maintenance.sweep import SweepPolicy
from delegation.tasks.errors import RunHandedOver
from delegation.tasks.stores.base import Advance, Create, Revise
from delegation.tasks.work.behaviors import Behavior
from delegation.tasks_on_persistence.maintenance import EVERY, Sweep, SweepReport, persistence_maintenance
from delegation.tasks_on_persistence.store import KernelTaskStore, task_process
from tests.unit.tasks.builders import HOUR, NOW, acquired, submitted, touched
from tests.unit.tasks.work.site import Site

DAY_NS = 86_400 * 10**9


class Kernel:
    """A kernel with a task in it, and garbage: a rewritten head leaves the former one behind once 20 more came."""

    def __init__(self) -> None:
        self.now_ns = int(NOW.timestamp() * 10**9)
        self.backend = MemoryBackend()
        self.process = task_process(self.backend, now_ns=lambda: self.now_ns)
        self.store = KernelTaskStore(self.process.store("realm", "tasks"))
        task = self.store.apply(Create(submitted()))
        self.task = self.store.apply(Advance(task, acquired(task)))
        for _ in range(40):
            after = touched(self.task, files_deleted=self.task.details.get("files_deleted", 0) + 1)
            self.task = self.store.apply(Revise(self.task, after))

    def behavior(self) -> Behavior[Sweep, SweepReport]:
        return persistence_maintenance(lambda: self.process.maintenance(SweepPolicy(grace=3600.0)))


@pytest.fixture
def kernel() -> Kernel:
    kernel = Kernel()
    kernel.now_ns += 2 * DAY_NS
    return kernel


def test_garbage_goes_and_tasks_stay(kernel: Kernel) -> None:
    site = Site()
    submission = site.client().submit(kernel.behavior(), Sweep())
    site.worker("w", kernel.behavior()).run_once()
    report = submission.completion.wait()
    assert report is not None
    assert report.deleted > 0
    assert kernel.store.get(kernel.task.task_id) == kernel.task
    assert len(kernel.store.history(kernel.task.task_id)) == 2
    assert [entry.task_id for entry in kernel.store.due(NOW + 100 * HOUR)] == [kernel.task.task_id]


def test_it_is_one_task_that_recurs(kernel: Kernel) -> None:
    site = Site()
    first = site.client().submit(kernel.behavior(), Sweep())
    assert site.client().submit(kernel.behavior(), Sweep()).task_id == first.task_id
    site.worker("w", kernel.behavior()).run_once()
    head = site.head(first.task_id)
    assert head.next_scheduled_run_ts == site.clock() + EVERY


def test_a_run_that_has_to_end_goes_on_with_the_next_attempt(kernel: Kernel) -> None:
    class Ending:
        """A run that is handed over at once."""

        task = kernel.task

        def checkpoint(self) -> None:
            raise RunHandedOver(self.task.task_id)

        def report(self, **_fields: object) -> None:
            raise AssertionError("nothing to report")

    behavior = kernel.behavior()
    with pytest.raises(RunHandedOver):
        behavior.work(Sweep(), Ending())
    site = Site()
    submission = site.client().submit(behavior, Sweep())
    site.worker("w", behavior).run_once()
    report = submission.completion.wait()
    assert report is not None
    assert report.deleted > 0
