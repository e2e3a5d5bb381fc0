"""What does not fit into the task table: refused before work begins, or kept in the record bucket."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from delegation.storage.memory import MemoryPlanStore
from delegation.tasks.errors import MalformedRecord, OutcomeUnknown, StoreRefused
from delegation.tasks.life.model import Status, Task
from delegation.tasks.stores.base import Create
from delegation.tasks.submit import Handle, Parent
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.behaviors import Behavior
from delegation.tasks.work.reads import MOST_RESULT, kept_result, read_result, result_fields
from polaris_common.errors import DelegationError
from tests.contract.task_tables import moto_task_store
from tests.kit.errors import coded
from tests.kit.tasks.builders import HOUR, SECOND, acquired, submitted, touched
from tests.kit.tasks.sites import ONE, Site, Sum, Total, add, identity
from tests.unit.tasks.stores.dynamodb_bench import Bench
from tests.unit.tasks.stores.faulty_client import Fault, answered, cancelled

KIB = 1024
CHILD = Behavior("CHILD", Sum, add, result=Total, identify=identity)


class Text(BaseModel):
    text: str


def echo(parameters: Text, _run: AttemptContext) -> Text:
    return parameters


def grow(parameters: Sum, _run: AttemptContext) -> Text:
    return Text(text="ä" * parameters.left * KIB)


ECHO = Behavior("ECHO", Text, echo, result=Text)
GROW = Behavior("GROW", Sum, grow, result=Text)


# ---- before work begins


@pytest.mark.parametrize("text", ["x" * 400 * KIB, "x" * 130 * KIB, "ä" * 66 * KIB])
def test_a_payload_that_would_not_fit_with_what_follows_is_refused_when_it_is_submitted(text: str) -> None:
    """A payload just below DynamoDB's limit would be stored, and no attempt could ever acquire the task."""
    site = Site()
    too_large = coded("TASK_PAYLOAD_TOO_LARGE")
    with pytest.raises(DelegationError, check=too_large, match=r"ECHO.*bytes.*131,072") as refusal:
        site.client().submit(ECHO, Text(text=text))
    assert refusal.value.retryable is False
    assert site.store.heads().entries == ()
    assert site.client().submit(ECHO, Text(text="x" * 100 * KIB)).is_new


def test_a_parent_of_a_child_that_is_too_large_fails_at_once() -> None:
    site = Site()

    def work(_parameters: Sum, run: AttemptContext) -> None:
        site.client().submit(ECHO, Text(text="x" * 400 * KIB), parent=Parent(run.task.task_id, 1))

    behavior = Behavior("PARENT", Sum, work)
    task_id = site.client().submit(behavior, ONE).task_id
    site.worker("w", behavior).run_once()
    head = site.head(task_id)
    assert (head.status, head.error_code, head.attempt_count) == (Status.FAILURE, "TASK_PAYLOAD_TOO_LARGE", 1)


# ---- what DynamoDB refuses permanently


def too_large(task: Task) -> Task:
    return touched(task, note="x" * 500 * KIB)


@pytest.mark.parametrize("error", [answered("ValidationException"), cancelled("ValidationError", "None")])
def test_a_validation_exception_is_permanent_and_tried_once(bench: Bench, error: Any) -> None:
    bench.client.writes = [Fault(error)]
    with pytest.raises(StoreRefused) as refusal:
        bench.store.apply(Create(submitted()))
    assert (refusal.value.code, refusal.value.retryable, bench.waits) == ("STORE_REFUSED", False, [])


def test_a_refusal_after_an_unclear_answer_is_not_called_permanent(bench: Bench) -> None:
    """The first try may have been applied."""
    bench.client.writes = [Fault(answered("InternalServerError", 500)), Fault(answered("ValidationException"))]
    with pytest.raises(OutcomeUnknown):
        bench.store.apply(Create(submitted()))


def test_work_whose_write_the_table_refuses_permanently_is_done_once() -> None:
    done: list[int] = []
    with moto_task_store() as store:
        site = Site(store=store)  # type: ignore[arg-type]

        def work(_parameters: Sum, run: AttemptContext) -> None:
            done.append(1)
            service = site.service()
            service.writes.change(run.task.task_id, lambda task, _now: too_large(task))

        behavior = Behavior("NOTES", Sum, work)
        task_id = site.client().submit(behavior, ONE).task_id
        site.worker("w", behavior).run_once()
        head = site.head(task_id)
        assert (head.status, head.error_code, len(done)) == (Status.FAILURE, "STORE_REFUSED", 1)


# ---- results


def test_a_result_too_large_for_the_table_is_kept_in_the_record_bucket() -> None:
    with moto_task_store() as store:
        site = Site(store=store, results=MemoryPlanStore())  # type: ignore[arg-type]
        submission = site.client().submit(GROW, Sum(left=400, right=0))
        site.worker("w", GROW).run_once()
        head = site.head(submission.task_id)
        assert (head.status, head.attempt_count, head.result_extended) == (Status.SUCCESS, 1, None)
        assert head.result_location is not None
        assert submission.handle.wait() == Text(text="ä" * 400 * KIB)


def test_a_parents_result_too_large_for_the_table_is_kept_while_it_waits() -> None:
    with moto_task_store() as store:
        site = Site(store=store, results=MemoryPlanStore())  # type: ignore[arg-type]

        def work(_parameters: Sum, run: AttemptContext) -> Text:
            site.client().submit(CHILD, ONE, parent=Parent(run.task.task_id, run.task.attempt_count))
            return Text(text="x" * 500 * KIB)

        behavior = Behavior("PARENT", Sum, work, result=Text)
        submission = site.client().submit(behavior, ONE)
        worker = site.worker("w", behavior, CHILD)
        for _ in range(4):
            worker.run_once()
            site.clock.now = site.head(submission.task_id).due_at or site.clock.now
        assert submission.handle.wait() == Text(text="x" * 500 * KIB)
        assert site.head(submission.task_id).unexcused_attempts == 1


def test_without_a_record_bucket_a_result_too_large_for_the_table_fails_at_once() -> None:
    with moto_task_store() as store:
        site = Site(store=store)  # type: ignore[arg-type]
        task_id = site.client().submit(GROW, Sum(left=400, right=0)).task_id
        site.worker("w", GROW).run_once()
        head = site.head(task_id)
        assert (head.status, head.error_code, head.attempt_count) == (Status.FAILURE, "RESULT_TOO_LARGE", 1)
        assert head.result_summary is not None
        assert "DELEGATION_PLAN_BUCKET" in head.result_summary


def test_a_result_that_was_changed_since_or_cannot_be_reached_is_not_returned() -> None:
    results = MemoryPlanStore()
    site = Site(results=results)
    submission = site.client().submit(GROW, Sum(left=400, right=0))
    site.worker("w", GROW).run_once()
    [key] = results.objects
    results.objects[key] = b'{"text": "other"}'
    with pytest.raises(MalformedRecord, match="result"):
        submission.handle.wait()
    site.results = None
    with pytest.raises(MalformedRecord, match="DELEGATION_PLAN_BUCKET"):
        Handle(site.service(), GROW, submission.task_id, 1).wait()


def test_a_task_that_runs_again_has_another_result() -> None:
    site = Site(results=MemoryPlanStore())
    again = replace(GROW, every=SECOND)
    task_id = site.client().submit(again, Sum(left=400, right=0)).task_id
    worker = site.worker("w", again)
    for _ in range(2):
        worker.run_once()
        site.clock.advance(HOUR)
    ended = [row for row in site.store.history(task_id) if row.status is Status.SUCCESS]
    assert len({row.result_location for row in ended}) == 2
    assert site.head(task_id).result_location is None


@settings(max_examples=30, deadline=None)
@given(st.text(min_size=0, max_size=6), st.integers(60 * KIB, 66 * KIB), st.integers(1, 3))
def test_every_result_is_read_as_it_was_made(text: str, length: int, attempt: int) -> None:
    results = MemoryPlanStore()
    task = acquired(submitted()).evolve(attempt_count=attempt)
    made = json.dumps((text * length)[:length], ensure_ascii=False)
    held = kept_result(results, task, made)
    ended = task.evolve(**result_fields(held))
    assert read_result(results, ended) == made
    assert (ended.result_location is None) == (len(made.encode()) <= MOST_RESULT)
    assert len(held.encode()) <= MOST_RESULT
