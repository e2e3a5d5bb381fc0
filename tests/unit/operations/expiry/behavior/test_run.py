"""Expiries as tasks, with a reference index over two namespaces and tables that pyiceberg writes."""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from delegation.edge.outlook import estimate_of
from delegation.identifiers import TableIdentifier
from delegation.operations.behaviors.forecasts import forecast_of
from delegation.operations.expiry.behavior.details import ExpiryDetails
from delegation.operations.expiry.behavior.kinds import KIND
from delegation.operations.expiry.behavior.run import ExpiryBehavior
from delegation.operations.purge.behavior.run import PurgeBehavior
from delegation.orchestration.job_runs import JobService
from delegation.orchestration.steps import Steps
from delegation.orchestration.sweep import sweep
from delegation.persistence.errors import IcebergConflict
from delegation.persistence.iceberg.updates.tables import updated_table
from delegation.polaris.errors import CommitConflict, PolarisForbidden
from delegation.polaris.model import LoadedTable
from delegation.tasks.life.model import Status, Task
from delegation.tasks.work.behaviors import Behaviors, FunctionBehavior
from delegation.wiring.types import TYPES
from delegation.wiring.types import forecast_of as deployed_forecast
from delegation.worksets.chunks import Phase
from delegation.worksets.index import load_index, planned_paths
from tests.unit.edge.api.test_openapi import errors_of
from tests.unit.edge.world import REALM
from tests.unit.operations.expiry.world import SMALL
from tests.unit.operations.purge.behavior.test_references import IndexedWorld
from tests.unit.operations.purge.lake import Lake, LakeSource, busy_table, rows


@dataclass
class LakeCommits:
    """Commits to the tables of a lake, as a catalog makes them; `refused` is raised instead."""

    lake: Lake
    clock_ms: int
    refused: Exception | None = None
    made: int = 0

    def commit_table(
        self,
        identifier: TableIdentifier,
        requirements: Sequence[Mapping[str, Any]],
        updates: Sequence[Mapping[str, Any]],
    ) -> LoadedTable:
        if self.refused is not None:
            raise self.refused
        name, before = identifier.name, self.lake.pointers[identifier.name]
        try:
            document = updated_table(
                self.lake.metadata(name), requirements, updates, now_ms=self.clock_ms, previous_file=before
            )
        except IcebergConflict as error:
            raise CommitConflict(str(error), status=409) from error
        self.made += 1
        folder, _, file = before.rpartition("/")
        pointer = f"{folder}/{int(file.partition('-')[0]) + 1:05d}-{uuid.uuid4()}.metadata.json"
        bucket, _, key = pointer.removeprefix("s3://").partition("/")
        self.lake.objects[bucket, key] = json.dumps(document).encode()
        self.lake.pointers[name] = pointer
        return LakeSource(self.lake, name).load()


class ExpiringWorld(IndexedWorld):
    """The service with purges, an index and expiries."""

    jobs: JobService | None = None
    pause = timedelta(days=365 * 60)
    """Between requests: pyiceberg dates snapshots by the machine's clock."""

    def __init__(self) -> None:
        self.expiry: ExpiryBehavior | None = None
        super().__init__()
        # pyiceberg's snapshots are as old as this test's process.
        self.commits = LakeCommits(self.lake, 4_000_000_000_000)
        self.expiry = ExpiryBehavior(
            tasks=self.tasks,
            commits=self.commits,
            open_table=lambda identifier: (LakeSource(self.lake, identifier.name), self.objects),
            plans=self.plans,
            search=self.behavior.search,
            hold=self.behavior.hold,
            lost_refs=self.index,
            settings=SMALL,
            monotonic=self.seconds,
            sleep=self.sleep,
        )
        self.become(self.behavior)

    def become(self, behavior: PurgeBehavior, properties: Mapping[str, str] = {}) -> None:
        super().become(behavior, properties)
        indexing = behavior.reference_task()
        more = [] if indexing is None else [FunctionBehavior(self.tasks, indexing)]
        behaviors = Behaviors([behavior, *([] if self.expiry is None else [self.expiry]), *more])
        self.kinds = frozenset(behaviors)
        self.steps = Steps(self.tasks, self.kinds, behaviors=behaviors, jobs=self.jobs)

    def later(self, hours: int) -> None:
        """Let time pass, and the sweeper dispatch what is due."""
        self.clock.advance(timedelta(hours=hours))
        for swept in sweep(self.tasks, self.kinds, deadline=self.deadline(), clock=self.clock):
            assert swept.error is None, swept.error
        self.drive()

    def expire(self, name: str, **properties: str) -> Task:
        """Have a request for an expiry run until it ends or waits."""
        self.clock.advance(self.pause)
        body = {
            "common_payload": {"operation_type": "TABLE_EXPIRE_SNAPSHOTS", "realm_identifier": REALM},
            "operation_parameters": {
                "table_identity": {"catalog_name": "cat", "namespace_levels": ["ns"], "table_name": name},
                "properties": {"older-than": "now", **properties},
            },
        }
        task_id = self.submit(body).task_id
        self.drive()
        return self.tasks.reads.get(task_id)

    def planned(self, task: Task) -> set[str]:
        """Return the files of a task's plan."""
        indexes = [load_index(self.plans, segment) for segment in ExpiryDetails.of(task).plan_segments]
        return set(planned_paths(self.plans, indexes, (Phase.DATA, Phase.META)))

    def receipt(self, task: Task) -> dict[str, Any]:
        """Return the receipt of the plan that a task executed last."""
        found: dict[str, Any] = json.loads(self.plans.get(str(TYPES.of(task).receipt_key(task))))
        return found

    def needed(self, lake: Lake, name: str) -> set[str]:
        """Return every file that the snapshots of a table read, as pyiceberg finds them."""
        table = lake.table(name)
        found = {lake.pointers[name]}
        for snapshot in table.snapshots():
            found.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(lake.io):
                found.add(manifest.manifest_path)
                found |= {one.data_file.file_path for one in manifest.fetch_manifest_entry(lake.io)}
        return found


@pytest.fixture
def world() -> ExpiringWorld:
    world = ExpiringWorld()
    busy_table(world.lake, "t")
    return world


def test_an_expiry_keeps_what_is_retained_and_leaves_a_receipt(world: ExpiringWorld) -> None:
    before = set(world.lake.uris())
    ids = {one.snapshot_id for one in world.lake.table("t").snapshots()}

    task = world.expire("t")

    assert task.status is Status.SUCCESS
    left = {one.snapshot_id for one in world.lake.table("t").snapshots()}
    assert left < ids
    assert world.needed(world.lake, "t") <= set(world.lake.uris())
    details = ExpiryDetails.of(task)
    assert details.files_deleted == len(before - set(world.lake.uris())) > 0
    assert details.snapshots_expired == len(ids - left)
    assert world.commits.made == 1
    receipt = world.receipt(task)
    assert (receipt["status"], len(receipt["snapshots_removed"])) == ("EXPIRED", len(ids - left))
    (checked,) = receipt["references"]
    assert checked["pass"] > checked["moment"]


def test_a_clone_that_was_registered_after_the_last_pass_and_before_the_commit_reads_its_files(
    world: ExpiringWorld,
) -> None:
    busy_table(world.lake, "first")
    assert world.expire("first").status is Status.SUCCESS
    world.other.pointers["clone"] = world.lake.pointers["t"]
    needed = world.needed(world.other, "clone")

    task = world.expire("t")

    assert task.status is Status.SUCCESS
    assert needed <= set(world.lake.uris())
    assert [finding.code for finding in ExpiryDetails.of(task).findings] == ["FILES_SHARED"]


def test_a_table_that_cannot_be_read_holds_the_deleting_back_until_it_can(world: ExpiringWorld) -> None:
    world.other.create("unread", location="s3://other/unread").append(rows(1))
    world.listing.not_vended.add("unread")
    world.listing.broken["unread"] = PolarisForbidden("no", status=403)
    before = set(world.lake.uris())

    task = world.expire("t")

    assert (task.status, task.error_code) == (Status.RETRY_SCHEDULED, "NEIGHBOUR_UNREADABLE")
    assert before - set(world.lake.uris()) == set()
    assert world.commits.made == 1

    world.listing.broken.clear()
    world.listing.not_vended.clear()
    # The recurring pass over the catalog finds it readable.
    world.later(2)
    world.later(1)
    assert world.tasks.reads.get(task.task_id).status is Status.SUCCESS
    assert before - set(world.lake.uris())
    assert world.commits.made == 1


def test_a_dry_run_changes_nothing_and_its_plan_is_executed_by_its_id(world: ExpiringWorld) -> None:
    before = set(world.lake.uris())

    dry = world.expire("t", **{"dry-run": "true"})
    assert dry.status is Status.SUCCESS, dry.error_message
    assert (set(world.lake.uris()), world.commits.made) == (before, 0)
    [segment] = ExpiryDetails.of(dry).plan_segments

    task = world.expire("t", plan=segment.id)
    assert task.status is Status.SUCCESS
    assert ExpiryDetails.of(task).files_deleted == ExpiryDetails.of(dry).files_planned


def test_a_dry_run_says_what_deleting_its_files_takes_and_costs(world: ExpiringWorld) -> None:
    dry = world.expire("t", **{"dry-run": "true"})
    [segment] = ExpiryDetails.of(dry).plan_segments
    found = forecast_of(dry, ExpiryDetails, world.plans, SMALL, is_dry_run=True)
    assert found is not None
    stored = json.loads(world.plans.get(f"{segment.id}/estimate.json"))
    assert {**stored, "findings": []} == {**found.model_dump(mode="json"), "findings": []}
    assert found.files == ExpiryDetails.of(dry).files_planned == sum(one.files for one in found.by_type.values())
    assert (found.engine, found.delete_requests > 0, found.currency) == ("inline", True, "USD")
    assert dry.result_summary is not None
    assert dry.result_summary.endswith(f"nothing was changed; deleting the files takes {found.text()}")
    answer = estimate_of(dry, found.model_dump(mode="json"), world.clock(), TYPES)
    assert errors_of("Estimate", answer) == []
    assert answer["files_left"] == found.files


def test_the_plan_of_an_expiry_is_forecast_as_long_as_it_is_kept(
    world: ExpiringWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delegation.wiring.purge.plan_store", lambda: world.plans)
    monkeypatch.setattr("delegation.wiring.expiry.run.expiry_settings", lambda: SMALL)
    task = world.expire("t")
    found = forecast_of(task, ExpiryDetails, world.plans, SMALL, is_dry_run=False)
    assert found is not None
    assert found.files == ExpiryDetails.of(task).files_deleted
    assert deployed_forecast(task) == found.model_dump(mode="json")
    answer = estimate_of(task, found.model_dump(mode="json"), world.clock(), TYPES)
    assert (answer["files_left"], answer["seconds_left"]) == (0, 0.0)
    plan = f"{ExpiryDetails.of(task).plan_segments[-1].id}/"
    for key in [key for key in world.plans.objects if key.startswith(plan)]:
        del world.plans.objects[key]
    assert forecast_of(task, ExpiryDetails, world.plans, SMALL, is_dry_run=False) is None


def test_a_second_expiry_has_nothing_to_do_and_makes_no_commit(world: ExpiringWorld) -> None:
    first = world.expire("t")
    again = world.expire("t")
    assert (again.task_id, again.status, world.commits.made) == (first.task_id, Status.SUCCESS, 1)
    assert again.result_summary == "no snapshot is expired; nothing was changed"


def test_a_principal_that_may_not_commit_is_named_the_privilege_and_nothing_is_changed(world: ExpiringWorld) -> None:
    needs = "the principal needs TABLE_WRITE_PROPERTIES on the table's namespace or the catalog"
    world.commits.refused = PolarisForbidden(needs, status=403)
    before = set(world.lake.uris())

    task = world.expire("t")

    assert (task.status, task.error_code) == (Status.FAILURE, "COMMIT_REFUSED")
    assert "POLARIS_FORBIDDEN" in str(task)
    assert "TABLE_WRITE_PROPERTIES" in str(task)
    assert set(world.lake.uris()) == before


def test_after_a_lost_tag_the_next_request_makes_another_plan(world: ExpiringWorld) -> None:
    old = min(world.lake.table("t").snapshots(), key=lambda one: one.sequence_number or 0).snapshot_id
    commit = world.commits.commit_table

    def tag_first(*call: Any) -> LoadedTable:
        world.commits.commit_table = commit  # type: ignore[method-assign]
        world.lake.table("t").manage_snapshots().create_tag(old, "new").commit()
        return commit(*call)

    world.commits.commit_table = tag_first  # type: ignore[method-assign]
    before = set(world.lake.uris())
    lost = world.expire("t")
    assert (lost.status, lost.error_code) == (Status.FAILURE, "REF_LOST")
    assert before - set(world.lake.uris()) == set()

    world.lake.table("t").append(rows(7))
    task = world.expire("t", **{"retain-last": "1"})

    assert (task.task_id, task.status) == (lost.task_id, Status.SUCCESS)
    assert world.commits.made == 2
    assert before <= set(world.lake.uris()) | world.planned(task)


def test_a_later_attempt_asks_for_the_references_anew_before_it_deletes(world: ExpiringWorld) -> None:
    """The first attempt deletes data and fails at metadata; a clone is registered before the next one."""
    former, began, held = world.lake.pointers["t"], set[int](), set[str]()

    def refuse(_bucket: str, key: str, _nth: int) -> str | None:
        if "/metadata/" not in key:
            return None
        [attempt] = [one.attempt_count for one in world.store.heads().tasks if one.task_type == KIND]
        if not began:
            world.other.pointers["clone"] = former
            held.update(world.needed(world.other, "clone") & set(world.lake.uris()))
        began.add(attempt)
        return "InternalError" if attempt == min(began) else None

    world.objects._refuse = refuse  # type: ignore[attr-defined]
    task = world.expire("t")
    assert task.status is Status.SUCCESS, task.result_summary
    assert task.attempt_count > min(began)
    assert held <= set(world.lake.uris())
    assert held
