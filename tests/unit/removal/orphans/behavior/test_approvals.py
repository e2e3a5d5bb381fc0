"""Approving a plan of orphan files: over the API, as a record with the task, and only by who may."""

import io
import json
import uuid
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from aws_lambda_powertools import Logger

from delegation.edge.api.app import create_app
from delegation.edge.api.routes import Dependencies
from delegation.idempotency.mutations import Mutations
from delegation.idempotency.reservations import KeyPolicy, MemoryReservationStore
from delegation.metrics import MetricLines
from delegation.removal.orphans.details import Approval, OrphanDetails
from delegation.removal.orphans.index import load_plan
from delegation.removal.orphans.place import Place
from delegation.removal.orphans.requests import OrphanLimits, approve, approvers_of
from delegation.tasks.life.model import Caller, Status, Task
from delegation.tasks.life.policy import InvalidProperty
from delegation.tasks.recovery import recovered
from delegation.wiring.types import TYPES
from tests.kit.lakes.lake import busy_table, filled
from tests.kit.worlds.service import LIFETIME, REALM
from tests.kit.worlds.sweeping import SweepingWorld
from tests.unit.edge.gateway import Context, request

OPERATOR = "approve manage read"
OF_POLARIS = "manage read submit"
TABLE = "6a1f2c3d-0000-4000-8000-000000000001"


@dataclass
class Beach:
    """A table with orphan files and the API; `approvers` is the operator's property."""

    world: SweepingWorld
    approvers: str = "operators"
    planted: set[str] = field(default_factory=set)

    def post(
        self,
        plan: str,
        *,
        client: str = "alice",
        permissions: str = OPERATOR,
        task_id: str = "",
        key: str = "",
        **body: Any,
    ) -> tuple[int, dict[str, Any]]:
        """Send an approval as a client, and return status and body."""
        world = self.world
        limits = OrphanLimits.from_properties({"delegation.approvers": self.approvers})
        world.deploy({}, orphans=replace(world.orphans, limits=limits))
        deps = Dependencies(
            submissions=world.submissions,
            tasks=world.tasks,
            realm=REALM,
            idempotency_lifetime=LIFETIME,
            clock=world.clock,
            receipt=lambda _task: None,
            checks={},
            mutations=lambda: self.mutations,
            types=TYPES,
            approve=partial(approve, world.tasks.writes, lambda: world.plans, limits.approvers),
        )
        logger = Logger(service=f"edge-{uuid.uuid4()}", stream=io.StringIO())
        handle = create_app(deps, logger=logger, metrics=MetricLines("Delegation", "api"))
        path = f"/v1/tasks/{task_id or plan.partition('/')[0]}/approve"
        headers = {"Idempotency-Key": key} if key else {}
        event = request(
            "POST", path, {"plan": plan, **body}, client_id=client, permissions=permissions, headers=headers
        )
        answer = handle(event, Context())
        return answer["statusCode"], json.loads(answer["body"])

    def __post_init__(self) -> None:
        records, nonce = MemoryReservationStore(), iter(map(str, range(1_000)))
        self.mutations = Mutations(
            records, policy=KeyPolicy(lifetime=LIFETIME), clock=self.world.clock, nonce=lambda: next(nonce)
        )
        self.planted = self.world.plant("data/a.parquet", "data/b.parquet")

    def approval(self, task: Task) -> Approval | None:
        return OrphanDetails.of(self.world.tasks.reads.get(task.task_id)).approval

    @property
    def is_whole(self) -> bool:
        return self.planted <= self.world.files()


@pytest.fixture
def site() -> Beach:
    return Beach(filled(SweepingWorld({}), "t"))


def test_an_operator_approves_and_the_same_request_executes_exactly_that_plan(site: Beach) -> None:
    world = site.world
    waits = world.ask()
    plan = world.waiting(waits)
    status, body = site.post(plan)
    assert status == 200
    assert body["approval"] | {"at": "", "until": ""} == {
        "plan": plan,
        "sha256": body["waiting_plan"]["sha256"],
        "by": {"client_id": "alice", "subject": ""},
        "at": "",
        "until": "",
        "including": [],
    }
    later = world.plant("data/later.parquet")
    assert site.is_whole, "an approval deletes nothing by itself"
    done = world.ask()
    assert not site.planted & world.files()
    assert later <= world.files()
    assert OrphanDetails.of(done).waiting_plan is None
    receipt = json.loads(world.plans.get(f"{plan}/receipt.json"))
    assert receipt["approved"] is True
    assert receipt["approval"]["by"]["client_id"] == "alice"
    assert receipt["requested_by"]["client_id"] == "polaris"


@pytest.mark.parametrize("again", ["same key", "another key", "with the plan", "a job after days"])
def test_no_repetition_of_the_request_deletes(site: Beach, again: str) -> None:
    world = site.world
    first = world.accepted(world.removal())
    world.drive()
    plan = world.waiting(world.tasks.reads.get(first.task_id))
    for number in range(4):
        body = world.removal(plan=plan) if again == "with the plan" else world.removal()
        world.submit(body, key="k" if again == "same key" else f"k-{number}")
        world.drive()
        world.later(100.0 if again == "a job after days" else 1.0)
        task = world.tasks.reads.get(first.task_id)
        assert (task.status, OrphanDetails.of(task).waits) == (Status.SUCCESS, "first-run")
        assert site.is_whole


def test_an_operators_retry_is_no_consent(site: Beach) -> None:
    """Who retries a failed execution of a plan has a failure in mind, not the plan."""
    world = site.world
    plan = world.waiting(world.ask())
    world.places.append(Place("view", "cat.ns.v", "s3://lake/wh/t/v"))
    failed = world.ask(prefix_mismatch_mode="ignore")
    assert failed.status is Status.FAILURE
    world.places.clear()
    for _ in range(2):
        world.tasks.dispatching.dispatch(
            world.tasks.operators.retry(failed.task_id, by=Caller(client_id="alice")).task_id
        )
        world.drive()
    task = world.tasks.reads.get(failed.task_id)
    assert (task.status, OrphanDetails.of(task).waits, world.waiting(task) == plan) == (
        Status.SUCCESS,
        "first-run",
        False,
    )
    assert site.is_whole


def test_a_dry_run_and_then_a_run_waits_and_the_dry_runs_plan_can_be_approved(site: Beach) -> None:
    world = site.world
    dry = world.ask(dry_run="true")
    [segment] = OrphanDetails.of(dry).plan_segments
    assert OrphanDetails.of(world.ask()).waits == "first-run"
    named = world.ask(plan=segment.id)
    assert (OrphanDetails.of(named).waits, world.waiting(named)) == ("first-run", segment.id)
    assert site.is_whole
    assert site.post(segment.id)[0] == 200
    assert world.ask(plan=segment.id).status is Status.SUCCESS
    assert not site.planted & world.files()


def test_an_approval_ends_after_fourteen_days_and_is_given_again(site: Beach) -> None:
    world = site.world
    task = world.ask()
    plan = world.waiting(task)
    site.post(plan)
    world.clock.advance(timedelta(days=14))
    assert OrphanDetails.of(world.ask(plan=plan)).waits == "first-run"
    assert site.is_whole
    before = site.approval(task)
    assert site.post(plan)[0] == 200
    after = site.approval(task)
    assert before is not None
    assert after is not None
    assert after.at > before.at
    world.ask(plan=plan)
    assert not site.planted & world.files()


def test_a_new_plan_is_not_covered_by_the_approval_of_the_former(site: Beach) -> None:
    world = site.world
    plan = world.waiting(world.ask())
    site.post(plan)
    for key in [key for key in world.plans.objects if key.startswith(plan)]:
        del world.plans.objects[key]
    replaced = world.ask()
    assert (OrphanDetails.of(replaced).waits, world.waiting(replaced) == plan) == ("first-run", False)
    assert site.is_whole


def test_the_requester_may_not_approve_and_the_operator_may_allow_it(site: Beach) -> None:
    world = site.world
    task = world.ask()
    plan = world.waiting(task)
    for client, permissions in (("polaris", OF_POLARIS), ("polaris", OPERATOR), ("else", OF_POLARIS)):
        status, body = site.post(plan, client=client, permissions=permissions)
        assert (status, body["error_code"]) == (403, "APPROVAL_NOT_ALLOWED")
        assert "delegation.approvers" in body["message"]
    assert site.approval(task) is None
    site.approvers = "bob, carol"
    assert site.post(plan)[0] == 403
    assert site.post(plan, client="bob")[0] == 200
    site.approvers = "submitters"
    assert site.post(plan, client="polaris", permissions=OF_POLARIS)[0] == 200
    world.ask()
    assert not site.planted & world.files()


def test_who_approved_may_not_ask_for_the_execution_of_what_the_operator_separates(site: Beach) -> None:
    world = site.world
    plan = world.waiting(world.ask())
    site.post(plan)
    world.submit(world.removal(plan=plan), caller="alice")
    world.drive()
    assert site.is_whole
    world.ask(plan=plan)
    assert not site.planted & world.files()


def test_an_approval_of_anything_else_than_what_waits_is_refused(site: Beach) -> None:
    world = site.world
    busy_table(world.lake, "u")
    task = world.ask()
    plan = world.waiting(task)
    world.lake.objects["lake", "wh/u/data/x.parquet"] = b"orphan"
    other = world.ask("u")
    for wanted in (
        {"plan": f"{plan[:-1]}x".replace("x", "0" if plan[-1] != "0" else "1")},
        {"plan": plan, "sha256": "0" * 64},
        {"plan": plan, "including": [TABLE]},
        {"plan": plan, "task_id": other.task_id},
    ):
        status, body = site.post(**wanted)
        assert (status, body["error_code"]) == (409, "APPROVAL_REFUSED"), wanted
    for invalid in ({"plan": "x"}, {"plan": plan, "including": ["x"]}, {"plan": plan, "more": 1}):
        assert site.post(task_id=task.task_id, **invalid)[0] == 400
    assert site.approval(task) is None
    assert site.post(plan, task_id=str(uuid.uuid4()))[0] == 404


def test_an_approval_that_is_sent_twice_is_one_record(site: Beach) -> None:
    world = site.world
    task = world.ask()
    plan = world.waiting(task)
    first = site.post(plan, key="a")
    revision = world.tasks.reads.get(task.task_id).revision
    world.clock.advance(timedelta(hours=1))
    assert site.post(plan, key="a") == first
    assert site.post(plan, client="bob")[0] == 200
    assert world.tasks.reads.get(task.task_id).revision == revision
    found = site.approval(task)
    assert found is not None
    assert found.by.client_id == "alice"


def test_a_foreign_table_is_deleted_with_a_plan_whose_approval_names_it(site: Beach) -> None:
    world = site.world
    busy_table(world.other, "theirs", location="s3://lake/wh/t/below")
    foreign = {one for one in world.files() if one.startswith("s3://lake/wh/t/below/")}
    for one in foreign:
        world.objects.modified["lake", one.removeprefix("s3://lake/")] = 0
    del world.other.pointers["theirs"]
    plan = world.waiting(world.ask())
    [segment] = OrphanDetails.of(world.tasks.reads.get(plan.partition("/")[0])).plan_segments
    [part] = load_plan(world.plans, segment).foreign_tables
    status, body = site.post(plan, including=[part.uuid.upper()])
    assert (status, body["approval"]["including"]) == (200, [part.uuid])
    done = world.ask()
    assert not (site.planted | foreign) & world.files()
    receipt = json.loads(world.plans.get(f"{OrphanDetails.of(done).plan_segments[-1].id}/receipt.json"))
    assert receipt["approval"]["including"] == [part.uuid]


def test_the_approved_plan_is_not_taken_up_by_a_request_for_something_else(site: Beach) -> None:
    world = site.world
    plan = world.waiting(world.ask())
    site.post(plan)
    other = world.ask(prefix_mismatch_mode="ignore")
    assert (OrphanDetails.of(other).waits, world.waiting(other) == plan) == ("first-run", False)
    assert site.is_whole


def test_a_head_that_is_recovered_from_its_last_version_knows_no_approval_and_waits(site: Beach) -> None:
    world = site.world
    task = world.ask()
    site.post(world.waiting(task))
    row = world.history(task.task_id)[-1]
    world.store._heads[task.task_id] = recovered(row, "fresh")
    assert OrphanDetails.of(world.ask()).waits == "first-run"
    assert site.is_whole


def test_a_first_plan_that_was_approved_once_lets_later_ones_go_within_the_limits(site: Beach) -> None:
    world = site.world
    plan = world.waiting(world.ask())
    site.post(plan)
    world.ask()
    more = world.plant("data/more.parquet")
    world.ask()
    assert not more & world.files()


@pytest.mark.parametrize("text", ["", "operators,", "a b", "ä", "x" * 256])
def test_the_property_of_approvers_is_checked(text: str) -> None:
    with pytest.raises(InvalidProperty, match=r"delegation\.approvers"):
        approvers_of({"delegation.approvers": text})
