"""The codec of keys, mutations and tombstones stores what it reads, whatever the values, and `Items` reads by pages."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from delegation.gateway.drop.store import tombstone_item, tombstone_of
from delegation.gateway.drop.tombstones import pending
from delegation.idempotency.answers import MutationAnswer
from delegation.idempotency.keys import Scope, State
from delegation.idempotency.reservations import KeyPolicy, finalized, reservation_of, reserved
from delegation.idempotency.store import Record, record_of
from delegation.identifiers import TableIdentifier
from delegation.stored_items import Items, item_of_model
from polaris_common.dynamodb import from_item, to_item
from tests.unit.gateway.drop.world import HIDDEN, REALM

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
MOMENT = st.datetimes(datetime(2020, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
SECOND = MOMENT.map(lambda moment: moment.replace(microsecond=0))


def through_the_table(item: Any) -> dict[str, Any]:
    return from_item(to_item(item))


@given(text=TEXT, now=MOMENT, expiry=st.none() | SECOND, runs=st.none() | st.integers(1, 9), body=st.none() | TEXT)
def test_the_record_of_a_key_is_read_as_it_was_stored(
    text: str, now: datetime, expiry: datetime | None, runs: int | None, body: str | None
) -> None:
    names = ("scope", "caller", "realm_id", "method", "resource_path", "idempotency_key", "payload_hash", "nonce")
    record = Record(
        **dict.fromkeys(names, text), state=State.FINALIZED, created_at=now, updated_at=now, task_id=text,
        bound_version=1, expires_at=expiry, resubmits=runs, http_status=None if body is None else 202,
        response_body=body,
    )  # fmt: skip
    item = item_of_model(record)
    assert None not in item.values()
    assert ("expires_at" in item) is (expiry is not None)
    assert record_of(through_the_table(item)) == record


@given(text=TEXT, now=MOMENT, body=st.binary(max_size=50), status=st.sampled_from([200, 404]))
def test_a_reservation_is_read_as_it_was_stored(text: str, now: datetime, body: bytes, status: int) -> None:
    scope, policy = Scope(text, REALM, "POST", "/v1/t", text), KeyPolicy()
    held = reserved(scope, str, text, now=now, policy=policy, nonce=text)
    answer = MutationAnswer(status, body, {"ETag": text})
    for record in (held, finalized(held, answer, now + timedelta(seconds=1), policy, text)):
        assert reservation_of(through_the_table(item_of_model(record))) == record


NAME = st.text(st.characters(categories=["L", "N"], include_characters="_- €"), min_size=1, max_size=20)


@given(name=NAME, namespace=st.lists(NAME, min_size=1, max_size=3), now=MOMENT, ended=st.none() | SECOND)
def test_a_tombstone_is_read_as_it_was_stored(
    name: str, namespace: list[str], now: datetime, ended: datetime | None
) -> None:
    table = TableIdentifier("lake", tuple(namespace), name)
    tombstone = pending(REALM, table, HIDDEN, now, expected_uuid="u", caller="bob", waits=False)
    tombstone = tombstone.model_copy(update={"expires_at": ended})
    assert tombstone_of(through_the_table(tombstone_item(tombstone))) == tombstone


class Pages:
    """A table of nine items that returns two a page, and has no place for the limit of a page beyond two."""

    def __init__(self) -> None:
        self.limits: list[int | None] = []

    def repeatable(self, _operation: str, **arguments: Any) -> dict[str, Any]:
        self.limits.append(arguments.get("Limit"))
        start = arguments.get("ExclusiveStartKey", 0)
        end = min(start + min(arguments.get("Limit", 2), 2), 9)
        items = [to_item({"n": number}) for number in range(start, end)]
        return {"Items": items, **({"LastEvaluatedKey": end} if end < 9 else {})}


def test_a_query_reads_pages_until_its_limit_and_asks_for_what_is_left() -> None:
    pages: Any = Pages()
    items = Items[Any](pages, "table", ("n",), dict, dict)
    assert [item["n"] for item in items.query("n = :n", {":n": 1}, 5)] == [0, 1, 2, 3, 4]
    assert pages.limits == [5, 3, 1]
    assert len(list(items.query("n = :n", {":n": 1}))) == 9
