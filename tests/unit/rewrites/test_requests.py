"""Requests for rewrites: when two of them are one task, what is refused at once, and behind whom they wait."""

import json
from typing import Any

import pytest

from delegation.removal.details import table_labels, table_place
from delegation.removal.purge.requests import TablePurge
from delegation.rewrites.requests import TableCompaction, TableManifestsRewrite, TableRewrite
from delegation.rewrites.task_type import (
    COMPACTION_PLAN_TASK_TYPE,
    COMPACTION_TASK_TYPE,
    MANIFESTS,
    MANIFESTS_PLAN_TASK_TYPE,
    MANIFESTS_TASK_TYPE,
)
from delegation.tasks.errors import MalformedPayload
from delegation.tasks.life.lanes import Lane
from delegation.tasks.life.policy import InvalidProperty
from delegation.wiring.types import TYPES, policies_of
from polaris_common.errors import DelegationError
from tests.kit.lakes.lake import filled
from tests.kit.worlds.service import World


@pytest.fixture
def world() -> World:
    return filled(World(), "orders", "customers")


def code_of(world: World, body: dict[str, Any]) -> tuple[str, str]:
    with pytest.raises(DelegationError) as refused:
        world.submit(body)
    return refused.value.code, str(refused.value)


def test_a_table_has_one_task_of_each_kind(world: World) -> None:
    first = world.accepted(world.request(COMPACTION_TASK_TYPE, "orders"))
    again = world.accepted(world.request(COMPACTION_TASK_TYPE, "orders"))
    manifests = world.accepted(world.request(MANIFESTS_TASK_TYPE, "orders"))
    other = world.accepted(world.request(COMPACTION_TASK_TYPE, "customers"))
    assert again.task_id == first.task_id
    assert len({first.task_id, manifests.task_id, other.task_id}) == 3
    assert (first.task_type, manifests.task_type) == (COMPACTION_TASK_TYPE, MANIFESTS_TASK_TYPE)


def test_a_dry_run_is_a_task_of_its_own(world: World) -> None:
    work = world.accepted(world.request(COMPACTION_TASK_TYPE, "orders"))
    dry = world.accepted(world.request(COMPACTION_TASK_TYPE, "orders", **{"dry-run": "true"}))
    manifests = world.accepted(world.request(MANIFESTS_TASK_TYPE, "orders", dryRun="true"))
    assert dry.task_id != work.task_id
    assert (dry.task_type, manifests.task_type) == (COMPACTION_PLAN_TASK_TYPE, MANIFESTS_PLAN_TASK_TYPE)


def test_another_request_waits_for_the_one_that_runs(world: World) -> None:
    world.accepted(world.request(COMPACTION_TASK_TYPE, "orders", **{"min-input-files": "2"}))
    _, text = code_of(world, world.request(COMPACTION_TASK_TYPE, "orders", **{"min-input-files": "3"}))
    assert "(min-input-files)" in text


@pytest.mark.parametrize("code", ["ENGINE_FAILED", "COMMIT_REFUSED", "CANCELLED"])
def test_after_a_failure_any_request_is_taken(world: World, code: str) -> None:
    first = world.accepted(world.request(COMPACTION_TASK_TYPE, "orders", **{"min-input-files": "2"}))
    world.ended(first, code=code, details={"next_engine": "spark", "of_a_newer_release": 1})
    again = world.accepted(world.request(COMPACTION_TASK_TYPE, "orders", **{"min-input-files": "3"}))
    assert again.task_id == first.task_id
    assert TableCompaction.of(again).properties == {"min-input-files": "3"}


@pytest.mark.parametrize(
    ("operation", "properties", "named"),
    [
        (COMPACTION_TASK_TYPE, {"min-input-file": "2"}, "did you mean min-input-files?"),
        (COMPACTION_TASK_TYPE, {"strategy": "z-order"}, "z-order-columns: must be given"),
        (COMPACTION_TASK_TYPE, {"target-file-size-bytes": "512MB"}, "target-file-size-bytes: must be a number"),
        (COMPACTION_TASK_TYPE, {"plan": "x"}, "plan: is not an option of this operation"),
        (MANIFESTS_TASK_TYPE, {"spec": "1"}, "did you mean spec-id?"),
        (MANIFESTS_TASK_TYPE, {"spec-id": "-1"}, "spec-id: must be the id"),
        (MANIFESTS_TASK_TYPE, {"branch": "audit"}, "branch: is not an option of this operation"),
    ],
)
def test_a_wrong_option_is_refused_before_the_table_is_loaded(
    world: World, operation: str, properties: dict[str, str], named: str
) -> None:
    code, text = code_of(world, world.request(operation, "orders", **properties))
    assert code == "INVALID_REQUEST"
    assert named in text
    assert world.tables.loads == 0


def test_a_request_beyond_the_operators_limit_is_refused(world: World) -> None:
    most = {"delegation.compaction.max-concurrent-file-group-rewrites": "3"}
    world.become(world.behavior, most)
    asked = {"max-concurrent-file-group-rewrites": "4"}
    code, _ = code_of(world, world.request(COMPACTION_TASK_TYPE, "orders", **asked))
    assert code == "PROPERTY_NOT_ALLOWED"
    with pytest.raises(InvalidProperty, match=r"delegation\.compaction\.cold"):
        policies_of({"delegation.compaction.cold": "1h"})
    with pytest.raises(InvalidProperty, match=r"delegation\.rewrite-manifests\.spec-id"):
        policies_of({"delegation.rewrite-manifests.spec-id": "1"})


def test_no_drop_waits_for_a_rewrite(world: World) -> None:
    task = world.accepted(world.request(COMPACTION_TASK_TYPE, "orders"))
    lane = Lane.of(task.task_type, TYPES.traits(task))
    assert (lane.tenant, lane.bucket, lane.priority, lane.is_background) == ("cat", "lake", 1, False)
    assert table_labels(task.task_payload).target == "cat.ns.orders"


def test_the_work_of_a_policy_is_in_the_background_and_another_work(world: World) -> None:
    asked = TableManifestsRewrite.of(world.accepted(world.request(MANIFESTS_TASK_TYPE, "orders")))
    by_policy = asked.model_copy(update={"policy": "cat.gov.tidy"})
    payload = by_policy.to_payload()
    assert json.loads(payload)["operation_parameters"]["policy"] == "cat.gov.tidy"
    assert MANIFESTS.traits is not None
    assert MANIFESTS.traits(payload).is_background
    assert by_policy.of_the_work() != asked.of_the_work()
    stored = world.accepted(world.request(MANIFESTS_TASK_TYPE, "customers")).evolve(task_payload=payload)
    assert TableManifestsRewrite.of(stored).policy == "cat.gov.tidy"


@pytest.mark.parametrize("dry_run", ["false", "true"])
@pytest.mark.parametrize(
    ("operation", "work"), [(COMPACTION_TASK_TYPE, TableCompaction), (MANIFESTS_TASK_TYPE, TableManifestsRewrite)]
)
def test_no_release_reads_a_rewrite_as_a_purge(
    world: World, operation: str, work: type[TableRewrite], dry_run: str
) -> None:
    """A Spark job of the last release takes every task for a purge: while functions are replaced it may get this one,
    and would delete the files of a table in use."""
    task = world.accepted(world.request(operation, "orders", **{"dry-run": dry_run}))
    with pytest.raises(MalformedPayload):
        TablePurge.of(task)
    read = work.of(task)
    assert read.table.metadata_location == world.tables.load_table(read.identifier).metadata_location
    assert table_place(task.task_payload) == (read.table.table_uuid.lower(), read.table.location)
    assert read.to_payload() == task.task_payload
