"""What every operation of upkeep promises of its requests: snapshot expiry, removal of orphan files."""

import json
from dataclasses import dataclass

import pytest

from delegation.edge.answers import problem_of
from delegation.edge.errors import BadRequest
from delegation.errors import GuardRefused
from delegation.idempotency.keys import IdempotencyError
from delegation.removal.expiry import task_type as expiries
from delegation.removal.expiry.requests import TableExpiry
from delegation.removal.expiry.task_type import EXPIRY
from delegation.removal.orphans import task_type as removals
from delegation.removal.orphans.requests import TableOrphans
from delegation.removal.orphans.task_type import ORPHANS
from delegation.removal.requests import TableWork
from delegation.tasks.errors import MalformedPayload, MalformedRecord
from delegation.tasks.life.declared import TaskType
from delegation.tasks.life.model import Task
from infra import api_schemas
from polaris_common.errors import DelegationError
from tests.kit.errors import coded
from tests.kit.lakes.lake import filled
from tests.kit.worlds.service import World


@dataclass(frozen=True)
class Operation:
    """A task type with the parameters that its payload has; `option` is one that two requests may differ in."""

    task_type: TaskType
    parameters: type[TableWork]
    kind: str
    plan_task_type: str
    option: tuple[str, str]

    def asked(self, world: World, **properties: str) -> Task:
        return world.accepted(world.request(self.kind, "orders", **properties))


OPERATIONS = [
    Operation(EXPIRY, TableExpiry, expiries.TASK_TYPE, expiries.PLAN_TASK_TYPE, ("retain-last", "2")),
    Operation(ORPHANS, TableOrphans, removals.TASK_TYPE, removals.PLAN_TASK_TYPE, ("file-age", "7d")),
]


@pytest.fixture(params=OPERATIONS, ids=lambda one: one.kind)
def operation(request: pytest.FixtureRequest) -> Operation:
    found: Operation = request.param
    return found


@pytest.fixture
def world() -> World:
    return filled(World(), "orders")


def test_a_request_is_a_task_with_the_tables_state_and_no_credentials(world: World, operation: Operation) -> None:
    name, value = operation.option
    task = operation.asked(world, **{name: value})
    assert (task.task_type, task.payload_version) == (operation.kind, 1)
    stored = operation.parameters.of(task)
    assert stored.table.metadata_location == world.lake.pointers["orders"]
    assert stored.properties == {name: value}
    assert "vended" not in task.task_payload
    assert json.loads(task.task_payload)["common_payload"]["operation_type"] == operation.kind


def test_the_same_request_attaches_to_its_task_and_another_one_conflicts(world: World, operation: Operation) -> None:
    first = operation.asked(world)
    again = world.submit(world.request(operation.kind, "orders"))
    assert (again.kind, again.task_id) == ("attached", first.task_id)
    name, value = operation.option
    with pytest.raises(IdempotencyError, match=rf"other properties \({name}\)", check=coded("TASK_EXISTS")) as refused:
        world.submit(world.request(operation.kind, "orders", **{name: value}))
    assert problem_of(refused.value).status == 409


def test_no_two_operations_share_an_id_and_a_dry_run_has_its_own(world: World, operation: Operation) -> None:
    purge = world.submit(world.identity("orders"))
    tasks = [one.asked(world) for one in OPERATIONS]
    plan = operation.asked(world, **{"dry-run": "true"})
    assert len({purge.task_id, plan.task_id, *(one.task_id for one in tasks)}) == 2 + len(OPERATIONS)
    assert plan.task_type == operation.plan_task_type
    name, value = operation.option
    assert operation.asked(world, **{"dry-run": "true"}).task_id == plan.task_id
    assert operation.asked(world, **{"dry-run": "true", name: value}).task_id != plan.task_id


def test_details_that_cannot_be_read_show_no_progress(world: World, operation: Operation) -> None:
    damaged = operation.asked(world).with_details({"files_planned": "many"})
    assert operation.task_type.measured(damaged) is None
    with pytest.raises(MalformedRecord, match="files_planned"):
        operation.task_type.receipt_key(damaged)


@pytest.mark.parametrize(
    ("properties", "code"),
    [({"gc.enabled": "false"}, "GC_DISABLED"), ({"delegation.protected": "true"}, "TABLE_PROTECTED")],
)
def test_a_table_that_a_guard_refuses_gets_no_task(
    world: World, operation: Operation, properties: dict[str, str], code: str
) -> None:
    world.lake.rewrite_metadata("orders", {"properties": properties})
    with pytest.raises(GuardRefused, check=coded(code)) as refused:
        world.submit(world.request(operation.kind, "orders"))
    assert problem_of(refused.value).status == 409
    assert world.queue.sent == []


def test_nobody_can_wait_for_it(world: World, operation: Operation) -> None:
    with pytest.raises(DelegationError, check=coded("INVALID_REQUEST")) as refused:
        world.execute(world.request(operation.kind, "orders"))
    answer = problem_of(refused.value)
    assert (answer.status, answer.error) == (400, "INVALID_REQUEST")
    assert b"POST /v1/tasks" in answer.body
    assert world.queue.sent == []


def test_a_payload_that_is_none_is_reported(world: World, operation: Operation) -> None:
    with pytest.raises(MalformedPayload):
        operation.parameters.of(operation.asked(world).evolve(task_payload="{}"))


def test_a_body_without_a_table_or_with_a_loaded_one_is_refused(world: World, operation: Operation) -> None:
    found = world.request(operation.kind, "orders")
    del found["operation_parameters"]["table_identity"]
    with pytest.raises(BadRequest):
        world.submit(found)
    loaded = world.body("orders")
    loaded["common_payload"]["operation_type"] = operation.kind
    with pytest.raises(BadRequest, match="identity alone") as refused:
        world.submit(loaded)
    assert "vended" not in str(refused.value)


def test_the_documents_have_it(operation: Operation) -> None:
    schemas = api_schemas.schemas()
    assert operation.kind in schemas["CommonPayload"]["properties"]["operation_type"]["enum"]
    assert operation.option[0] in schemas["PropertiesMap"]["properties"]
    # The service loads the table, so its identity is enough.
    (form,) = schemas["AnyTaskPayload"]["properties"]["operation_parameters"]["oneOf"][2:]
    assert form == {"$ref": "#/components/schemas/IdentifiedTableOperationParameters"}
