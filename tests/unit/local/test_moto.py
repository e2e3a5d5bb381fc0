"""moto answers with its shortcuts what it answers without them, and waits until a time in UTC in every time zone."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from moto import backends
from moto.core.serialize import BaseJSONSerializer
from moto.stepfunctions.parser.asl.component.state.wait.wait_function.timestamp import Timestamp

from infra.local.aws import moto_shortcuts, server
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


DUE = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


@pytest.fixture(params=["UTC", "EST+5", "IST-5:30"])
def zone(request, monkeypatch):
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def corrected():
    undo = server.correct_wait_times()
    yield
    undo()


@pytest.mark.parametrize(("left", "waits"), [(0.0, 0), (0.02, 1), (1.0, 1), (59.5, 60)])
def test_the_wait_lasts_until_the_timestamp_and_never_less(zone, corrected, left, waits):
    moment = Timestamp._from_timestamp_string(timestamp="2026-11-21T12:00:00.000000Z")
    # moto compares with local time.
    now = (DUE - timedelta(seconds=left)).astimezone().replace(tzinfo=None)
    assert int((moment - now).total_seconds()) == waits


def test_text_that_is_not_a_timestamp_remains_none(corrected):
    assert Timestamp._from_timestamp_string(timestamp="tomorrow") is None


def test_it_can_be_undone():
    before = vars(Timestamp)["_from_timestamp_string"]
    server.correct_wait_times()()
    assert vars(Timestamp)["_from_timestamp_string"] is before
