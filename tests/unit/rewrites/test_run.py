"""One attempt at a rewrite: rounds after conflicts, the figures of its commits, its receipt, its errors."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from delegation.errors import GuardRefused, RunCancelled
from delegation.identifiers import TableIdentifier
from delegation.polaris.model import LoadedTable
from delegation.polaris.requests import CatalogRequests
from delegation.rewrites.commits import ATTEMPT, TASK_ID, own_commits
from delegation.rewrites.context import (
    CHANGED_FIRST,
    DataFilesRewrite,
    ManifestsRewrite,
    Performed,
    PutOff,
    Rewrite,
    RewriteAttempt,
    RewriteContext,
    RewriteResult,
)
from delegation.rewrites.errors import RewriteError
from delegation.rewrites.fence import Gate, Sent, SentCommit
from delegation.rewrites.run import ROUNDS, run_rewrites, wait_after
from delegation.storage.memory import MemoryPlanStore
from polaris_common.errors import DelegationError

ORDERS = TableIdentifier("lake", ("sales",), "orders")
UUID = "7f3b5f0e-54ad-4a0a-9d2a-3f1f6c9ce001"
CONFLICT = PutOff(groups=2, reason="another writer committed first", is_conflict=True)
FAILED = PutOff(groups=1, reason="their files could not be written", is_conflict=False)


@dataclass
class Table:
    """A table whose snapshots are added by hand."""

    version: int = 2
    table_uuid: str = UUID
    snapshots: list[dict[str, Any]] = field(default_factory=list)
    refs: dict[str, Any] = field(default_factory=dict)

    def load(self) -> LoadedTable:
        metadata = {
            "table-uuid": self.table_uuid,
            "location": "s3://lake/orders",
            "format-version": self.version,
            "snapshots": list(self.snapshots),
            "refs": self.refs,
        }
        return LoadedTable(ORDERS, f"s3://lake/orders/{len(self.snapshots)}.metadata.json", metadata, {})

    def add(self, task_id: str, attempt: int, **metrics: int) -> None:
        summary = {"operation": "replace", TASK_ID: task_id, ATTEMPT: str(attempt)}
        summary |= {name.replace("_", "-"): str(value) for name, value in metrics.items()}
        self.snapshots.append({"snapshot-id": len(self.snapshots) + 1, "summary": summary})


@dataclass
class Attempt:
    task_id: str = "task-1"
    attempt: int = 2
    stops: BaseException | None = None
    looks: list[bool] = field(default_factory=list)

    def checkpoint(self, *, moved: bool = True) -> None:
        self.looks.append(moved)
        if self.stops is not None and not moved:
            raise self.stops

    def report(self, **_fields: Any) -> None: ...


@dataclass
class Engine:
    """Answers with what is to come; each call may commit to the table."""

    table: Table
    answers: list[Performed]
    commits: bool = True
    is_expired: bool = False
    error: BaseException | None = None
    iceberg_version: str = "1.12.0"
    calls: list[tuple[Rewrite, Gate]] = field(default_factory=list)

    def perform(self, gate: Gate, rewrite: Rewrite, attempt: RewriteAttempt) -> Performed:
        self.calls.append((rewrite, gate))
        if self.commits:
            self.table.add(
                attempt.task_id,
                attempt.attempt,
                deleted_data_files=10,
                added_data_files=1,
                removed_files_size=1000,
                added_files_size=900,
                removed_delete_files=2,
                manifests_replaced=3,
                manifests_created=1,
            )
            [*_, own] = own_commits({"snapshots": self.table.snapshots}, attempt.task_id)
            conflicting = SentCommit(replace(own, snapshot_id=own.snapshot_id + 1_000), Sent.CONFLICT)
            gate.commits += [SentCommit(own, Sent.APPLIED), conflicting, SentCommit(None, Sent.REFUSED)]
        if self.is_expired:
            self.table.snapshots.clear()
        if self.error is not None:
            raise self.error
        return self.answers.pop(0)


@dataclass
class World:
    table: Table = field(default_factory=Table)
    attempt: Attempt = field(default_factory=Attempt)
    plans: MemoryPlanStore = field(default_factory=MemoryPlanStore)
    seconds: float = 0.0

    def context(self, **fields: Any) -> RewriteContext:
        def sleep(seconds: float) -> None:
            self.seconds += seconds

        return RewriteContext(
            attempt=self.attempt,
            identifier=ORDERS,
            table_uuid=UUID.upper(),
            tables=self.table,
            requests=cast("CatalogRequests", None),
            store=cast("Any", None),
            plans=self.plans,
            clock=lambda: datetime(2026, 11, 29, tzinfo=UTC),
            now=lambda: self.seconds,
            sleep=sleep,
            **fields,
        )

    def run(self, answers: Sequence[Performed], *rewrites: Rewrite, commits: bool = True, **fields: Any) -> Any:
        self.engine = Engine(self.table, list(answers), commits)
        chosen = rewrites or (DataFilesRewrite(),)
        return run_rewrites(self.context(**fields), chosen, self.engine, lambda: chosen)


def test_the_figures_are_those_of_the_task_s_own_commits_whoever_saw_their_answers() -> None:
    world = World()
    world.table.add("another", 2, deleted_data_files=50)
    world.table.add("task-1", 1, deleted_data_files=5, added_data_files=1)  # of a killed attempt
    result = world.run([Performed(groups=1, groups_done=1)])
    assert (result.status, result.snapshot_ids) == ("REWRITTEN", (2, 3))
    assert (result.files_rewritten, result.files_added, result.deletes_folded) == (15, 2, 2)
    assert (result.bytes_rewritten, result.bytes_added) == (1000, 900)
    assert (result.manifests_before, result.manifests_after) == (3, 1)
    assert (result.groups_done, result.put_off, result.engine) == (1, (), "spark")
    receipt = json.loads(world.plans.get(result.receipt))
    assert receipt["snapshots"] == ["2", "3"]
    assert receipt["status"] == "REWRITTEN"
    assert (receipt["task_id"], receipt["attempt"], receipt["iceberg_version"]) == ("task-1", 2, "1.12.0")


def test_commits_of_an_earlier_submission_are_not_counted() -> None:
    world = World(attempt=Attempt(attempt=4))
    world.table.add("task-1", 2, deleted_data_files=5)
    result = world.run([Performed(groups=1, groups_done=1)], first_attempt=3)
    assert result.snapshot_ids == (2,)


def test_a_commit_whose_snapshot_has_expired_counts_by_what_the_fence_saw() -> None:
    world = World()
    engine = Engine(world.table, [Performed(groups=1, groups_done=1)], is_expired=True)
    result = run_rewrites(world.context(), (DataFilesRewrite(),), engine, tuple)
    assert (result.status, result.snapshot_ids) == ("REWRITTEN", (1,))
    assert (result.files_rewritten, result.files_added) == (10, 1)
    assert json.loads(world.plans.get(result.receipt or ""))["snapshots"] == ["1"]


@pytest.mark.parametrize("error", [RunCancelled("task-1"), RewriteError("a group failed")])
def test_what_was_committed_before_an_error_is_recorded(error: BaseException) -> None:
    world = World()
    world.table.add("task-1", 1, deleted_data_files=5)
    kept: list[RewriteResult] = []
    engine = Engine(world.table, [], error=error)
    with pytest.raises(type(error)):
        run_rewrites(world.context(ended_early=kept.append), (DataFilesRewrite(),), engine, tuple)
    [result] = kept
    assert (result.status, result.snapshot_ids, result.files_rewritten) == ("REWRITTEN", (1, 2), 15)
    assert json.loads(world.plans.get(result.receipt or ""))["files_rewritten"] == 15
    nothing: list[RewriteResult] = []
    engine = Engine(Table(), [], commits=False, error=error)
    with pytest.raises(type(error)):
        run_rewrites(World().context(ended_early=nothing.append), (DataFilesRewrite(),), engine, tuple)
    assert nothing == []


def test_figures_are_recorded_without_a_receipt_that_could_not_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(_key: str, _body: bytes) -> None:
        raise DelegationError("the bucket is away", code="PLAN_STORE_UNAVAILABLE")

    world, kept = World(), list[RewriteResult]()
    monkeypatch.setattr(world.plans, "put", refuses)
    with pytest.raises(RunCancelled):
        run_rewrites(
            world.context(ended_early=kept.append),
            (DataFilesRewrite(),),
            Engine(world.table, [], error=RunCancelled("task-1")),
            tuple,
        )
    assert [(result.files_rewritten, result.receipt) for result in kept] == [(10, None)]


def test_nothing_is_to_be_done_and_no_receipt_is_stored() -> None:
    world = World()
    result = world.run([Performed()], commits=False)
    assert (result.status, result.receipt, world.plans.objects) == ("NOTHING", None, {})


def test_a_group_that_conflicts_is_planned_again_and_then_left_to_the_next_run() -> None:
    world = World()
    result = world.run([Performed(groups=5, groups_done=3, put_off=(CONFLICT,)), Performed(groups=2, groups_done=2)])
    assert (len(world.engine.calls), result.groups_done, result.put_off) == (2, 5, ())
    assert world.seconds == 2
    world = World()
    result = world.run([Performed(groups=2, put_off=(CONFLICT,))] * ROUNDS, commits=False)
    assert (len(world.engine.calls), result.status, result.put_off) == (ROUNDS, "NOTHING", (CONFLICT,))
    assert world.seconds == 2 + 4


def test_what_another_writer_has_just_changed_is_left_to_the_next_run() -> None:
    world = World()
    conflict = Performed(groups=3, groups_done=1, put_off=(CONFLICT,))
    engine = Engine(world.table, [conflict])
    result = run_rewrites(world.context(), (DataFilesRewrite(),), engine, tuple)
    assert (len(engine.calls), result.groups_done, result.put_off) == (1, 1, (CONFLICT,))
    colder = DataFilesRewrite(options={"min-input-files": "2"})
    engine = Engine(world.table, [conflict, Performed(groups=1, groups_done=1)])
    result = run_rewrites(world.context(), (DataFilesRewrite(),), engine, lambda: (colder,))
    assert [rewrite for rewrite, _ in engine.calls] == [DataFilesRewrite(), colder]
    assert (result.groups_done, result.put_off) == (2, (PutOff(groups=1, reason=CHANGED_FIRST, is_conflict=True),))
    assert world.seconds == 2 + 2


def test_each_call_has_a_gate_of_its_own_for_its_branch() -> None:
    world = World()
    world.run(
        [Performed(groups=1, put_off=(CONFLICT,)), Performed(groups=1, groups_done=1)], DataFilesRewrite(branch="audit")
    )
    gates = [gate for _, gate in world.engine.calls]
    assert gates[0] is not gates[1]
    assert {(gate.rules.branch, gate.rules.table_uuid, gate.rules.attempt) for gate in gates} == {("audit", UUID, 2)}


def test_groups_whose_branch_was_deleted_meanwhile_are_not_put_off() -> None:
    world, kept = World(), list[RewriteResult]()
    world.table.refs = {"audit": {"type": "branch", "snapshot-id": 1}}
    world.engine = Engine(world.table, [Performed(groups=2, groups_done=1, put_off=(FAILED,))])
    result = run_rewrites(world.context(), (DataFilesRewrite(branch="audit"),), world.engine, tuple)
    assert result.put_off == (FAILED,)
    world.table.refs = {}
    world.engine = Engine(world.table, [Performed(groups=2, groups_done=1, put_off=(FAILED,))])
    with pytest.raises(RewriteError, match="no branch audit") as raised:
        run_rewrites(world.context(ended_early=kept.append), (DataFilesRewrite(branch="audit"),), world.engine, tuple)
    assert raised.value.code == "BRANCH_NOT_FOUND"
    assert [one.files_rewritten for one in kept] == [20]


def test_groups_that_cannot_be_written_fail_the_attempt_only_if_none_was() -> None:
    world = World()
    result = world.run([Performed(groups=3, groups_done=2, put_off=(FAILED,))])
    assert (result.status, result.put_off) == ("REWRITTEN", (FAILED,))
    with pytest.raises(RewriteError, match="their files could not be written") as raised:
        World().run([Performed(groups=1, put_off=(FAILED,))], commits=False)
    assert raised.value.retryable


def test_an_attempt_is_cancelled_while_it_waits_for_another_writer() -> None:
    world = World(attempt=Attempt(stops=RunCancelled("task-1")))
    with pytest.raises(RunCancelled):
        world.run([Performed(groups=1, put_off=(CONFLICT,))])
    assert len(world.engine.calls) == 1


def test_another_table_has_the_name_now() -> None:
    world = World(table=Table(table_uuid="0" * 36))
    with pytest.raises(GuardRefused, match="send a new rewrite"):
        world.run([])
    assert world.engine.calls == []


def test_a_runtime_that_harms_the_table_is_refused_before_the_first_call() -> None:
    world = World(table=Table(version=3))
    world.engine = Engine(world.table, [], iceberg_version="1.11.0")
    with pytest.raises(RewriteError, match=r"16699.*1\.12\.0"):
        run_rewrites(world.context(), (DataFilesRewrite(), ManifestsRewrite()), world.engine, tuple)
    assert world.engine.calls == []


def test_waits_grow_and_end_and_only_conflicts_wait() -> None:
    assert [wait_after(rounds, [FAILED, CONFLICT]) for rounds in range(1, ROUNDS + 1)] == [2, 4, None]
    assert wait_after(1, [FAILED]) is None
    assert wait_after(1, []) is None
