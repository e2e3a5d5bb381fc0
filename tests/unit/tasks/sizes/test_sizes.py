"""What does not fit into the task table: refused before work begins, or kept in the record bucket."""

import pytest
from pydantic import BaseModel

from delegation.tasks.errors import TaskError
from delegation.tasks.life.model import Status, Task
from delegation.tasks.stores.base import Create, Revise
from delegation.tasks.work.behaviors import Behavior, Run
from delegation.tasks.work.submit import Parent
from tests.contract.task_tables import moto_task_store
from tests.unit.tasks.builders import submitted, touched
from tests.unit.tasks.stores.dynamodb_bench import Bench
from tests.unit.tasks.stores.faulty_client import Fault, answered
from tests.unit.tasks.work.site import ONE, Site, Sum, Total, add, identity

LINE_6 = "issue 13, line 6: "
KIB = 1024
CHILD = Behavior("CHILD", Sum, add, result=Total, identify=identity)


def fault(text: str) -> pytest.MarkDecorator:
    return pytest.mark.xfail(strict=True, reason=LINE_6 + text)


class Text(BaseModel):
    text: str


def echo(parameters: Text, _run: Run) -> Text:
    return parameters


def grow(parameters: Sum, _run: Run) -> Text:
    return Text(text="ä" * parameters.left * KIB)


ECHO = Behavior("ECHO", Text, echo, result=Text)
GROW = Behavior("GROW", Sum, grow, result=Text)


# ---- before work begins


@fault("the size of a payload is not checked before work begins")
@pytest.mark.parametrize("text", ["x" * 400 * KIB, "x" * 130 * KIB, "ä" * 66 * KIB])
def test_a_payload_that_would_not_fit_with_what_follows_is_refused_when_it_is_submitted(text: str) -> None:
    """A payload just below DynamoDB's limit would be stored, and no attempt could ever acquire the task."""
    from delegation.tasks.errors import TaskPayloadTooLarge

    site = Site()
    with pytest.raises(TaskPayloadTooLarge, match=r"ECHO.*bytes.*131,072") as refusal:
        site.client().submit(ECHO, Text(text=text))
    assert refusal.value.retryable is False
    assert site.store.heads().entries == ()


def test_a_payload_that_fits_is_accepted() -> None:
    site = Site()
    assert site.client().submit(ECHO, Text(text="x" * 100 * KIB)).is_new


@fault("a child's payload is not checked before it is adopted")
def test_a_parent_of_a_child_that_is_too_large_fails_at_once() -> None:
    site = Site()

    def work(_parameters: Sum, run: Run) -> None:
        site.client().submit(ECHO, Text(text="x" * 400 * KIB), parent=Parent(run.task.task_id, 1))

    behavior = Behavior("PARENT", Sum, work)
    task_id = site.client().submit(behavior, ONE).task_id
    site.worker("w", behavior).run_once()
    head = site.head(task_id)
    assert (head.status, head.error_code, head.attempt_count) == (Status.FAILURE, "TASK_PAYLOAD_TOO_LARGE", 1)


# ---- what DynamoDB refuses permanently


def too_large(task: Task) -> Task:
    return touched(task, note="x" * 500 * KIB)


@fault("a write that DynamoDB refuses permanently is reported as if it could be repeated")
def test_a_write_that_the_table_can_never_hold_is_not_to_be_repeated() -> None:
    with moto_task_store() as store:
        task = store.apply(Create(submitted()))
        for change in (Create(too_large(submitted())), Revise(task, too_large(task))):
            with pytest.raises(TaskError) as refusal:
                store.apply(change)
            assert (refusal.value.code, refusal.value.retryable) == ("STORE_REFUSED", False)


@fault("ValidationException is reported as if the call could be repeated")
def test_a_validation_exception_is_permanent_and_tried_once(bench: Bench) -> None:
    task = submitted()
    bench.client.writes = [Fault(answered("ValidationException"))]
    with pytest.raises(TaskError) as refusal:
        bench.store.apply(Create(task))
    assert (refusal.value.code, refusal.value.retryable, bench.waits) == ("STORE_REFUSED", False, [])
    assert "ValidationException" in str(refusal.value)


@fault("work whose write the table refuses permanently is done five times")
def test_work_whose_write_the_table_refuses_permanently_is_done_once() -> None:
    done: list[int] = []
    with moto_task_store() as store:
        site = Site(store=store)  # type: ignore[arg-type]

        def work(_parameters: Sum, run: Run) -> None:
            done.append(1)
            service = site.service()
            service.change(run.task.task_id, lambda task, _now: too_large(task))

        behavior = Behavior("NOTES", Sum, work)
        task_id = site.client().submit(behavior, ONE).task_id
        site.worker("w", behavior).run_once()
        head = site.head(task_id)
        assert (head.status, head.error_code, len(done)) == (Status.FAILURE, "STORE_REFUSED", 1)


# ---- results


@fault("a result too large for the table is done five times and lost")
def test_a_result_too_large_for_the_table_is_kept_in_the_record_bucket() -> None:
    from delegation.tasks.stores.results import MemoryResults

    with moto_task_store() as store:
        site = Site(store=store, results=MemoryResults())  # type: ignore[arg-type, call-arg]
        submission = site.client().submit(GROW, Sum(left=400, right=0))
        site.worker("w", GROW).run_once()
        head = site.head(submission.task_id)
        assert (head.status, head.attempt_count, head.result_extended) == (Status.SUCCESS, 1, None)
        assert head.result_location is not None
        assert submission.completion.wait() == Text(text="ä" * 400 * KIB)


@fault("a parent's result too large for the table is done five times and lost")
def test_a_parents_result_too_large_for_the_table_is_kept_while_it_waits() -> None:
    from delegation.tasks.stores.results import MemoryResults

    with moto_task_store() as store:
        site = Site(store=store, results=MemoryResults())  # type: ignore[arg-type, call-arg]

        def work(_parameters: Sum, run: Run) -> Text:
            site.client().submit(CHILD, ONE, parent=Parent(run.task.task_id, run.task.attempt_count))
            return Text(text="x" * 500 * KIB)

        behavior = Behavior("PARENT", Sum, work, result=Text)
        submission = site.client().submit(behavior, ONE)
        worker = site.worker("w", behavior, CHILD)
        for _ in range(4):
            worker.run_once()
            site.clock.now = site.head(submission.task_id).due_at or site.clock.now
        assert submission.completion.wait() == Text(text="x" * 500 * KIB)
        assert site.head(submission.task_id).unexcused_attempts == 1


@fault("a result too large for the table is done five times")
def test_without_a_record_bucket_a_result_too_large_for_the_table_fails_at_once() -> None:
    with moto_task_store() as store:
        site = Site(store=store)  # type: ignore[arg-type]
        task_id = site.client().submit(GROW, Sum(left=400, right=0)).task_id
        site.worker("w", GROW).run_once()
        head = site.head(task_id)
        assert (head.status, head.error_code, head.attempt_count) == (Status.FAILURE, "RESULT_TOO_LARGE", 1)
        assert head.result_summary is not None
        assert "DELEGATION_PLAN_BUCKET" in head.result_summary


@fault("a result that was changed in the record bucket is returned")
def test_a_result_that_was_changed_since_is_not_returned() -> None:
    from delegation.tasks.stores.results import MemoryResults

    from delegation.tasks.errors import MalformedRecord

    results = MemoryResults()
    site = Site(results=results)  # type: ignore[call-arg]
    submission = site.client().submit(GROW, Sum(left=400, right=0))
    site.worker("w", GROW).run_once()
    [key] = results.kept
    results.kept[key] = b'{"text": "other"}'
    with pytest.raises(MalformedRecord, match="result"):
        submission.completion.wait()


@fault("a result too large for the table is lost")
def test_a_small_result_stays_in_the_table() -> None:
    from delegation.tasks.stores.results import MemoryResults

    results = MemoryResults()
    site = Site(results=results)  # type: ignore[call-arg]
    submission = site.client().submit(GROW, Sum(left=30, right=0))
    site.worker("w", GROW).run_once()
    assert results.kept == {}
    assert submission.completion.wait() == Text(text="ä" * 30 * KIB)
