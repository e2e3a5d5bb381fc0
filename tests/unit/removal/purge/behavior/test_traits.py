"""What is known of a purge before it runs: its catalog, its bucket, its priority, and about how large its table is."""

import json
from dataclasses import replace
from typing import Any

import pytest

from delegation.removal.details import table_traits
from delegation.removal.purge.requests import PURGE_FORM, options_of
from delegation.tasks.life.lanes import Traits
from delegation.tasks.options import InvalidOption
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


def test_a_purge_waits_for_its_catalog_and_its_bucket() -> None:
    assert table_traits(payload()) == Traits("lake", "bucket-1")


def test_a_request_states_its_priority() -> None:
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
