"""One contract for every NotificationStore: in memory, DynamoDB in moto and DynamoDB Local, the persistence."""

from collections.abc import Iterator

import pytest

from delegation.tasks.contract import notifications as checks
from delegation.tasks.contract.notifications import CHECKS, FAR, OWED, NotificationCheck, ended
from delegation.tasks.errors import MalformedRecord, TaskError
from delegation.tasks.stores.base import TaskStore
from delegation.tasks.stores.dynamodb import DynamoDbTaskStore
from delegation.tasks.stores.memory import MemoryNotificationStore, MemoryTaskStore
from delegation.tasks.stores.notifications import DynamoDbNotificationStore, NotificationStore, notification_item
from delegation.tasks.stores.persistence import PersistenceTaskStore, task_process
from delegation.tasks.stores.persistence_records import PersistenceNotificationStore
from polaris_common.dynamodb import to_item
from polaris_persistence.backends.memory import MemoryBackend
from tests.contract.task_tables import local_task_store, task_store
from tests.contract.tasks.broken import notifications as broken
from tests.contract.where import LOCAL, MOTO

Stores = tuple[TaskStore, NotificationStore]


@pytest.fixture
def stores(request: pytest.FixtureRequest) -> Iterator[Stores]:
    match request.param:
        case "memory":
            memory = MemoryTaskStore()
            yield memory, MemoryNotificationStore(memory)
        case "moto":
            with task_store(request.getfixturevalue("moto_client")) as in_moto:
                yield in_moto, DynamoDbNotificationStore(in_moto)
        case "local":
            with local_task_store(request.getfixturevalue("dynamodb_local").url) as in_dynamodb:
                yield in_dynamodb, DynamoDbNotificationStore(in_dynamodb)
        case "kernel":
            kernel = PersistenceTaskStore(task_process(MemoryBackend()).store("realm", "tasks"))
            yield kernel, PersistenceNotificationStore(kernel)


@pytest.mark.parametrize("stores", ["memory", MOTO, LOCAL, "kernel"], indirect=True)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_contract(stores: Stores, check: NotificationCheck) -> None:
    check(*stores)


@pytest.mark.parametrize("stores", [MOTO, LOCAL], indirect=True)
def test_one_of_a_newer_release_hides_no_other(stores: tuple[DynamoDbTaskStore, DynamoDbNotificationStore]) -> None:
    tasks, owed = stores
    task, (newer, other) = ended(tasks)
    item = to_item({**notification_item(newer), "format": 2})
    tasks.dynamodb.client.put_item(TableName=tasks.table, Item=item)
    assert list(owed.notifications(OWED, FAR)) == [other]
    with pytest.raises(MalformedRecord, match="format"):
        owed.notification(task.task_id, newer.notification_id)


BROKEN: tuple[tuple[type, NotificationCheck], ...] = (
    (broken.AnnouncesNothing, checks.an_end_stores_what_it_announces),
    (broken.AnnouncesNothing, checks.expect_stores_what_a_late_caller_is_owed),
    (broken.AnnouncesEachStatus, checks.an_end_that_nobody_asked_for_announces_nothing),
    (broken.AnnouncesBeforeTheCondition, checks.a_refused_end_announces_nothing),
    (broken.AnnouncesBeforeTheCondition, checks.an_end_repeated_with_its_nonce_announces_nothing_more),
    (broken.AnnouncesOnlyTheLastVersion, checks.a_passed_end_announces_too),
    (broken.OneForEachChannel, checks.each_end_announces_notifications_of_its_own),
    (broken.RemovedWithTheTask, checks.what_is_owed_outlives_its_task_and_another_of_its_id),
    (broken.NewestFirst, checks.what_is_due_is_found_oldest_first),
    (broken.WithoutCondition, checks.a_change_needs_the_revision_that_was_read),
    (broken.ForgetsAttempts, checks.a_change_needs_the_revision_that_was_read),
    (broken.AnyState, checks.a_dead_letter_is_found_apart_and_revived),
    (broken.KeepsWhatWasDelivered, checks.what_was_delivered_is_gone_and_cannot_be_changed),
    (broken.NotificationsAsTasks, checks.notifications_are_seen_by_no_read_of_tasks),
    (broken.ParksNothing, checks.what_is_parked_is_found_by_its_channel_only),
    (broken.LastReceiverWins, checks.a_receiver_is_stored_under_the_revision_that_was_read),
)


@pytest.mark.parametrize(("kind", "check"), BROKEN, ids=lambda one: one.__name__)
def test_the_suite_catches_a_broken_store(kind: type, check: NotificationCheck) -> None:
    tasks = MemoryTaskStore() if issubclass(kind, MemoryNotificationStore) else kind()
    owed = kind(tasks) if issubclass(kind, MemoryNotificationStore) else MemoryNotificationStore(tasks)
    with pytest.raises((AssertionError, TaskError, pytest.fail.Exception, StopIteration, ValueError)):
        check(tasks, owed)


def test_every_check_catches_some_broken_store() -> None:
    assert {check for _, check in BROKEN} == set(CHECKS)
