"""The stored format: this release and every later one reads what was written."""

import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from delegation.tasks.errors import (
    MalformedRecord,
)
from delegation.tasks.life.model import INTERNAL, STORED_NAMES, Status, Task, jsonable
from delegation.tasks.stores import codec
from delegation.timestamps import isoformat
from delegation.wire.tasks import shown
from polaris_common.dynamodb import from_item, to_item
from polaris_common.errors import DelegationError
from tests.kit.errors import coded
from tests.kit.tasks.builders import MINUTE, NOW, in_status, submitted
from tests.unit.tasks.strategies import BEHAVIORS_DETAILS, tasks

GOLDEN = Path(__file__).parent / "golden"
FORMAT_1 = sorted((GOLDEN / "format-1").glob("*.json"))


def through_dynamodb(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item as DynamoDB returns it, with JSON text in between."""
    return from_item(json.loads(json.dumps(to_item(item))))


@given(task=tasks())
def test_heads_and_rows_are_read_as_they_were_written(task: Task) -> None:
    assert codec.task_of(through_dynamodb(codec.head_item(task))) == task
    assert codec.task_of(through_dynamodb(codec.row_item(task))) == task.row


@given(task=tasks(), details=BEHAVIORS_DETAILS)
def test_whatever_a_behavior_stores_comes_back_and_reaches_a_caller(task: Task, details: dict[str, Any]) -> None:
    stored = task.with_details(details)
    read = codec.task_of(through_dynamodb(codec.head_item(stored)))
    assert read == stored
    shown_details = json.loads(json.dumps(read.public()))
    assert {name: value for name, value in details.items() if value is not None}.items() <= shown_details.items()


@pytest.mark.parametrize("value", [b"bytes", float("nan"), {1: "a number"}, "\ud800", {"a set"}, NOW])
def test_a_detail_that_is_no_json_is_refused_in_every_store(value: object) -> None:
    with pytest.raises(DelegationError, check=coded("BAD_REPORT"), match="details"):
        submitted().with_details({"own": value})


def test_only_what_dynamodb_would_not_hold_is_stored_as_json_text() -> None:
    deep: Any = 1
    for _ in range(30):
        deep = [deep]
    task = submitted().with_details({"plain": {"a": [1, "b", None]}, "ratio": 0.5, "large": 10**38, "deep": deep})
    item = codec.head_item(task)
    assert item["plain"] == {"a": [1, "b", None]}
    assert (item["ratio"], item["large"]) == ({"$json": "0.5"}, {"$json": str(10**38)})
    assert item["deep"].keys() == {"$json"}
    assert codec.task_of(through_dynamodb(item)) == task


@given(task=tasks())
def test_only_heads_that_need_attention_are_in_the_due_index(task: Task) -> None:
    head, row = codec.head_item(task), codec.row_item(task)
    assert ("due_bucket" in head, "due_at" in head) == (task.due_at is not None,) * 2
    assert head.get("due_bucket") in (None, f"due-{zlib.crc32(task.task_id.encode()) % 16:02d}")
    assert not {"due_bucket", "due_at"} & set(row)
    assert (head["version"], head["current_version"], row["version"]) == (0, task.version, task.version)
    assert head["format"] == row["format"] == 1


@given(task=tasks())
def test_every_head_and_no_row_is_in_the_index_of_received_tasks(task: Task) -> None:
    head, row = codec.head_item(task), codec.row_item(task)
    assert head["received_key"] == f"{isoformat(task.received_timestamp)}/{task.task_id}"
    assert head["received_key"].startswith(f"{head['received_bucket']}T")
    assert not {"received_bucket", "received_key"} & set(row)


def test_a_detail_cannot_replace_a_field() -> None:
    task = submitted(details={"status": "SUCCESS", "format": 9, "tier": "gold"})
    item = codec.row_item(task)
    assert (item["status"], item["format"], item["tier"]) == ("SUBMITTED", 1, "gold")


@pytest.mark.parametrize("stated", [2, 0, "1", None])
def test_another_format_is_refused(stated: object) -> None:
    with pytest.raises(MalformedRecord, match="format"):
        codec.task_of({**codec.head_item(submitted()), "format": stated})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"children": [1]}, ": children.0: "),
        ({"handed_over_count": -1}, ": handed_over_count: "),
        ({"status": "PAUSED"}, "status"),
        ({"created_ts": "yesterday"}, "created_ts"),
        ({"created_ts": "2026-11-21T12:00:00"}, "created_ts"),
        ({"attempt_count": "many"}, "attempt_count"),
        ({"lease_owner": "worker-1"}, "lease_owner"),
    ],
)
def test_an_invalid_item_is_refused_with_the_name_of_the_field(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(MalformedRecord, match=named):
        codec.task_of({**codec.head_item(submitted()), **changes})


def test_a_refusal_does_not_quote_the_payload() -> None:
    item = {**codec.head_item(submitted(task_payload="s3cr3t")), "task_payload": ["s3cr3t"]}
    with pytest.raises(MalformedRecord, match="task_payload") as refusal:
        codec.task_of(item)
    assert "s3cr3t" not in str(refusal.value)


# ---- items as former releases stored them


@pytest.mark.parametrize("path", FORMAT_1, ids=lambda path: path.stem)
def test_golden_items_can_be_read(path: Path) -> None:
    golden = json.loads(path.read_text())
    task = codec.task_of(from_item(golden["item"]))
    public = shown(task.public()) | {name: jsonable(task.flat()[name]) for name in INTERNAL - {"due_at"}}
    assert {name: public[name] for name in golden["task"]} == golden["task"]
    assert golden["carried"].items() <= task.details.items()
    assert (task.due_at is not None) == ("due_at" in golden["item"])


@pytest.mark.parametrize("path", FORMAT_1, ids=lambda path: path.stem)
def test_golden_items_are_written_again_without_loss(path: Path) -> None:
    """A later release may add attributes; it may not drop, rename or change one while it writes `format: 1`."""
    golden = json.loads(path.read_text())["item"]
    task = codec.task_of(from_item(golden))
    written = to_item(codec.head_item(task) if golden["version"] == {"N": "0"} else codec.row_item(task))
    if golden["version"] != {"N": "0"} and not task.is_terminal:
        golden.pop("result_extended", None)  # only heads and ends have it; a stored row is never written again
    assert {name: written.get(name) for name in golden} == golden


def test_there_is_a_golden_head_and_row_of_every_status() -> None:
    stored = [from_item(json.loads(path.read_text())["item"]) for path in FORMAT_1]
    seen = {(item["status"], item["version"] == 0) for item in stored}
    assert seen == {(status.value, is_head) for status in Status for is_head in (True, False)}


def test_every_stored_field_occurs_in_a_golden_item() -> None:
    occurring = {name for path in FORMAT_1 for name in json.loads(path.read_text())["item"]}
    full = codec.head_item(in_status(Status.RUNNING).evolve(due_at=NOW + MINUTE))
    assert occurring >= set(full) | {STORED_NAMES.get(name, name) for name in submitted().flat() if name != "details"}
