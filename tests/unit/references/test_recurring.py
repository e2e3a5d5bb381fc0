"""The recurring task of a catalog's index, in the harness."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta

from delegation.errors import RunHandedOver
from delegation.references.recurring import RecurringCatalog, reference_index
from delegation.references.refresh import Refresher
from delegation.tasks.testing import TaskHarness
from delegation.tasks.work.attempt_context import AttemptContext
from tests.kit.lakes.lake import busy_table
from tests.unit.references.test_refresh import Scene

TABLES = 40


def test_a_pass_of_many_hand_overs_ends() -> None:
    """Each attempt has time for one table; twenty hand-overs in a row are excused only while the task gets ahead."""
    scene = Scene()
    busy_table(scene.one, "t")
    for number in range(TABLES - 1):
        scene.one.pointers[f"t{number}"] = scene.one.pointers["t"]
    tables: Counter[int] = Counter()

    def refresher(run: AttemptContext) -> Refresher:
        attempt = run.task.attempt_count

        def checkpoint() -> None:
            # A report is written every two seconds.
            scene.now = harness.advance(timedelta(seconds=3))
            tables[attempt] += 1
            if tables[attempt] > 1:
                raise RunHandedOver(run.task.task_id)

        found = scene.refresher(f"attempt {attempt}", checkpoint=checkpoint)
        return replace(found, report=lambda checked: run.report(done=checked, unit="tables"))

    behavior = reference_index(refresher, every=timedelta(days=365))
    harness = TaskHarness(behavior)
    scene.now = harness.now
    harness.submit(behavior, RecurringCatalog(catalog="cat"))
    harness.run_until_idle()
    assert len(tables) <= 2 * (TABLES + 1) + 1  # a continued first pass loads each twice, then it ends
    assert scene.store.pass_of("cat").tables == TABLES
