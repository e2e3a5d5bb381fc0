"""What is known of a purge before it runs: its table, its request, its priority, and about how large it is."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from delegation.removal.details import table_labels, table_traits
from delegation.removal.purge.requests import PURGE_FORM, options_of
from delegation.tasks.life.lanes import Traits
from delegation.tasks.life.model import Labels, Status
from delegation.tasks.options import InvalidOption
from delegation.tasks.stores.base import Received
from delegation.wire.requests import files_of
from delegation.wire.tables import PurgePayload
from tests.kit.lakes.lake import filled
from tests.kit.worlds.service import World


def payload(**properties: str) -> str:
    parameters = {
        "table_identity": {"catalog_name": "lake"},
        "metadata": {"location": "s3://bucket-1/wh/orders"},
        "properties": properties,
    }
    return json.dumps({"operation_parameters": parameters})


def metadata(summary: Any, **more: Any) -> dict[str, Any]:
    return {"current-snapshot-id": 7, "snapshots": [{"snapshot-id": 3}, {"snapshot-id": 7, "summary": summary}], **more}


def test_a_purge_waits_for_its_catalog_and_its_bucket_with_its_priority() -> None:
    assert table_traits(payload()) == Traits("lake", "bucket-1")
    assert table_traits(payload(priority="8")) == Traits("lake", "bucket-1", priority=8)
    options_of({"priority": "0"})
    with pytest.raises(InvalidOption, match="priority"):
        options_of({"priority": "10"})


@pytest.mark.parametrize("text", ["", "[]", "{}", "7", '{"operation_parameters": {"table_identity": []}}'])
def test_a_payload_of_another_form_has_no_traits(text: str) -> None:
    assert table_traits(text) == Traits()


@pytest.mark.parametrize(
    ("stated", "files"),
    [
        (metadata({"total-data-files": "90", "total-delete-files": "12"}), 102),
        (metadata({"total-data-files": 90}), 90),
        (metadata({"total-delete-files": "12"}), None),
        (metadata({"total-data-files": "many"}), None),
        (metadata({"total-data-files": "9" * 5_000}), None),
        (metadata(None), None),
        (metadata({}, **{"current-snapshot-id": -1}), 0),
        (metadata({}, **{"current-snapshot-id": 8}), None),
        (metadata({}, snapshots="none"), None),
        ({}, 0),
        (None, None),
    ],
)
def test_the_current_snapshot_states_how_many_files_there_are(stated: Any, files: int | None) -> None:
    assert files_of(stated) == files


def test_a_table_of_unknown_size_waits_as_a_small_one() -> None:
    world = filled(World(), "orders")

    def is_small(small_files: int, **changes: Any) -> bool:
        body = world.body("orders")
        body["operation_parameters"]["metadata"] |= changes
        sources = replace(world.submissions.sources, small_files=small_files)
        traits = PURGE_FORM.asked(PurgePayload.model_validate(body), body, sources).traits
        return traits is not None and traits.is_small

    large = metadata({"total-data-files": "1001"})
    assert not is_small(1_000, **large)
    assert is_small(1_001, **large)
    assert is_small(0, **metadata(None))


def test_the_same_purge_with_another_priority_is_no_conflict() -> None:
    world = filled(World(), "orders")
    first = world.submit(world.body("orders", priority="1"), None)
    again = world.submit(world.body("orders", priority="8"), None)
    assert (first.status, again.status, again.task_id) == (202, 202, first.task_id)


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
NAMED = {"operation_parameters": {"table_identity": IDENTITY}}


@pytest.mark.parametrize(
    ("payload", "labels"),
    [
        ({"common_payload": {"polaris_correlation_id": "c-1"}, **NAMED}, Labels("lake.a.b.c.orders", "c-1")),
        ({"common_payload": {"polaris_correlation_id": 7}, **NAMED}, Labels("lake.a.b.c.orders")),
        ({"common_payload": {}, **NAMED}, Labels("lake.a.b.c.orders")),
        ({"operation_parameters": {"table_identity": {}}}, Labels()),
        ([], Labels()),
        (7, Labels()),
    ],
)
def test_the_labels_are_those_of_the_payload(payload: Any, labels: Labels) -> None:
    assert table_labels(json.dumps(payload)) == labels
    assert table_labels("") == Labels()
