"""Stored records with any damaged attribute are unreadable records, and no other error: a list reads the others."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from delegation.gateway.drop import store as tombstones
from delegation.gateway.drop.tombstones import pending
from delegation.idempotency import reservations
from delegation.idempotency import store as keys
from delegation.idempotency.answers import MutationAnswer
from delegation.idempotency.keys import IdempotencyError, Scope, State
from delegation.idempotency.reservations import KeyPolicy, finalized, reserved
from delegation.idempotency.store import Record
from delegation.identifiers import TableIdentifier
from delegation.stored_items import item_of_model
from delegation.tasks.life.notifications import Notification, NotificationState, Receiver
from delegation.tasks.stores import codec, notifications
from delegation.tasks.stores.admission import queued_entry, running_entry
from delegation.upkeep.health import store as healths
from delegation.upkeep.health.model import TableHealth
from polaris_common.dynamodb import from_item, to_item
from polaris_common.errors import DelegationError
from tests.contract.task_tables import moto_task_store
from tests.kit.tasks.builders import submitted
from tests.unit.gateway.drop.world import HIDDEN, REALM
from tests.unit.upkeep.health.test_refresh import NOW

BAD: list[Any] = [
    None, "", "x", 7, -1, 10**30, True, [], ["x"], {}, {"x": 1}, "2026-11-22T12:00:00",
    "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2026-13-45T99:00:00Z",
]  # fmt: skip
TABLE = TableIdentifier("lake", ("ns",), "t")


def items() -> dict[str, tuple[dict[str, Any], Callable[[Mapping[str, Any]], object]]]:
    """Return a whole item of each kind, and what reads it."""
    texts = dict.fromkeys(("scope", "caller", "realm_id", "method", "resource_path", "idempotency_key", "nonce"), "x")
    record = Record(
        payload_hash="0", state=State.IN_PROGRESS, task_id="t", bound_version=1, created_at=NOW, updated_at=NOW,
        expires_at=NOW, **texts,
    )  # fmt: skip
    scope = Scope("bob", REALM, "POST", "/v1/t", "k")
    held = reserved(scope, str, None, now=NOW, policy=KeyPolicy(), nonce="n")
    tombstone = pending(REALM, TABLE, HIDDEN, NOW, expected_uuid="u", caller="bob", waits=False)
    owed = Notification("n", str(uuid4()), 1, "events", "{}", NOW, NOW, NotificationState.OWED)
    health = TableHealth(TABLE, "u", "m", NOW, since=NOW, runs={})
    return {
        "task": (codec.head_item(submitted(str(uuid4()))), codec.task_of),
        "key": (item_of_model(record), keys.record_of),
        "reservation": (item_of_model(held), reservations.reservation_of),
        "tombstone": (tombstones.tombstone_item(tombstone), tombstones.tombstone_of),
        "notification": (notifications.notification_item(owed), notifications.notification_of),
        "receiver": (notifications.receiver_item(Receiver("c", NOW, NOW)), notifications.receiver_of),
        "health": (healths.health_item(health), healths.health_of),
    }


@pytest.mark.parametrize("kind", ["task", "key", "reservation", "tombstone", "notification", "receiver", "health"])
def test_a_damaged_attribute_is_an_error_of_the_service_or_none(kind: str) -> None:
    item, read = items()[kind]
    read(from_item(to_item(item)))
    for name in item:
        for value in BAD:
            with suppress(DelegationError):
                read(from_item(to_item({**item, name: value})))
        with suppress(DelegationError):
            read(from_item(to_item({one: value for one, value in item.items() if one != name})))


@pytest.mark.parametrize("body", BAD)
def test_a_stored_answer_whose_body_is_damaged_is_replayed_to_nobody(body: Any) -> None:
    scope, policy = Scope("bob", REALM, "POST", "/v1/t", "k"), KeyPolicy()
    held = reserved(scope, str, None, now=NOW, policy=policy, nonce="n")
    item = item_of_model(finalized(held, MutationAnswer(200, b"{}"), NOW, policy, "o"))
    assert reservations.reservation_of(from_item(to_item(item))).answer == MutationAnswer(200, b"{}")
    with pytest.raises(IdempotencyError, match="packed_body"):
        reservations.reservation_of(from_item(to_item({**item, "packed_body": body})))


@pytest.mark.parametrize("text", [one for one in BAD if isinstance(one, str)])
def test_a_damaged_time_in_an_index_hides_no_other_task(text: str) -> None:
    assert queued_entry("t", f"lane/{text}").since.tzinfo is UTC
    assert running_entry("t", f"{text}/x/{text}").task_id == "t"


def test_a_damaged_due_time_is_due_now_and_stops_no_sweep() -> None:
    with moto_task_store() as store:
        for due in ("0001-01-01T00:00:00+23:59", "2026-02-31", "", "2026-01-01T00:00:00.000000Z"):
            task_id = str(uuid4())
            item = {
                **codec.head_item(submitted(task_id)),
                "due_bucket": codec.due_bucket(task_id),
                "due_at": due or "0",
            }
            store.dynamodb.client.put_item(TableName=store.table, Item=to_item(item))
        now = datetime(2026, 11, 29, tzinfo=UTC)
        found = store.due(now)
    assert len(found) == 4
    assert sorted(one.due_at for one in found)[1:] == [now] * 3
