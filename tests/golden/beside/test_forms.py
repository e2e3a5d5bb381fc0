"""What a release stores beside the moments' tasks and records: today's code reads it, and acts on it as meant.

The recordings are the former release's where it has the form, and today's otherwise.
"""

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import cbor2
import pytest

from delegation.cli.tombstones.receipts import ReceiptFile
from delegation.errors import GuardRefused
from delegation.gateway.drop import tombstones as drops
from delegation.gateway.drop.tombstones import ENDED
from delegation.idempotency.keys import KeyConflict
from delegation.idempotency.mutations import AnswerSource
from delegation.idempotency.reservations import MutationInProgress
from delegation.notifications.delivery import DeliveryOutcome, Notifier, send_due
from delegation.notifications.queue import SqsNotificationQueue, dead_letters_of, parse, resent
from delegation.orchestration.dispatch import Dispatcher, Inbox
from delegation.references.model import PassNeeded
from delegation.removal.attempt import PlanSegment
from delegation.removal.marks import Absent, Deleted, Marks, plan_ids
from delegation.removal.purge.direct import DirectHead
from delegation.storage.memory import MemoryPlanStore
from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.model import Status
from tests.contract.mutations import world as mutating
from tests.contract.task_tables import moto
from tests.golden.beside.forms import FORMS, recorded_now, store_of, table_of, unpacked
from tests.golden.beside.stores import CHUNKS, METADATA, Kernel, table
from tests.golden.beside.tasks import AUDIT, NOTIFIED, ONE_AT_ONCE, REALM, LivedTable, task_id
from tests.golden.record import BESIDE_FOLDER, STALE, former_release, without_texts
from tests.kit.errors import coded
from tests.kit.tasks.builders import HOUR, MINUTE, NOW

FORMER = former_release() / BESIDE_FOLDER.name


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with moto() as found:
        yield found


@cache
def _text(name: str) -> str:
    former = FORMER / f"{name}.json"
    return (former if former.exists() else BESIDE_FOLDER / former.name).read_text(encoding="utf-8")


def recorded(name: str) -> Any:
    return json.loads(_text(name))


def comparable(found: dict[str, Any]) -> Any:
    """A form without texts; of the persistence what is stored for tasks, whose members have no order."""
    if "references" not in found:
        return without_texts(found)
    rows = ((row[1:4], cbor2.loads(base64.b64decode(row[4]))) for row in found["objects"])
    return sorted(
        [*key, json.dumps(without_texts(value), sort_keys=True)] for key, value in rows if "delegation" in key[1]
    )


@pytest.mark.parametrize("name", FORMS)
def test_what_is_stored_beside_tasks_is_as_it_was(name: str, client: Any) -> None:
    today = json.loads((BESIDE_FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    assert comparable(recorded_now(name, client)) == comparable(today), STALE


def test_every_form_is_recorded() -> None:
    assert {path.stem for path in BESIDE_FOLDER.glob("*.json")} == FORMS.keys()


def check_paused(found: LivedTable) -> None:
    """Nothing of the realm begins, who paused it is known, and the tasks end after it is resumed."""
    orders, events, audit = (found.tasks.reads.get(task_id(number)) for number in (1, 2, 3))
    pause = found.tasks.pauses.work(orders)
    assert pause is not None
    assert pause.text == (
        "paused by ops (CN=ops) since 2026-11-21T12:00:00Z (realm POLARIS): Polaris is being upgraded"
    )
    assert (orders.status, orders.error_code) == (Status.RETRY_SCHEDULED, "PAUSED")
    found.clock.advance(HOUR)
    for task in (orders, events, audit):
        found.tasks.dispatching.reconcile(task.task_id)
        assert found.tasks.dispatching.dispatch(task.task_id).dispatches.count == task.dispatches.count
    assert [found.acquire(number).is_held for number in (1, 2, 3)] == [False] * 3
    assert [one.scope for one in found.control.resume(REALM).pauses] == [AUDIT]
    found.clock.advance(MINUTE)
    assert (found.tasks.pauses.work(audit), found.acquire(3).is_held) == (None, False)
    for number in (1, 2):
        found.tasks.dispatching.reconcile(task_id(number))
        assert found.acquire(number).is_held
        assert found.succeed(number).status is Status.SUCCESS
    assert found.control.resume(AUDIT).pauses == ()
    found.clock.advance(MINUTE)
    assert found.acquire(3).is_held


def check_limited(found: LivedTable, dispatches: list[str]) -> None:
    """The place of the running task is taken; its end admits the one that waits longest, and so on."""
    inbox = Inbox(Dispatcher(found.dispatches, "machine"), found.admission)
    assert {inbox.take(body) for body in dispatches} == {"admission"}
    assert inbox.admit() == 0
    for ended, following in ((1, 2), (2, 3)):
        found.succeed(ended)
        found.clock.advance(MINUTE)
        assert found.admission.run({task_id(ended)}) == 1
        assert found.started[-1] == (task_id(following), 1)
        assert found.acquire(following).is_held
    assert found.store.register().revision == 3


class Catalog:
    """The receiver of callbacks, and the event bus."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, bytes]] = []
        self.events: list[str] = []

    def post(self, url: str, headers: dict[str, str], body: bytes) -> int:
        assert url == NOTIFIED["delegation.notifications.callback.catalog"]
        self.posted.append((headers["Idempotency-Key"], body))
        return 204

    def put(self, owed: Any) -> None:
        self.events.append(owed.body)


def check_notifying(found: LivedTable, messages: list[str]) -> None:
    """Messages that are under way, what is due, and a dead letter that is sent again arrive as they were stored."""
    catalog = Catalog()
    keys = lambda _name: (b"k" * 32,)  # noqa: E731
    notifier = Notifier(found.owed, found.policies.notifications, catalog.post, keys, catalog, found.clock)
    owed = [one for number in (1, 2) for one in found.owed.notifications_of(task_id(number))]
    assert sorted((one.attempts, one.is_dead) for one in owed) == [(0, False), (0, False), (1, False), (2, True)]
    first = [notifier.take(parse(body)).outcome for body in messages]
    assert sorted(first) == [DeliveryOutcome.DELIVERED] * 2 + [DeliveryOutcome.SKIPPED] * 2
    found.aws.messages.clear()
    found.clock.advance(HOUR)
    [dead] = dead_letters_of(found.owed, task_id(1))
    assert dead.last_error == "CALLBACK_NOT_ACCEPTED: 500"
    assert len(list(resent(found.owed, [dead], found.clock()))) == 1
    assert send_due(found.owed, SqsNotificationQueue(found.aws, "queue"), notifier.policy, found.clock()) == 2
    assert {notifier.take(parse(body)).outcome for body in found.aws.messages} == {DeliveryOutcome.DELIVERED}
    bodies = {one.channel: {each.body for each in owed if each.channel == one.channel} for one in owed}
    assert set(catalog.events) == bodies["event"]
    assert {body.decode() for _, body in catalog.posted} == bodies["callback:catalog"]
    assert {key for key, _ in catalog.posted} == {one.notification_id for one in owed if one.channel != "event"}
    assert not [one for number in (1, 2) for one in found.owed.notifications_of(task_id(number))]


CHECKS = {
    "paused": lambda found, _recorded: check_paused(found),
    "limited": lambda found, recorded: check_limited(found, recorded["dispatches"]),
    "notifying": lambda found, recorded: check_notifying(found, recorded["messages"]),
}


@pytest.mark.parametrize("name", CHECKS)
def test_today_continues_what_is_beside_tasks_in_dynamodb(name: str, client: Any) -> None:
    with table_of(name, recorded(name), client) as found:
        CHECKS[name](found, recorded(name))


@pytest.mark.parametrize("name", CHECKS)
def test_today_continues_what_is_beside_tasks_on_the_persistence(name: str) -> None:
    kernel = Kernel(recorded("persistence"))
    found = kernel.lived(name, **(NOTIFIED if name == "notifying" else ONE_AT_ONCE if name == "limited" else {}))
    in_dynamodb = recorded(name)
    found.clock.now = found.clock.now.fromisoformat(in_dynamodb["now"])
    CHECKS[name](found, in_dynamodb)


def test_a_parent_waits_for_its_children_and_their_large_results_are_read(client: Any) -> None:
    with table_of("awaiting", recorded("awaiting"), client) as found:
        [parent] = [task for task in found.store.heads().tasks if task.task_type == "PARENT"]
        children = found.tasks.reads.children(parent.task_id)
        assert len(children) == len(found.store.children(parent.task_id)) == 2
        assert all(found.store.parents(one) == {parent.task_id: 1} for one in children)
        [ended] = [task for task in map(found.tasks.reads.get, children) if task.is_terminal]
        assert ended.result_location in found.results.objects
        assert json.loads(found.tasks.reads.with_result(ended).result_extended or "")["text"] == "x" * 65_536
        assert parent.pending_result in {f"object:{key}" for key in found.results.objects}
        for _ in range(3):
            found.clock.advance(HOUR)
            found.work()
        assert {task.status for task in found.store.heads().tasks} == {Status.SUCCESS}
        of_parent = found.tasks.reads.with_result(found.tasks.reads.get(parent.task_id)).result_extended or ""
        assert json.loads(of_parent)["text"] == "y" * 65_536
        found.results.objects[ended.result_location] = b"{}"
        with pytest.raises(MalformedRecord, match="was changed"):
            found.tasks.reads.with_result(ended)


def test_tombstones_of_every_state_are_read_listed_and_changed(client: Any) -> None:
    with store_of("tombstones", recorded("tombstones"), client) as store:
        found = {one.name: one for one in store.newest(100).tombstones}
        assert {name: one.state.lower() for name, one in found.items()} == {name: name for name in found}
        assert len(found) == len(drops.TombstoneState)
        waits = {name for name, one in found.items() if one.state not in ENDED}
        assert {one.name for one in store.due(NOW + HOUR, 100).tombstones} == waits
        assert store.of_table("POLARIS", table("renamed"), 10) == [found["renamed"]]
        assert found["failed"].problem == "GUARD_REFUSED: shared"
        assert found["restoring"].restore_identifier == table("again")
        assert found["purging"].waits
        after = drops.dropped(found["purged"], NOW + HOUR)
        store.replace(after, found["purged"])
        assert store.get(after.tombstone_id) == after


def test_keys_of_mutations_are_replayed_refused_verified_and_run(client: Any) -> None:
    with store_of("mutations", recorded("mutations"), client) as store:
        world = mutating.EffectfulCatalog(store)
        world.effects = [mutating.Effect(key, "p", world.clock()) for key in ("answered", "died")]
        replayed = world.call("answered")
        assert replayed.performed is not None
        assert (replayed.how, replayed.performed.answer.body) == (
            AnswerSource.REPLAYED,
            b'{"key":"answered","payload":"p"}',
        )
        assert isinstance(world.call("answered", "other").error, KeyConflict)
        assert isinstance(world.call("died").error, MutationInProgress)
        assert world.runs == 0
        assert world.call("released").how is AnswerSource.EXECUTED
        world.clock.advance(mutating.AFTER_LEASE)
        assert world.call("died").how is AnswerSource.VERIFIED
        assert world.runs == 1


def test_references_are_found_and_passes_continued(client: Any) -> None:
    with store_of("references", recorded("references"), client) as store:
        orders = store.get(table("orders"))
        assert orders is not None
        assert (orders.areas, orders.seen, orders.revision) == (("s3://b/t/",), {b"12345678", b"abcdefgh"}, 2)
        assert store.overlapping("lake", ["s3://b/t/data/"]) == {table("orders")}
        assert store.overlapping("lake", ["s3://old/t/"]) == frozenset()
        assert [one.identifier for one in store.unreadable("lake")] == [table("events")]
        under_way, complete = store.pass_of("lake"), store.pass_of("hr")
        assert (under_way.owner, under_way.position, under_way.checked) == ("run-1", ("sales", "eu", "orders"), 1)
        assert PassNeeded(None, 2 * HOUR).is_met_by(complete, NOW + HOUR)
        store.put(replace(orders, areas=("s3://new/t/",)))
        store.write_pass(under_way, replace(under_way, complete_as_of=NOW, owner=None, position=None))
        assert store.overlapping("lake", ["s3://"]) == frozenset()
        assert store.overlapping("lake", ["s3://new/t/"]) == {table("orders")}


def test_marks_and_plans_of_commands_are_read(tmp_path: Any) -> None:
    store = MemoryPlanStore()
    store.objects.update(unpacked(recorded("plans")["objects"]))
    marks = Marks(store, "task-1/1-abc")
    assert (marks.voided, marks.done(), marks.once_done()) == (1, {"data-1.gz"}, {"data-0.gz", "data-1.gz"})
    assert marks.absent_of(CHUNKS[1]) == Absent(1, 10)
    assert marks.deleted(CHUNKS) == Deleted(3, 20, 1)
    assert [marks.has_result(chunk) for chunk in CHUNKS] == [False, True, True]
    assert marks.versioned()
    assert plan_ids(store, "task-2") == ["task-1/1-abc"]
    head = DirectHead(store)
    assert (head.read(), head.table_uuid(METADATA)) == ((PlanSegment("-/1-abc", "0" * 64),), "uuid-1")
    assert head.protected == {"s3://b/u/metadata/00001.metadata.json"}
    with pytest.raises(GuardRefused, check=coded("PLAN_OF_ANOTHER_TABLE")):
        head.table_uuid("s3://b/u/metadata/00001.metadata.json")
    path = tmp_path / "receipt.json"
    path.write_bytes(store.objects["cascade.json"])
    file = ReceiptFile.opened(path)
    assert file is not None
    file.check_same("lake", ("sales",), "key-1")
    assert [(one.outcome, one.is_done) for one in file.receipt.tables] == [
        ("dropped", True),
        ("gone", True),
        ("kept", False),
        ("pending", False),
    ]
