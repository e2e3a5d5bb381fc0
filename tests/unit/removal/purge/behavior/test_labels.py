"""Lists find a purge by its table and by the correlation id of the request that submitted it last."""

import json
from datetime import timedelta
from typing import Any

import pytest

from delegation.removal.details import table_labels
from delegation.tasks.life.model import Labels, Status
from delegation.tasks.stores.base import Received
from tests.kit.lakes.lake import filled
from tests.kit.worlds.service import World


def found(world: World, **labels: str) -> list[str]:
    page = world.tasks.reads.store.received(Received(world.clock(), **labels))
    return [task.task_id for _, task in page.entries]


def asked(world: World, correlation_id: str, **properties: str) -> str:
    body = world.identity("orders", **properties)
    body["common_payload"]["polaris_correlation_id"] = correlation_id
    return world.submit(body).task_id


def test_a_purge_and_its_dry_runs_are_found_by_table_and_request() -> None:
    world = filled(World(), "orders")
    plan = asked(world, "c-1", **{"dry-run": "true"})
    world.clock.advance(timedelta(days=1))
    purge = asked(world, "c-2")
    assert found(world) == found(world, target="cat.ns.orders") == [purge, plan]
    assert found(world, target="cat.ns.orders", correlation_id="c-1") == found(world, correlation_id="c-1") == [plan]
    assert found(world, target="cat.ns") == []
    world.drive()
    assert world.tasks.reads.get(purge).status is Status.SUCCESS
    assert found(world, correlation_id="c-2") == [purge]


def test_a_task_submitted_again_is_found_by_its_latest_request() -> None:
    world = filled(World(), "orders")
    purge = asked(world, "c-1")
    world.tasks.operators.cancel(purge)
    assert asked(world, "c-2") == purge
    assert (found(world, correlation_id="c-1"), found(world, correlation_id="c-2")) == ([], [purge])
    world.tasks.operators.cancel(purge)
    world.clock.advance(timedelta(hours=1))
    world.tasks.operators.retry(purge)
    assert found(world, correlation_id="c-2", target="cat.ns.orders") == [purge]


IDENTITY = {"catalog_name": "lake", "namespace_levels": ["a.b", "c"], "table_name": "orders"}


@pytest.mark.parametrize(
    ("common", "labels"),
    [
        ({"polaris_correlation_id": "c-1"}, Labels("lake.a.b.c.orders", "c-1")),
        ({}, Labels("lake.a.b.c.orders")),
        ({"polaris_correlation_id": 7}, Labels("lake.a.b.c.orders")),
    ],
)
def test_the_labels_are_those_of_the_payload(common: dict[str, Any], labels: Labels) -> None:
    payload = {"common_payload": common, "operation_parameters": {"table_identity": IDENTITY}}
    assert table_labels(json.dumps(payload)) == labels


@pytest.mark.parametrize("payload", ["", "[]", "{}", "7", '{"operation_parameters": {"table_identity": {}}}'])
def test_another_payload_has_no_labels(payload: str) -> None:
    assert table_labels(payload) == Labels()
