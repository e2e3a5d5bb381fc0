"""Which processes count a half deleted table: those whose writes end purges, not those that only submit them."""

from collections.abc import Iterator

import pytest

from delegation.tasks.work.service import TaskService
from delegation.wiring.tasks import connect, count_partly_deleted, task_service
from tests.aws import mock_aws


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("DELEGATION_TASKS_TABLE", "tasks")
    with mock_aws():
        yield


def submitting() -> TaskService:
    found = connect()._service
    assert isinstance(found, TaskService)
    return found


@pytest.mark.parametrize(
    ("process", "counts"), [(task_service, True), (submitting, False)], ids=["purges while a caller waits", "submits"]
)
def test_a_half_deleted_table_is_counted_where_a_purge_ends(process, *, counts):
    assert (process().writes.hooks.left_partly_done is count_partly_deleted) is counts
