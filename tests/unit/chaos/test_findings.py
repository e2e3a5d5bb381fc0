"""The checks of a chaos run find each thing that may be wrong in what was observed, and nothing in a correct run."""

from dataclasses import replace
from datetime import timedelta

import pytest

from delegation.tasks.life import transitions
from delegation.tasks.life.policy import Lease
from tests.chaos.findings import Call, Finding, Found, Observed, ObservedTable, examine
from tests.chaos.load import Make, TableOfLoad, Way
from tests.chaos.plants import PLANTS
from tests.chaos.verdict import CAUGHT_BY, verdict
from tests.faults.shared.histories import rows_of
from tests.kit.tasks.builders import MINUTE, Clock
from tests.kit.tasks.services import task_service

FILES = frozenset({"s3://warehouse/lake/a/1", "s3://warehouse/lake/a/2", "s3://warehouse/lake/a/3"})
CLONES = frozenset({"s3://warehouse/lake/a/1"})
STRANGER = "s3://warehouse/lake/a/stranger"


class Service:
    """A task service in memory, whose tasks end as a test says."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.tasks = task_service(clock=self.clock)

    def begun(self, name: str) -> str:
        task_id = name
        self.tasks.submission.create(self.tasks.submission.first(task_id=task_id, task_type="DRILL", payload="{}"))
        self.clock.advance(MINUTE)
        self.tasks.leases.acquire(task_id, "holder", lambda now: Lease.lasting(MINUTE, now))
        return task_id

    def succeeded(self, name: str) -> str:
        task_id = self.begun(name)
        self.tasks.leases.succeed(task_id, 1, "done")
        return task_id


@pytest.fixture
def service() -> Service:
    return Service()


def table_of(service: Service, task_id: str | None, make: Make = Make.SMALL, **changes) -> ObservedTable:
    asked = TableOfLoad("t1", "a", make, Way.BACKGROUND, 0.0)
    if task_id is None:
        return replace(ObservedTable(asked, FILES), **changes)
    head = service.tasks.reads.get(task_id)
    found = ObservedTable(asked, FILES, frozenset(), task_id, "", head, rows_of(service.tasks, task_id))
    return with_receipt(replace(found, **changes))


def with_receipt(table: ObservedTable, **changes) -> ObservedTable:
    gone = len(table.must_go)
    receipt = {"task_id": table.task_id, "status": "PURGED", "files_planned": gone, "files_failed": 0}
    return replace(table, receipt={**receipt, "files_deleted": gone, **changes})


def found(observed: Observed) -> list[Found]:
    return [each.found for each in examine(observed)]


def after(*tables: ObservedTable, more: frozenset[str] = frozenset(), **changes) -> Observed:
    content = frozenset().union(*(table.must_stay for table in tables)) | {STRANGER} | more
    return Observed(tables, frozenset({STRANGER}), content, **changes)


def test_a_correct_run_has_no_finding(service):
    purged = table_of(service, service.succeeded("a"))
    cloned = table_of(service, service.succeeded("b"), Make.CLONED, files=frozenset("xyz"), needed=frozenset("x"))
    live = table_of(service, None, Make.LIVE, files=frozenset("uvw"))
    calls = [Call("k", 503), Call("k", None), Call("k", 202), Call("GET /x", 404)]
    assert examine(after(purged, cloned, live, calls=calls)) == []


def test_a_file_of_a_purged_table_that_is_left_is_found(service):
    assert found(after(table_of(service, service.succeeded("a")), more=frozenset([min(FILES)]))) == [Found.LEFT]


@pytest.mark.parametrize("make", [Make.LIVE, Make.PLANNED])
def test_a_file_that_is_gone_of_a_table_that_is_not_purged_is_found(service, make):
    task_id = None if make is Make.LIVE else service.succeeded("a")
    observed = after(table_of(service, task_id, make))
    assert found(replace(observed, content=observed.content - {min(FILES)})) == [Found.WRONGLY_DELETED]


def test_a_file_that_is_gone_and_that_a_clone_needs_is_found_and_one_of_no_table(service):
    observed = after(table_of(service, service.succeeded("a"), Make.CLONED, needed=CLONES))
    assert found(replace(observed, content=frozenset())) == [Found.WRONGLY_DELETED] * 2


def test_a_purge_that_nobody_accepted_is_found(service):
    assert found(after(table_of(service, None, refusal="no"), more=FILES)) == [Found.NOT_ACCEPTED]


def test_a_task_without_an_end_is_found(service):
    assert found(after(table_of(service, service.begun("a")), more=FILES)) == [Found.UNFINISHED]


def test_a_purge_that_failed_is_found_and_of_a_protected_table_one_that_did_not(service):
    task_id = service.begun("a")
    head = service.tasks.reads.get(task_id)
    failed = transitions.fail(head, service.clock(), code="BROKEN", summary="no")
    rows = [*rows_of(service.tasks, task_id), failed]
    assert found(after(table_of(service, task_id, head=failed, rows=rows), more=FILES)) == [Found.OUTCOME]
    assert found(after(table_of(service, service.succeeded("b"), Make.PROTECTED))) == [Found.OUTCOME]


def test_a_version_that_is_missing_is_found(service):
    table = table_of(service, service.succeeded("a"))
    assert Found.HISTORY in found(after(replace(table, rows=[table.rows[0], table.rows[-1]])))


@pytest.mark.parametrize(
    "changes", [{"status": "INCOMPLETE"}, {"files_planned": 2}, {"files_deleted": 2}, {"files_failed": 1}]
)
def test_a_receipt_that_says_otherwise_is_found(service, changes):
    assert found(after(with_receipt(table_of(service, service.succeeded("a")), **changes))) == [Found.RECEIPT]


def test_a_missing_receipt_is_found(service):
    assert found(after(replace(table_of(service, service.succeeded("a")), receipt=None))) == [Found.RECEIPT]


@pytest.mark.parametrize("status", [None, 500, 502, 504])
def test_a_failed_request_without_a_repeat_that_worked_is_found(service, status):
    calls = [Call("one", 202), Call("other", 409), Call("other", status), Call("one", 202)]
    assert found(after(calls=calls)) == [Found.NOT_REPEATED]


@pytest.mark.parametrize(("began", "expected"), [(-30, []), (10, []), (40, [Found.PAUSED]), (70, [])])
def test_an_attempt_that_began_during_the_pause_is_found_once_every_process_knew_of_it(service, began, expected):
    table = table_of(service, service.succeeded("a"))
    since = table.rows[1].last_status_change_ts - timedelta(seconds=began)
    assert found(after(table, paused=(since, since + timedelta(seconds=60)))) == expected


def test_a_process_of_the_release_before_the_deployment_is_found(service):
    assert found(after(old_release=["api, process 7"])) == [Found.OLD_RELEASE]


def test_a_planted_run_passes_only_if_each_fault_is_caught_and_nothing_else_is_found():
    assert CAUGHT_BY.keys() == PLANTS.keys()
    caught = [Finding(kind, "there") for kind in CAUGHT_BY.values()]
    lines, passed = verdict(tuple(PLANTS), [*caught, Finding(Found.RECEIPT, "of it")])
    assert passed
    assert len(lines) == len(PLANTS)
    assert not verdict(tuple(PLANTS), caught[1:])[1]
    assert not verdict(tuple(PLANTS), [*caught, Finding(Found.UNFINISHED, "another")])[1]
