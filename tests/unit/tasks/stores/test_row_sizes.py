"""What a long history costs: the errors of all attempts are stored once, in the head, and with the end."""

import json

from delegation.tasks.life.model import Status
from delegation.tasks.life.policy import Lease
from delegation.tasks.life.transitions import acquire, fail, schedule_retry
from delegation.tasks.stores import codec
from tests.kit.tasks.builders import HOUR, NOW, submitted

LEASE = Lease.lasting(HOUR, NOW)
RETRIES = 1_000
ERROR = "a text of the error that is as long as a traceback of the work is\n" * 8


def test_a_thousand_retries_store_their_errors_once() -> None:
    """They took 98.6 MB; the head alone has the last 32 KB of them while the task has not ended."""
    task = submitted()
    size = 0
    for _ in range(RETRIES):
        held = acquire(task, "run", NOW, LEASE)
        task = schedule_retry(held, NOW, at=NOW, grace=NOW - NOW, code="X", summary=ERROR)
        size += sum(len(json.dumps(codec.row_item(row), default=str)) for row in (held, task))
    assert len(codec.head_item(task)["result_extended"]) == 32_768
    assert size < 6_000_000


def test_each_row_says_its_own_error_and_the_end_all_of_them() -> None:
    task = submitted()
    held = acquire(task, "run", NOW, LEASE)
    waiting = schedule_retry(held, NOW, at=NOW, grace=NOW - NOW, code="X", summary="the first error")
    ended = fail(acquire(waiting, "run", NOW, LEASE), NOW, code="Y", summary="the second error")
    row = codec.task_of(codec.row_item(waiting))
    assert (row.error_code, row.result_summary, row.result_extended) == ("X", "the first error", None)
    end = codec.task_of(codec.row_item(ended))
    assert end.result_extended == ended.result_extended
    assert "the first error" in str(end.result_extended)


def test_a_row_of_the_former_release_is_read_with_its_text() -> None:
    waiting = submitted().evolve(status=Status.RETRY_SCHEDULED, result_extended="the first error")
    former = {**codec.row_item(waiting), "result_extended": "the first error"}
    assert codec.task_of(former).result_extended == "the first error"
