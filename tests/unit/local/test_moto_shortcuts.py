"""moto answers with its shortcuts what it answers without them."""

from collections.abc import Iterator
from typing import Any

import pytest
from moto import backends
from moto.core.serialize import BaseJSONSerializer

from infra.local.aws import moto_shortcuts
from tests.contract.task_tables import moto

ITEM = {
    "id": {"S": "a"},
    "empty": {"S": ""},
    "number": {"N": "1.50"},
    "yes": {"BOOL": True},
    "none": {"NULL": True},
    "bytes": {"B": b"\x00\xff"},
    "names": {"SS": ["b", "c"]},
    "numbers": {"NS": ["1", "2"]},
    "list": {"L": [{"S": "x"}, {"M": {"deep": {"N": "7"}}}, {"NULL": True}]},
    "map": {"M": {"inner": {"B": b"\x01"}, "other": {"L": []}}},
    "nothing": {"M": {}},
}


@pytest.fixture
def client() -> Iterator[Any]:
    with moto() as dynamodb:
        dynamodb.create_table(
            TableName="items",
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            BillingMode="PAY_PER_REQUEST",
        )
        dynamodb.put_item(TableName="items", Item=ITEM)
        yield dynamodb


def test_values_of_every_type_are_read_as_they_were_written(client: Any) -> None:
    answers = [client.get_item(TableName="items", Key={"id": ITEM["id"]})["Item"]]
    answers += client.scan(TableName="items")["Items"]
    assert answers == [ITEM, ITEM]


def test_the_answer_is_the_one_without_shortcuts(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def answered() -> Any:
        got = client.put_item(TableName="items", Item={**ITEM, "yes": {"BOOL": False}}, ReturnValues="ALL_OLD")
        client.put_item(TableName="items", Item=ITEM)
        return got["Attributes"]

    short = answered()
    monkeypatch.setattr(BaseJSONSerializer, moto_shortcuts.STRUCTURE, moto_shortcuts.write_any_structure)
    assert answered() == short == ITEM


def test_services_have_the_names_of_moto() -> None:
    assert tuple(backends.list_of_moto_modules()) == tuple(moto_shortcuts.list_modules())
