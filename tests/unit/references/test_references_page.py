"""docs/runbook/references.md: why the reference index is emptied after a copy that was not made at one moment."""

import sys
from dataclasses import replace

import boto3
import pytest

from delegation.references.refresh import Refresher
from tests.contract.task_tables import moto
from tests.contract.test_reference_store import reference_store
from tests.infra.operations.runbook import FOLDER, blocks
from tests.kit.lakes.lake import busy_table
from tests.unit.references.test_damaged_records import LOST
from tests.unit.references.test_refresh import MAX_AGE, Scene

[EMPTYING] = [block for block in blocks(FOLDER / "references.md") if "python -c" in block]
AREA = "s3://lake/wh/t/"


def test_a_row_that_did_not_arrive_is_found_only_after_the_index_was_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    busy_table(scene.one, "t")
    with moto() as client:
        store = reference_store(client)
        refresher: Refresher = replace(scene.refresher(), store=store)
        refresher.ensure_fresh("cat", MAX_AGE)
        [area] = [
            row for row in client.scan(TableName=store._items.table)["Items"] if row["pk"]["S"].startswith("area:")
        ]
        client.delete_item(TableName=store._items.table, Key={name: area[name] for name in ("pk", "sk")})
        for number in range(60):
            client.put_item(TableName=store._items.table, Item={"pk": {"S": "area:other"}, "sk": {"S": f"{number}\0x"}})
        store.put_lost_refs(LOST)
        scene.now += MAX_AGE * 2
        refresher.ensure_fresh("cat", MAX_AGE)
        assert store.overlapping("cat", [AREA]) == frozenset(), "the refresh read only what changed"

        monkeypatch.setattr(sys, "argv", ["-c", store._items.table])
        monkeypatch.setattr(boto3, "resource", lambda _name: boto3.Session().resource("dynamodb", "us-east-1"))
        exec(EMPTYING.partition("python -c '")[2].partition("'")[0])  # the page's own text
        assert [row["pk"]["S"] for row in client.scan(TableName=store._items.table)["Items"]] == ["lost-refs:cat"]
        assert store.lost_refs("cat") == [LOST], "no pass could find again what protects the files of lost refs"
        assert store.pass_of("cat").complete_as_of is None, "until it is complete, no purge deletes"
        refresher.ensure_fresh("cat", MAX_AGE)
        assert {one.name for one in store.overlapping("cat", [AREA])} == {"t"}
