"""Work that waits for something outside: it ends its attempt, and runs again later without using up attempts."""

from datetime import timedelta

from delegation.tasks.authoring import Context, RunPostponed, behavior
from delegation.tasks.testing import TaskHarness

HOUR = timedelta(hours=1)
exports: list[bool] = []


@behavior("acme.export")
def export(context: Context) -> str:
    if exports.pop(0):
        return "exported"
    raise RunPostponed("the export runs", timedelta(minutes=10))


def test_work_that_postpones_runs_again_after_its_wait_and_counts_no_attempt():
    exports[:] = [False] * 30 + [True]
    harness = TaskHarness(export)
    handle = harness.submit(export.of())
    began = harness.now
    harness.run_due()
    task = handle.get()
    assert (task.status, task.error_code) == ("RETRY_SCHEDULED", "POSTPONED")
    assert "the export runs" in task.result_summary
    assert "600 s" in task.result_summary
    assert task.next_scheduled_run_ts == began + timedelta(minutes=10)
    harness.run_until_idle()
    assert handle.result() == "exported"
    assert harness.now == began + 30 * timedelta(minutes=10)
    assert handle.get().attempts_excused == 30


def test_work_that_postpones_can_be_cancelled():
    exports[:] = [False, False]
    harness = TaskHarness(export)
    handle = harness.submit(export.of())
    harness.run_due()
    handle.cancel()
    harness.advance(HOUR)
    harness.run_due()
    assert handle.get().error_code == "CANCELLED"
    assert exports == [False]
