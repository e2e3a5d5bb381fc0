"""The record of a key whose write got no clear answer."""

import pytest

from delegation.idempotency.store import DynamoDbIdempotencyStore, RecordWrite
from delegation.tasks.errors import OutcomeUnknown
from delegation.tasks.stores.base import Create
from delegation.testing.idempotency import bound
from tests.contract.task_tables import record_store
from tests.kit.tasks.builders import submitted
from tests.unit.tasks.stores.dynamodb_bench import TRIES, Bench
from tests.unit.tasks.stores.faulty_client import Fault, answered, read_timeout

Records = tuple[DynamoDbIdempotencyStore, DynamoDbIdempotencyStore]
NOT_READ = [Fault(answered("ThrottlingException"))] * TRIES


def records_of(bench: Bench) -> Records:
    """Return the records through the failing client, and as another process reads them."""
    rival = record_store(bench.rival)
    return DynamoDbIdempotencyStore(bench.store, rival._items.table), rival


def put(records: DynamoDbIdempotencyStore, write: RecordWrite) -> None:
    records.put(write)


def accept(records: DynamoDbIdempotencyStore, write: RecordWrite) -> None:
    records.accept(Create(submitted(write.record.task_id)), write)


@pytest.mark.parametrize("make", [put, accept])
@pytest.mark.parametrize("applied", [True, False])
def test_a_write_that_cannot_be_read_back_is_unknown_and_its_repeat_finds_out(bench, make, applied):
    """StoreUnavailable would state that nothing was written."""
    records, rival = records_of(bench)
    write = RecordWrite(bound(submitted()))
    bench.client.writes = [Fault(read_timeout, applied=applied)] + [Fault(read_timeout)] * (TRIES - 1)
    bench.client.reads = [*NOT_READ, *NOT_READ]
    with pytest.raises(OutcomeUnknown):
        make(records, write)
    assert rival.get(write.record.scope) == (write.record if applied else None)
    bench.client.reads = []
    put(records, write)
    assert rival.get(write.record.scope) == write.record


def test_a_write_without_a_clear_answer_is_read_back(bench: Bench) -> None:
    records, _rival = records_of(bench)
    write = RecordWrite(bound(submitted()))
    bench.client.writes = [Fault(read_timeout, applied=True)] + [Fault(read_timeout)] * (TRIES - 1)
    assert records.put(write) == write.record
