"""The purges of the run: the demo's two, and one whose dispatch is lost, so that the sweeper's schedule finds it."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from delegation.cli.connection import Connection, Stack
from delegation.identifiers import TableIdentifier
from delegation.tasks.life.transitions import HANDED_OVER
from delegation.wire.tables import PurgeRequest
from delegation.wire.tasks import TaskRecord
from infra.local.demo import tables as demo_tables
from infra.local.demo.__main__ import Demo
from infra.local.demo.tables import NAMESPACE, Bucket, Recipe
from infra.local.errors import LocalStackError

LOST: Final = Recipe("returns", appends=1, days=2)
"""The table whose purge is submitted, but whose message never reaches the dispatcher."""
SWEEP_SECONDS: Final = 240.0
_POLL_SECONDS: Final = 0.5
_TAKE_SECONDS: Final = 30.0


class PurgeWentWrong(LocalStackError):
    """A purge did not end as it must."""


def run_demo(stack_file: Path, console: Console) -> list[str]:
    """Purge a small table inline in one call and a large one on Spark in the background; return what went wrong.

    A call whose time is over hands its task to another process. That is as it must be, and happens on a busy machine.
    """
    # The deployment there executes no policies.
    report = Demo(stack_file, console, by_policy=False).run(time.monotonic())
    tables = [replace(table, history=last_attempt(table.history)) for table in report.tables]
    return replace(report, tables=tables).problems()


def last_attempt(history: Sequence[TaskRecord]) -> Sequence[TaskRecord]:
    """Return a history without its attempts that handed the task over; all of it if one ended otherwise."""
    ended = [view for view in history if view.status == "RETRY_SCHEDULED"]
    if not history or any(view.error_code != HANDED_OVER for view in ended):
        return history
    return [view for view in history if view.attempt_count in {0, history[-1].attempt_count}]


def purge_without_message(stack_file: Path, sqs: Any, functions: Any, mapping: str, queue_url: str) -> str:
    """Purge a table whose dispatch message is taken away before the mapping sees it; return the task's id.

    Raises PurgeWentWrong unless the task succeeds and no object is left.
    """
    connection, stack = Connection(stack_file), Stack.read(stack_file)
    table = demo_tables.create(demo_tables.connect(stack), LOST, lambda _step: None)
    identifier = TableIdentifier(stack.warehouse, (NAMESPACE,), LOST.name)
    purge = PurgeRequest(realm=stack.realm, identifier=identifier, requested_at=datetime.now(UTC))
    with connection.client() as service:
        with unmapped(functions, mapping):
            task_id = service.submit(purge.request()).delegation_task_id
            take_messages(sqs, queue_url)
        for view in service.follow(task_id, interval_seconds=_POLL_SECONDS, timeout_seconds=SWEEP_SECONDS):
            status = view.status
    left = Bucket(stack).keys(table.location())
    if status != "SUCCESS" or left:
        raise PurgeWentWrong(f"the task {task_id} without a message is {status}, and {len(left)} objects are left")
    return task_id


@contextmanager
def unmapped(functions: Any, mapping: str) -> Iterator[None]:
    """Have the queue feed no function within the block; wait for both changes."""
    functions.update_event_source_mapping(UUID=mapping, Enabled=False)
    _wait(lambda: functions.get_event_source_mapping(UUID=mapping)["State"] == "Disabled", "the mapping's end")
    yield
    functions.update_event_source_mapping(UUID=mapping, Enabled=True)
    _wait(lambda: functions.get_event_source_mapping(UUID=mapping)["State"] == "Enabled", "the mapping")


def take_messages(sqs: Any, queue_url: str) -> int:
    """Remove every message from the queue and return how many there were; raises PurgeWentWrong if there was none.

    With limits in the properties a message only announces that tasks wait, so none has the id of the submitted task.
    """
    taken, deadline = 0, time.monotonic() + _TAKE_SECONDS
    while time.monotonic() < deadline:
        received = sqs.receive_message(QueueUrl=queue_url, MaxNumberOfMessages=10, WaitTimeSeconds=2).get(
            "Messages", []
        )
        for message in received:
            sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])
            taken += 1
        if taken and not received:
            return taken
    raise PurgeWentWrong(f"the dispatch queue had {taken} messages within {_TAKE_SECONDS:.0f} s of a submission")


def _wait(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        if time.monotonic() > deadline:
            raise PurgeWentWrong(f"LocalStack did not change {what} within 60 s")
        time.sleep(_POLL_SECONDS)
