"""A dropped schema drains at the speed of the cap, and no task fails by waiting."""

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from delegation.tasks.life.lanes import Running
from delegation.tasks.life.model import Status
from delegation.tasks.life.policy import Policies
from delegation.tasks.stores.base import TaskChange
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.wiring.types import default_properties
from tests.faults.drain.load import Load, drained
from tests.faults.drain.poison import KINDS, PoisonedTasks, poisoned_loads
from tests.faults.drain.site import DispatchedTasks


def policies(slots: int) -> Policies:
    return Policies.from_properties({**default_properties(), "delegation.limits.all": str(slots)})


def test_a_dropped_schema_drains_at_the_speed_of_the_cap() -> None:
    site = DispatchedTasks(MemoryTaskStore(), policies(4), lambdas=5)
    outcome = drained(site, [Load("sales", "lake", 300)], slots=4)
    assert outcome.statuses == {Status.SUCCESS: 300}
    assert outcome.took <= 1.10 * outcome.ideal
    assert outcome.most_running == 4


def test_small_tables_and_a_second_tenant_do_not_wait_for_the_large_ones_of_the_first() -> None:
    site = DispatchedTasks(MemoryTaskStore(), policies(10), lambdas=12)
    shop = Load("shop", "lake", 20, longest=60, first=600, every=300)
    outcome = drained(site, [Load("sales", "lake", 200), shop], slots=10)
    assert outcome.statuses == {Status.SUCCESS: 220}
    assert outcome.small_waits[-1] < 0.25 * outcome.took
    assert outcome.waits[shop][-1] < 0.10 * outcome.took


def test_good_tasks_all_end_although_poisoned_ones_of_every_kind_are_among_them() -> None:
    site = PoisonedTasks(MemoryTaskStore(), policies(6), lambdas=12)
    outcome = drained(site, [Load("sales", "lake", 120), *poisoned_loads(2)], slots=6)
    assert outcome.statuses == {Status.SUCCESS: 120}
    assert Counter(site.kinds.values()) == dict.fromkeys(KINDS, 2)
    assert "SUCCESS" not in site.report()


class Crashed(BaseException):
    """The invocation of the dispatcher ended."""


class FaultyStore(MemoryTaskStore):
    """A store whose index of what runs lags behind by some writes."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self._dice = dice
        self._former: Sequence[Running] = ()
        self._left = 0

    def apply_locked(self, change: TaskChange) -> object:  # type: ignore[override]
        if self._left == 0:
            self._former, self._left = super().running(), self._dice.randrange(1, 4)
        self._left -= 1
        return super().apply_locked(change)

    def running(self) -> Sequence[Running]:
        return self._former if self._dice.random() < 0.3 else super().running()


class FaultySite(DispatchedTasks):
    """A dispatcher that dies at any call, and a queue that loses and repeats messages."""

    def __init__(self, seed: int, slots: int) -> None:
        self.dice = random.Random(seed)
        super().__init__(FaultyStore(self.dice), policies(slots), lambdas=slots + 2)

    def send(self, task_id: str, n: int, *, correlation_id: str | None = None) -> None:
        for _ in range(self.dice.choice((0, 1, 1, 1, 1, 2))):
            super().send(task_id, n)

    def dispatch(self, batch: list[str]) -> list[str]:
        left = self.dice.randrange(1, 12) if self.dice.random() < 0.3 else 0

        def die(_point: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Crashed

        self.store.fault = die  # type: ignore[attr-defined]
        try:
            return super().dispatch(batch)
        except Crashed:
            self.inbox._ended.clear()
            return batch
        finally:
            self.store.fault = lambda _point: None  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", range(4))
def test_a_drain_survives_crashes_of_the_dispatcher_lost_messages_and_a_late_index(seed: int) -> None:
    site = FaultySite(seed, 6)
    outcome = drained(site, [Load("sales", "lake", 60), Load("ops", "lake", 20, longest=60)], slots=6)
    assert outcome.statuses == {Status.SUCCESS: 80}
    assert MemoryTaskStore.running(site.store) == ()  # type: ignore[arg-type]
    assert outcome.most_running <= 6 + 1  # an index that shows a former state again may hide a task that it showed
