"""The recurring task of a catalog's health, in the harness."""

from dataclasses import replace
from datetime import timedelta

from delegation.errors import RunHandedOver
from delegation.references.recurring import RecurringCatalog, ensure_submitted
from delegation.tasks.life.model import Status
from delegation.tasks.testing import TaskHarness
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.upkeep.errors import HealthUnavailable
from delegation.upkeep.health.refresh import HealthRefresher, catalog_health
from tests.unit.upkeep.health.test_refresh import RefreshedCatalog, world_of

TABLES = 30


def test_a_run_of_many_hand_overs_reads_every_table_once() -> None:
    """Each attempt has time for one table."""
    world = world_of(*(f"t{n}" for n in range(TABLES)))

    def refresher(run: AttemptContext) -> HealthRefresher:
        left = iter([True])

        def checkpoint() -> None:
            world.now = harness.advance(timedelta(seconds=3))
            if not next(left, False):
                raise RunHandedOver(run.task.task_id)

        found = world.refresher(checkpoint=checkpoint)
        return replace(found, report=lambda read: run.report(done=read, unit="tables"))

    behavior = catalog_health(refresher, every=timedelta(days=365))
    harness = TaskHarness(behavior)
    world.now = harness.now
    harness.submit(behavior, RecurringCatalog(catalog="lake"))
    harness.run_until_idle()
    assert world.loads.total() == TABLES
    assert len(list(world.healths.healths("lake"))) == TABLES


def test_a_store_that_does_not_answer_does_not_end_the_recurrence() -> None:
    world = RefreshedCatalog()

    class Unavailable(HealthRefresher):
        def refresh(self, catalog: str):
            raise HealthUnavailable("no answer")

    behavior = catalog_health(
        lambda _run: Unavailable(world.healths, world.index, world, lambda _t: world.store, lambda: world.now),
        every=timedelta(hours=1),
    )
    harness = TaskHarness(behavior)
    handle = harness.submit(behavior, RecurringCatalog(catalog="lake"))
    harness.run_due()
    assert Status.SUCCESS in harness.history(handle)
    assert Status.FAILURE not in harness.history(handle)


def test_the_task_of_a_catalog_is_submitted_once() -> None:
    behavior = catalog_health(lambda _run: world_of().refresher(), every=timedelta(hours=1))
    harness = TaskHarness(behavior)
    assert ensure_submitted(harness.service, behavior, "lake")
    assert not ensure_submitted(harness.service, behavior, "lake")
    assert ensure_submitted(harness.service, behavior, "other")
