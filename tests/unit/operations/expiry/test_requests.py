"""Requests for expiries: when two of them are one task, what is refused at once, and behind whom they wait."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from delegation.edge.errors import BadRequest
from delegation.edge.problems import problem_of
from delegation.errors import DelegationError, GuardRefused
from delegation.idempotency.errors import IdempotencyError
from delegation.operations.behaviors.task_types import table_labels
from delegation.operations.expiry.behavior.details import ExpiryDetails
from delegation.operations.expiry.behavior.kinds import KIND, PLAN_KIND, UPKEEP_PRIORITY
from delegation.operations.expiry.behavior.parameters import TableExpiry
from delegation.operations.expiry.behavior.task_type import EXPIRY, EXPIRY_PLAN
from delegation.operations.expiry.receipt import receipt_key
from delegation.tasks.errors import MalformedPayload, MalformedRecord
from delegation.tasks.life.admission.lanes import Lane, Traits
from delegation.tasks.life.lease import Lease
from delegation.tasks.life.model import Labels, Status, Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.policy import InvalidProperty
from delegation.tasks.life.task_type import Measured
from delegation.tasks.submission.options import InvalidOption
from delegation.wiring.types import TYPES, policies_of
from delegation.worksets.index import PlanIndex
from infra import api_schemas
from tests.kit.errors import coded
from tests.kit.lakes.lake import busy_table
from tests.kit.worlds.service import World


@pytest.fixture(autouse=True)
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the types to the list of `wiring.types`."""
    monkeypatch.setitem(TYPES, KIND, EXPIRY)
    monkeypatch.setitem(TYPES, PLAN_KIND, EXPIRY_PLAN)


@pytest.fixture
def world() -> World:
    world = World()
    busy_table(world.lake, "orders")
    return world


def body(world: World, name: str = "orders", **properties: str) -> dict[str, Any]:
    named = {one.replace("_", "-"): value for one, value in properties.items()}
    found = world.identity(name, **named)
    found["common_payload"]["operation_type"] = KIND
    return found


def asked(world: World, name: str = "orders", **properties: str) -> Task:
    answer = world.submit(body(world, name, **properties))
    assert answer.status == 202, answer.body
    assert answer.task_id is not None
    return world.tasks.reads.get(answer.task_id)


DETAILS = {
    "plan_segments": [{"id": "plan-1", "sha256": "ab"}],
    "files_planned": 7,
    "files_deleted": 5,
    "of_a_newer_release": 1,
}


def ended(
    world: World, task: Task, status: Status, *, began: bool = False, code: str = "STORAGE_ACCESS_DENIED"
) -> Task:
    """End a task's first attempt, after its commit or before."""

    def lease(now: datetime) -> Lease:
        return Lease.lasting(timedelta(minutes=5), now)

    held = world.tasks.leases.acquire(task.task_id, "worker", lease)
    world.tasks.leases.start(held.task_id, held.attempt_count, effects=began)
    if status is Status.SUCCESS:
        return world.tasks.leases.succeed(held.task_id, held.attempt_count, "done", details=DETAILS)
    error = AttemptError(code, "denied", ErrorClass.PERMANENT)
    return world.tasks.leases.end_attempt(held.task_id, held.attempt_count, error)


def test_a_request_is_a_task_with_the_tables_state_and_no_credentials(world: World) -> None:
    task = asked(world, retain_last="2", colour="blue")
    assert (task.task_type, task.payload_version) == (KIND, 1)
    stored = TableExpiry.of(task)
    assert stored.table.metadata_location == world.lake.pointers["orders"]
    assert stored.properties == {"retain-last": "2", "colour": "blue"}
    assert "vended" not in task.task_payload
    assert json.loads(task.task_payload)["common_payload"]["operation_type"] == KIND


def test_the_same_request_attaches_to_its_task_and_another_one_conflicts(world: World) -> None:
    first = asked(world, older_than="now")
    again = world.submit(body(world, older_than="now"))
    assert (again.kind, again.task_id) == ("attached", first.task_id)
    with pytest.raises(
        IdempotencyError, match=r"other properties \(older-than, retain-last\)", check=coded("TASK_EXISTS")
    ) as refused:
        world.submit(body(world, retain_last="7"))
    assert problem_of(refused.value).status == 409


def test_no_purge_and_no_expiry_share_an_id(world: World) -> None:
    purge = world.submit(world.identity("orders"))
    expiry, plan = asked(world), asked(world, dry_run="true")
    assert len({purge.task_id, expiry.task_id, plan.task_id}) == 3
    assert plan.task_type == PLAN_KIND


def test_a_dry_run_of_other_options_or_of_a_later_state_is_another_task(world: World) -> None:
    first = asked(world, dry_run="true", older_than="now")
    assert asked(world, dry_run="true", older_than="now").task_id == first.task_id
    assert asked(world, dry_run="true", retain_last="2").task_id != first.task_id
    world.lake.pointers["orders"] += ".later"
    world.tables.lake.objects.update(
        {
            (bucket, key + ".later"): data
            for (bucket, key), data in list(world.lake.objects.items())
            if key.endswith(".metadata.json")
        }
    )
    assert asked(world, dry_run="true", older_than="now").task_id != first.task_id


def test_after_a_success_the_same_request_runs_again(world: World) -> None:
    """The properties are ages, so each day other snapshots are too old."""
    first = asked(world)
    done = ended(world, first, Status.SUCCESS)
    assert (EXPIRY.measured(done), EXPIRY.receipt_key(done)) == (Measured(5, 7, "files"), "plan-1/receipt.json")
    world.clock.advance(timedelta(hours=1))
    again = asked(world)
    assert (again.task_id, again.status) == (first.task_id, Status.SUBMITTED)
    assert again.version > first.version
    # Nothing of the former plan is left, or this run would take it for its own.
    assert ExpiryDetails.of(again) == ExpiryDetails()
    assert again.details == {"of_a_newer_release": 1}


def test_details_that_cannot_be_read_show_no_progress(world: World) -> None:
    damaged = asked(world).with_details({"files_planned": "many"})
    assert EXPIRY.measured(damaged) is None
    with pytest.raises(MalformedRecord, match="files_planned"):
        EXPIRY.receipt_key(damaged)


def test_the_receipt_is_where_the_expiry_writes_it() -> None:
    index = PlanIndex.model_construct(plan_id="plan-1")
    assert receipt_key(index) == "plan-1/receipt.json"


def test_an_expiry_that_failed_after_its_commit_is_finished_before_another_one(world: World) -> None:
    first = asked(world, retain_last="2")
    ended(world, first, Status.FAILURE, began=True)
    world.clock.advance(timedelta(hours=1))
    with pytest.raises(
        IdempotencyError, match=r"failed after its commit .*retry the task", check=coded("TASK_EXISTS")
    ) as refused:
        world.submit(body(world, retain_last="3"))
    assert problem_of(refused.value).status == 409
    assert asked(world, retain_last="2").task_id == first.task_id


def test_an_expiry_that_failed_before_its_commit_gives_way(world: World) -> None:
    first = asked(world, retain_last="2")
    ended(world, first, Status.FAILURE)
    world.clock.advance(timedelta(hours=1))
    assert TableExpiry.of(asked(world, retain_last="3")).properties == {"retain-last": "3"}


def test_an_expiry_whose_commits_were_all_refused_gives_way(world: World) -> None:
    """Its changed policy must not be answered with 409 until a person retries what changed nothing."""
    first = asked(world, retain_last="2")
    ended(world, first, Status.FAILURE, began=True, code="COMMITS_FORESTALLED")
    world.clock.advance(timedelta(hours=1))
    assert TableExpiry.of(asked(world, retain_last="3")).properties == {"retain-last": "3"}


def test_a_table_that_a_guard_refuses_gets_no_task(world: World) -> None:
    for name, code in (("gc.enabled", "GC_DISABLED"), ("delegation.protected", "TABLE_PROTECTED")):
        world.lake.rewrite_metadata("orders", {"properties": {name: "false" if code == "GC_DISABLED" else "true"}})
        with pytest.raises(GuardRefused, check=coded(code)) as refused:
            world.submit(body(world))
        assert problem_of(refused.value).status == 409
    assert world.queue.sent == []


def test_a_wrong_option_gets_no_task_and_no_load(world: World) -> None:
    future = (world.clock() + timedelta(seconds=1)).isoformat().replace("+00:00", "Z")
    for properties in ({"older_than": future}, {"retain_last": "0"}, {"snapshot_ids": "x"}):
        with pytest.raises(InvalidOption):
            world.submit(body(world, **properties))
    assert (world.tables.loads, world.queue.sent) == (0, [])


def test_nobody_can_wait_for_it(world: World) -> None:
    with pytest.raises(DelegationError, check=coded("INVALID_REQUEST")) as refused:
        world.execute(body(world))
    answer = problem_of(refused.value)
    assert (answer.status, answer.error) == (400, "INVALID_REQUEST")
    assert b"POST /v1/tasks" in answer.body
    assert world.queue.sent == []


def test_it_waits_in_a_lane_behind_every_purge(world: World) -> None:
    traits = EXPIRY.traits(asked(world).task_payload)
    assert traits == Traits(tenant="cat", bucket="lake", priority=UPKEEP_PRIORITY)
    purge = Lane.of("TABLE_PURGE", Traits(tenant="zoo", bucket="zoo"))
    assert purge.text < Lane.of(KIND, traits).text


def test_it_is_listed_by_its_table(world: World) -> None:
    task = asked(world)
    assert table_labels(task.task_payload) == Labels("cat.ns.orders", None, "POLARIS")
    for payload in ("", "[]", "{}", '{"operation_parameters": {"table_identity": {}}}'):
        assert table_labels(payload) == Labels()
        assert EXPIRY.traits(payload).priority == UPKEEP_PRIORITY


def test_a_payload_that_is_none_is_reported(world: World) -> None:
    with pytest.raises(MalformedPayload):
        TableExpiry.of(asked(world).evolve(task_payload="{}"))


def test_a_body_without_a_table_or_with_a_loaded_one_is_refused(world: World) -> None:
    found = body(world)
    del found["operation_parameters"]["table_identity"]
    with pytest.raises(BadRequest):
        world.submit(found)
    loaded = world.body("orders")
    loaded["common_payload"]["operation_type"] = KIND
    with pytest.raises(BadRequest, match="identity alone") as refused:
        world.submit(loaded)
    assert "vended" not in str(refused.value)


def test_the_documents_have_it() -> None:
    schemas = api_schemas.schemas()
    assert KIND in schemas["CommonPayload"]["properties"]["operation_type"]["enum"]
    members = schemas["PropertiesMap"]["properties"]
    assert members["older-than"]["pattern"].startswith("^(now|")
    assert members["retain-last"]["pattern"] == "^[1-9][0-9]{0,8}$"
    assert "outside" in members
    # The dry run of either operation has no plan to execute.
    assert schemas["PropertiesMap"]["not"] == {
        "required": ["plan", "dry-run"],
        "properties": {"dry-run": {"enum": ["true"]}},
    }
    # The service loads the table, so its identity is enough.
    (form,) = schemas["AnyTaskPayload"]["properties"]["operation_parameters"]["oneOf"][2:]
    assert form == {"$ref": "#/components/schemas/IdentifiedTableOperationParameters"}


def test_the_operators_properties_are_checked_when_the_service_starts() -> None:
    assert policies_of({"delegation.expiry.least-snapshot-age": "7d", "delegation.expiry.least-snapshots": "5"})
    for name in ("delegation.expiry.least-snapshots", "delegation.expiry.colour"):
        with pytest.raises(InvalidProperty, match=name):
            policies_of({name: "-1"})
