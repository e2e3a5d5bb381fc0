"""Partial, refused, late and lost answers of DynamoDB, simulated between the backend and moto."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError, EndpointConnectionError, ReadTimeoutError

from polaris_persistence.backends.base import Locator, Refused
from polaris_persistence.backends.dynamodb import DynamoDbBackend
from polaris_persistence.errors import BackendUnavailable, CommitOutcomeUnknown
from polaris_persistence.testing.rows import all_rows, locator, obj, ref
from tests.persistence.contract.backends import moto_backend

Answer = Callable[[Callable[..., Any], dict[str, Any]], Any]


class FaultyClient:
    """A client whose next calls of an operation are answered by `script`; other calls go through."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.script: dict[str, list[Answer]] = {}
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        def call(**arguments: Any) -> Any:
            self.calls.append((operation, arguments))
            real = getattr(self._client, operation)
            answers = self.script.get(operation)
            return answers.pop(0)(real, arguments) if answers else real(**arguments)

        return call

    def count(self, operation: str) -> int:
        return sum(name == operation for name, _ in self.calls)


@contextmanager
def faulty(**more: Any) -> Iterator[tuple[DynamoDbBackend, FaultyClient]]:
    clients: list[FaultyClient] = []

    def wrap(client: Any) -> FaultyClient:
        clients.append(FaultyClient(client))
        return clients[0]

    with moto_backend(wrap, **more) as backend:
        yield backend, clients[0]


def error(code: str, status: int = 400) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "Operation")


def refuses(failure: Exception) -> Answer:
    def answer(_real: Callable[..., Any], _arguments: dict[str, Any]) -> Any:
        raise failure

    return answer


def applies_then(failure: Exception) -> Answer:
    def answer(real: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        real(**arguments)
        raise failure

    return answer


def does_some(count: int, *, left: str) -> Answer:
    """Return an answer to a batch that does only the first `count`; `left` names the field for the others."""

    def answer(real: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        [(table, batch)] = arguments["RequestItems"].items()
        if left == "UnprocessedItems":
            done, rest = batch[:count], batch[count:]
        else:
            done = {**batch, "Keys": batch["Keys"][:count]}
            rest = {**batch, "Keys": batch["Keys"][count:]}
        done_answer = real(RequestItems={table: done}) if count else {"Responses": {}}
        return {**done_answer, left: {table: rest}}

    return answer


THROTTLED = error("ProvisionedThroughputExceededException")
BROKEN = error("InternalServerError", 500)
GATEWAY = error("Unknown", 503)
CUT_OFF = ReadTimeoutError(endpoint_url="http://x")
NOT_SENT = ConnectTimeoutError(endpoint_url="http://x")
NO_SERVER = EndpointConnectionError(endpoint_url="http://x")


def test_unprocessed_items_are_written_until_none_is_left() -> None:
    with faulty() as (backend, client):
        stored = [obj() for _ in range(30)]
        client.script["batch_write_item"] = [does_some(n, left="UnprocessedItems") for n in (10, 0, 3)]
        backend.put_many(stored)
        assert {row.key for row in all_rows(backend)} == {one.key for one in stored}
        assert client.count("batch_write_item") == 5


def test_unprocessed_keys_are_read_until_none_is_left() -> None:
    with faulty() as (backend, client):
        stored = [obj() for _ in range(120)]
        backend.put_many(stored)
        client.script["batch_get_item"] = [does_some(n, left="UnprocessedKeys") for n in (40, 0, 7)]
        assert backend.fetch_many([locator(one) for one in stored]) == {one.key: one for one in stored}
        assert client.count("batch_get_item") == 5


def test_a_batch_that_makes_no_progress_is_unavailable() -> None:
    with faulty() as (backend, client):
        client.script["batch_write_item"] = [does_some(0, left="UnprocessedItems")] * 20
        with pytest.raises(BackendUnavailable, match="processed nothing"):
            backend.put_many([obj()])
        client.script["batch_get_item"] = [does_some(0, left="UnprocessedKeys")] * 20
        with pytest.raises(BackendUnavailable, match="processed nothing"):
            backend.fetch_many([locator(obj())])


@pytest.mark.parametrize("failure", [THROTTLED, BROKEN, GATEWAY, CUT_OFF, NOT_SENT, NO_SERVER], ids=repr)
def test_batches_and_reads_are_repeated_after_any_transient_failure(failure: Exception) -> None:
    with faulty() as (backend, client):
        one, pointer = obj(), ref(1)
        client.script["batch_write_item"] = [refuses(failure), applies_then(failure)]
        client.script["batch_get_item"] = [refuses(failure)] * 3
        client.script["get_item"] = [refuses(failure)] * 3
        backend.put_many([one])
        backend.create_reference(pointer)
        assert backend.fetch_many([locator(one)]) == {one.key: one}
        assert backend.read_reference(pointer.key) == pointer


def test_a_store_that_never_answers_is_unavailable() -> None:
    with faulty() as (backend, client):
        for operation in ("batch_write_item", "get_item", "put_item"):
            client.script[operation] = [refuses(THROTTLED)] * 100
        with pytest.raises(BackendUnavailable, match="ProvisionedThroughput"):
            backend.put_many([obj()])
        with pytest.raises(BackendUnavailable):
            backend.read_reference(ref().key)
        with pytest.raises(BackendUnavailable, match="failed"):
            backend.create_reference(ref())


@pytest.mark.parametrize("failure", [THROTTLED, error("TransactionConflictException"), NOT_SENT, NO_SERVER], ids=repr)
def test_a_conditional_write_that_was_not_accepted_is_repeated(failure: Exception) -> None:
    with faulty() as (backend, client):
        client.script["put_item"] = [refuses(failure)] * 3
        assert backend.create_reference(ref(1)) is None
        assert client.count("put_item") == 4


@pytest.mark.parametrize("failure", [BROKEN, GATEWAY, CUT_OFF], ids=repr)
@pytest.mark.parametrize("fault", [refuses, applies_then])
def test_a_conditional_write_without_an_answer_is_never_repeated_blindly(failure: Exception, fault: Any) -> None:
    with faulty() as (backend, client):
        first, one = ref(1), obj(token="t1")
        backend.create_reference(first)
        backend.insert(one)
        client.calls.clear()
        client.script["update_item"] = [fault(failure)]
        client.script["put_item"] = [fault(failure)]
        client.script["delete_item"] = [fault(failure)]
        with pytest.raises(CommitOutcomeUnknown):
            backend.replace_reference(first.moved_to(2), expected=first)
        with pytest.raises(CommitOutcomeUnknown):
            backend.update(replace(one, token="t2"), expected="t1")
        with pytest.raises(CommitOutcomeUnknown):
            backend.delete(one.key, expected="t2" if fault is applies_then else "t1")
        assert len(client.calls) == 3


def test_a_stale_read_is_repeated_consistently() -> None:
    """An eventually consistent read may not see a new row, or see only some parts of an object."""

    def sees_nothing(_real: Callable[..., Any], _arguments: dict[str, Any]) -> Any:
        return {"Responses": {}}

    def sees_the_first_part(real: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        answer = real(**arguments)
        for found in answer["Responses"].values():
            found[:] = [item for item in found if item["part"]["N"] == "0"]
        return answer

    with faulty(part_bytes=10) as (backend, client):
        one = obj(b"x" * 35)
        backend.put_many([one])
        for stale in (sees_nothing, sees_the_first_part):
            client.calls.clear()
            client.script["batch_get_item"] = [stale]
            assert backend.fetch_many([Locator(one.key, 4)], consistent=False) == {one.key: one}
            consistent = [next(iter(a["RequestItems"].values()))["ConsistentRead"] for _, a in client.calls]
            assert consistent == [False, True]


def test_right_hints_take_one_round_trip_and_wrong_ones_two() -> None:
    with faulty(part_bytes=10) as (backend, client):
        stored = [obj(b"x" * 35), obj(b"y" * 15), obj(b"z")]
        backend.put_many(stored)
        for hints, trips in (((4, 2, 1), 1), ((9, 9, 9), 1), ((1, 1, 1), 2), ((2, 9, 1), 2)):
            client.calls.clear()
            wanted = [Locator(one.key, parts) for one, parts in zip(stored, hints, strict=True)]
            assert backend.fetch_many(wanted) == {one.key: one for one in stored}
            assert len(client.calls) == trips


def test_an_object_that_lost_a_part_is_absent_and_can_still_be_swept() -> None:
    with faulty(part_bytes=10) as (backend, _):
        one = obj(b"x" * 35)
        backend.put_many([one])
        backend.delete_many([Locator(one.key, 1)])
        assert backend.fetch_many([Locator(one.key, 4)]) == {}
        rows = all_rows(backend)
        assert [row.parts for row in rows] == [4, 4, 4]
        backend.delete_many([Locator(row.key, row.parts) for row in rows])
        assert all_rows(backend) == []


def test_a_refusal_returns_the_winner_without_another_read() -> None:
    with faulty() as (backend, client):
        first = ref(1)
        backend.create_reference(first)
        second = first.moved_to(2)
        backend.replace_reference(second, expected=first)
        client.calls.clear()
        assert backend.replace_reference(first.moved_to(3), expected=first) == Refused(second)
        assert len(client.calls) == 1


@pytest.mark.parametrize("code", ["ValidationException", "AccessDeniedException", "ResourceNotFoundException"])
def test_a_request_that_can_never_succeed_is_not_retryable(code: str) -> None:
    with faulty() as (backend, client):
        for operation in ("put_item", "get_item", "batch_get_item", "batch_write_item", "scan"):
            client.script[operation] = [refuses(error(code))]
        calls: list[Callable[[], object]] = [
            lambda: backend.create_reference(ref()),
            lambda: backend.read_reference(ref().key),
            lambda: backend.fetch_many([locator(obj())]),
            lambda: backend.put_many([obj()]),
            backend.scan,
        ]
        for call in calls:
            with pytest.raises(BackendUnavailable, match=code) as raised:
                call()
            assert not raised.value.retryable
            assert raised.value.code == "PERSISTENCE_REFUSED"
        assert len(client.calls) == len(calls)


def test_the_time_is_that_of_the_answers_and_none_without_it() -> None:
    def dated(date: str | None) -> Answer:
        def answer(real: Callable[..., Any], arguments: dict[str, Any]) -> Any:
            answered = real(**arguments)
            headers = answered["ResponseMetadata"]["HTTPHeaders"]
            headers.pop("date")
            if date is not None:
                headers["date"] = date
            return answered

        return answer

    with faulty() as (backend, client):
        assert backend.estimated_time() is None
        for wrong in (None, "yesterday"):
            client.script["get_item"] = [dated(wrong)]
            with pytest.raises(BackendUnavailable, match="Date"):
                backend.time()
        client.script["get_item"] = [dated("Sat, 01 Jan 2028 00:00:00 GMT")]
        start = 1_830_297_600 * 10**6
        assert start <= backend.time() < start + 10**9
        estimated = backend.estimated_time()
        assert estimated is not None
        assert start <= estimated < start + 10**9
