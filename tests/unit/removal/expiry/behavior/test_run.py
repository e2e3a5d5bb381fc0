"""Expiries as tasks, with a reference index over two namespaces and tables that pyiceberg writes."""

import json
from datetime import timedelta

import pytest

from delegation.edge.outlook import estimate_of
from delegation.polaris.answers import PolarisForbidden
from delegation.removal.expiry.task_type import TASK_TYPE, ExpiryDetails
from delegation.removal.task_attempt import forecast_of
from delegation.tasks.life.model import Status
from delegation.wiring.types import TYPES
from delegation.wiring.types import forecast_of as deployed_forecast
from tests.kit.lakes.lake import busy_table, filled, rows
from tests.kit.stories.expiries import SMALL
from tests.kit.worlds.expiring import ExpiringWorld
from tests.unit.edge.api.test_openapi import errors_of
from tests.unit.removal.purge.behavior.test_unreadable_tables import continued, exempt_all, refresh


@pytest.fixture
def world() -> ExpiringWorld:
    return filled(ExpiringWorld(), "t")


def test_an_expiry_keeps_what_is_retained_and_leaves_a_receipt(world: ExpiringWorld) -> None:
    before = set(world.lake.uris())
    ids = {one.snapshot_id for one in world.lake.table("t").snapshots()}

    task = world.expire("t")

    assert task.status is Status.SUCCESS
    left = {one.snapshot_id for one in world.lake.table("t").snapshots()}
    assert left < ids
    assert world.lake.needed("t") <= set(world.lake.uris())
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
    needed = world.other.needed("clone")

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
    found = forecast_of(dry, world.plans, SMALL, is_dry_run=True)
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
    monkeypatch.setattr("delegation.wiring.operations.plan_store", lambda: world.plans)
    monkeypatch.setattr("delegation.wiring.operations.purge_settings", lambda: SMALL)
    task = world.expire("t")
    found = forecast_of(task, world.plans, SMALL, is_dry_run=False)
    assert found is not None
    assert found.files == ExpiryDetails.of(task).files_deleted
    assert deployed_forecast(task) == found.model_dump(mode="json")
    answer = estimate_of(task, found.model_dump(mode="json"), world.clock(), TYPES)
    assert (answer["files_left"], answer["seconds_left"]) == (0, 0.0)
    plan = f"{ExpiryDetails.of(task).plan_segments[-1].id}/"
    for key in [key for key in world.plans.objects if key.startswith(plan)]:
        del world.plans.objects[key]
    assert forecast_of(task, world.plans, SMALL, is_dry_run=False) is None


def test_a_second_expiry_has_nothing_to_do_and_makes_no_commit(world: ExpiringWorld) -> None:
    first = world.expire("t")
    again = world.expire("t")
    assert (again.task_id, again.status, world.commits.made) == (first.task_id, Status.SUCCESS, 1)
    assert again.result_summary == "no snapshots to expire; nothing changed"


def test_a_later_attempt_requires_the_references_again_before_it_deletes(world: ExpiringWorld) -> None:
    """The first attempt deletes data and fails at metadata; a clone is registered before the next one."""
    former, began, held = world.lake.pointers["t"], set[int](), set[str]()

    def refuse(_bucket: str, key: str, _nth: int) -> str | None:
        if "/metadata/" not in key:
            return None
        [attempt] = [one.attempt_count for one in world.store.heads().tasks if one.task_type == TASK_TYPE]
        if not began:
            world.other.pointers["clone"] = former
            held.update(world.other.needed("clone") & set(world.lake.uris()))
        began.add(attempt)
        return "InternalError" if attempt == min(began) else None

    world.objects._refuse = refuse  # type: ignore[attr-defined]
    task = world.expire("t")
    assert task.status is Status.SUCCESS, task.result_summary
    assert task.attempt_count > min(began)
    assert held <= set(world.lake.uris())
    assert held


def test_a_snapshot_that_stays_without_its_manifest_fails_with_the_advice_of_an_expiry(world: ExpiringWorld) -> None:
    manifest = world.lake.table("t").current_snapshot().manifests(world.lake.io)[0].manifest_path
    world.lake.io.delete(manifest)
    before = set(world.lake.uris())

    task = world.expire("t")

    assert (task.status, task.error_code) == (Status.FAILURE, "MANIFEST_MISSING")
    assert "A kept snapshot needs it" in task.result_summary
    assert "purge" not in task.result_summary
    assert set(world.lake.uris()) == before


def test_an_expiry_waits_for_an_unreadable_table_and_runs_beside_it_over_its_commits_once_it_is_exempt(
    world: ExpiringWorld,
) -> None:
    world.other.create("torn", location="s3://elsewhere/torn").append(rows(10))
    world.other.io.delete(world.other.table("torn").current_snapshot().manifests(world.other.io)[0].manifest_path)
    busy_table(world.lake, "u")

    task = world.expire("t")

    assert (task.status, task.error_code) == (Status.RETRY_SCHEDULED, "NEIGHBOUR_UNREADABLE")
    exempt_all(world)
    world.other.table("torn").append(rows(5))
    refresh(world)
    assert continued(world, task).status is Status.SUCCESS
    world.pause = timedelta(hours=1)
    done = world.expire("u")
    assert done.status is Status.SUCCESS, done.result_summary
    (found,) = world.receipt(done)["references"]
    assert [one["what"] for one in found["exempted"]] == ["cat.other.torn"]
