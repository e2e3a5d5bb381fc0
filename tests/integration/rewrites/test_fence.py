"""The fence in front of the stand-in of Polaris: what passes, and what is told to Spark in every order of events.

Lost answers, conflicts and ended leases meet each commit. An answer that refuses a commit that was made would have
Iceberg delete its files.
"""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from delegation.errors import RunCancelled, RunStopped
from delegation.polaris.client import PolarisClient
from delegation.polaris.transport import RequestRetries, Transport
from delegation.rewrites.commits import ATTEMPT, TASK_ID, CommitRules, own_commits
from delegation.rewrites.fence import Fence, Gate, Sent
from delegation.tasks.errors import LeaseLost
from delegation.tasks.life.model import Status
from tests.integration.local.catalog_world import ORDERS, Stack, emptied, orders, polaris, rows, running

stack = pytest.fixture(scope="module")(running)
bucket = pytest.fixture(autouse=True)(emptied)


@dataclass
class Wire(httpx.BaseTransport):
    """The way to the catalog. `events` has a function for each commit in turn; after them all pass."""

    events: list[Callable[[httpx.Request, Callable[[], httpx.Response]], httpx.Response]] = field(default_factory=list)
    after_commit: Callable[[httpx.Request], httpx.Response | None] = lambda _request: None
    sent: list[httpx.Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._real = httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.sent.append(request)

        def send() -> httpx.Response:
            answer = self._real.handle_request(request)
            answer.read()
            return answer

        is_commit = request.method == "POST" and "/tables/" in request.url.path
        if is_commit and self.events:
            return self.events.pop(0)(request, send)
        if not is_commit and (answer := self.after_commit(request)) is not None:
            return answer
        return send()


def lost(request: httpx.Request, send: Callable[[], httpx.Response]) -> httpx.Response:
    """The catalog commits, and its answer is lost."""
    assert send().status_code == 200
    raise httpx.ReadTimeout("no answer", request=request)


def not_arrived(request: httpx.Request, _send: Callable[[], httpx.Response]) -> httpx.Response:
    """The connection breaks before the request is there."""
    raise httpx.ReadError("reset", request=request)


def no_connection(request: httpx.Request, _send: Callable[[], httpx.Response]) -> httpx.Response:
    raise httpx.ConnectError("refused", request=request)


def replaced_by(status: int) -> Callable[[httpx.Request, Callable[[], httpx.Response]], httpx.Response]:
    """The catalog commits, and a server between answers with another status."""

    def event(_request: httpx.Request, send: Callable[[], httpx.Response]) -> httpx.Response:
        assert send().status_code == 200
        return httpx.Response(status, json={"error": {"message": "busy", "type": "Busy", "code": status}})

    return event


def instead(status: int) -> Callable[[httpx.Request, Callable[[], httpx.Response]], httpx.Response]:
    def event(_request: httpx.Request, _send: Callable[[], httpx.Response]) -> httpx.Response:
        return httpx.Response(status, json={"error": {"message": "busy", "type": "Busy", "code": status}})

    return event


@dataclass
class World:
    """One table, one attempt, its gate and address; `ends` is raised by the attempt's next look."""

    client: PolarisClient
    wire: Wire
    gate: Gate
    url: str
    ends: list[BaseException]

    def table(self) -> dict[str, Any]:
        return dict(self.client.load_table(ORDERS, vend=False).metadata)

    def commit(self, change: Callable[[dict[str, Any]], object] = lambda _document: None) -> httpx.Response:
        """Send what Iceberg sends for a replacement of the table's files as they are now."""
        metadata = self.table()
        parent = next(one for one in metadata["snapshots"] if one["snapshot-id"] == metadata["current-snapshot-id"])
        new = parent["snapshot-id"] // 2 + 1
        document = {
            "requirements": [
                {"type": "assert-table-uuid", "uuid": metadata["table-uuid"]},
                {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": parent["snapshot-id"]},
            ],
            "updates": [
                {
                    "action": "add-snapshot",
                    "snapshot": {
                        "snapshot-id": new,
                        "parent-snapshot-id": parent["snapshot-id"],
                        "sequence-number": metadata["last-sequence-number"] + 1,
                        "timestamp-ms": metadata["last-updated-ms"] + 1,
                        "manifest-list": parent["manifest-list"],
                        "schema-id": metadata["current-schema-id"],
                        "summary": {"operation": "replace", "added-data-files": "1"},
                    },
                },
                {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": new},
            ],
        }
        change(document)
        return httpx.post(f"{self.url}/v1/lake/namespaces/sales/tables/orders", json=document)

    def own(self) -> int:
        return len(own_commits(self.table(), "task-1"))


@pytest.fixture
def world(stack: Stack) -> Iterator[World]:
    orders(stack).append(rows((1, "eu")))
    table_uuid = polaris(stack).load_table(ORDERS, vend=False).table_uuid
    wire = Wire()
    client = polaris(stack)
    client.requests._transport = Transport(
        httpx.Client(transport=wire), backoff=RequestRetries(attempts=2), sleep=lambda _seconds: None
    )
    ends: list[BaseException] = []

    def look() -> None:
        if ends:
            raise ends[0]

    gate = Gate(ORDERS, CommitRules(table_uuid, "main", "task-1", 2), client.requests, look)
    with Fence() as fence, fence.opened(gate) as url:
        yield World(client, wire, gate, url, ends)


def became(world: World) -> list[Sent]:
    return [one.became for one in world.gate.commits]


def test_spark_loads_its_table_with_vended_credentials_and_never_sees_the_principal(world: World) -> None:
    config = httpx.get(f"{world.url}/v1/config", params={"warehouse": "lake"}).json()
    assert config["overrides"]["prefix"] == "lake"
    loaded = httpx.get(f"{world.url}/v1/lake/namespaces/sales/tables/orders?snapshots=refs")
    assert loaded.status_code == 200
    assert loaded.json()["storage-credentials"]
    assert len(loaded.json()["metadata"]["snapshots"]) == len(world.table()["snapshots"])
    vended = httpx.get(f"{world.url}/v1/lake/namespaces/sales/tables/orders/credentials")
    assert vended.json()["storage-credentials"]
    seen = json.dumps([config, loaded.json(), vended.json(), dict(loaded.headers)])
    assert "service-secret" not in seen
    tokens = {request.headers["Authorization"].removeprefix("Bearer ") for request in world.wire.sent[1:]}
    assert tokens
    assert all(token not in seen for token in tokens)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("DELETE", "v1/lake/namespaces/sales/tables/orders"),
        ("GET", "v1/lake/namespaces/sales/tables"),
        ("GET", "v1/lake/namespaces"),
        ("GET", "v1/lake/namespaces/sales/tables/others"),
        ("GET", "v1/lake/namespaces/sales/tables/orders/../others"),
        ("GET", "v1/lake/namespaces/sales/tables/orders%2F..%2Fothers"),
        ("POST", "v1/lake/namespaces/sales/tables"),
        ("POST", "v1/lake/namespaces/sales/register"),
        ("POST", "v1/lake/tables/rename"),
        ("POST", "v1/lake/transactions/commit"),
        ("POST", "v1/oauth/tokens"),
        ("GET", ""),
    ],
)
def test_nothing_else_passes(world: World, method: str, path: str) -> None:
    sent = len(world.wire.sent)
    # httpx would shorten the path.
    connection = httpx.Client(transport=httpx.HTTPTransport())
    request = connection.build_request(method, world.url, json={})
    request.url = request.url.copy_with(raw_path=f"{request.url.raw_path.decode()}/{path}".encode())
    answer = connection.send(request)
    assert answer.status_code == 403
    assert "may only load the table" in answer.json()["error"]["message"]
    assert [one.method for one in world.wire.sent[sent:] if "/config" not in one.url.path] in ([], ["POST"])
    connection.close()


def test_a_catalog_that_does_not_answer_a_load_is_not_asked_again_by_spark(world: World) -> None:
    world.wire.after_commit = lambda _request: httpx.Response(503, json={})
    answer = world.gate.answer("GET", "v1/config", b"")
    assert answer.status == 500
    assert world.gate.stopped is None


def test_another_secret_opens_nothing(world: World) -> None:
    base, _, secret = world.url.rpartition("/")
    for other in ("", secret[:-1], f"{secret}x"):
        answer = httpx.get(f"{base}/{other}/v1/config?warehouse=lake")
        assert answer.status_code == 403


def test_a_commit_passes_with_its_marks(world: World) -> None:
    answer = world.commit()
    assert answer.status_code == 200
    summary = answer.json()["metadata"]["snapshots"][-1]["summary"]
    assert (summary[TASK_ID], summary[ATTEMPT]) == ("task-1", "2")
    assert (became(world), world.own()) == ([Sent.APPLIED], 1)


def test_a_foreign_kind_of_commit_ends_the_attempt(world: World) -> None:
    answer = world.commit(lambda one: one["updates"].append({"action": "remove-snapshots", "snapshot-ids": [1]}))
    assert (answer.status_code, became(world), world.own()) == (403, [Sent.REFUSED], 0)
    assert world.commit().status_code == 403
    assert world.own() == 0


@pytest.mark.parametrize(
    "error",
    [LeaseLost("task-1", attempt=2, current=3, status=Status.RUNNING), RunCancelled("task-1")],
    ids=["lease lost", "cancelled"],
)
def test_the_lease_is_lost_before_the_commit(world: World, error: BaseException) -> None:
    world.ends.append(error)
    answer = world.commit()
    assert (answer.status_code, became(world), world.own()) == (403, [Sent.REFUSED], 0)
    assert world.gate.stopped is error
    assert isinstance(error, RunStopped | LeaseLost)
    # The lease may not come back: what Spark still sends is of an attempt that has ended.
    world.ends.clear()
    assert (world.commit().status_code, world.own()) == (403, 0)


MADE = {
    "its answer is lost": lost,
    "a proxy answers 500": replaced_by(500),
    "a proxy answers 502": replaced_by(502),
    "a proxy answers 503, so it is sent again": replaced_by(503),
    "a proxy answers 429, so it is sent again": replaced_by(429),
    "a proxy answers 409": replaced_by(409),
    "a filter of answers sends 403": replaced_by(403),
}


@pytest.mark.parametrize("name", MADE)
def test_a_commit_was_made_and_its_answer_denies_it(world: World, name: str) -> None:
    world.wire.events.append(MADE[name])
    answer = world.commit()
    assert answer.status_code == 200
    current = world.table()["current-snapshot-id"]
    assert answer.json()["metadata"]["current-snapshot-id"] == current
    assert answer.json()["metadata-location"]
    assert (became(world), world.own()) == ([Sent.APPLIED], 1)


@pytest.mark.parametrize("name", [name for name in MADE if name != "a proxy answers 409"])
def test_a_commit_was_made_and_the_table_cannot_be_read(world: World, name: str) -> None:
    world.wire.events.append(MADE[name])
    broken = [True]

    def unreadable(request: httpx.Request) -> httpx.Response | None:
        is_after = any(one.method == "POST" and "/tables/" in one.url.path for one in world.wire.sent)
        return httpx.Response(500, json={}) if broken and is_after and "/tables/" in request.url.path else None

    world.wire.after_commit = unreadable
    answer = world.commit()
    # 500: Iceberg keeps the files.
    assert (answer.status_code, became(world)) == (500, [Sent.UNKNOWN])
    broken.clear()
    assert world.own() == 1


@pytest.mark.parametrize("refusals", [[404], [401, 401]], ids=["the table renamed", "the secret replaced"])
def test_a_commit_was_made_and_then_refused_when_it_was_sent_again(world: World, refusals: list[int]) -> None:
    world.wire.events += [replaced_by(503), *map(instead, refusals)]
    world.wire.after_commit = lambda _request: None if world.wire.events else instead(404)(_request, _never)
    answer = world.commit()
    assert (answer.status_code, became(world)) == (500, [Sent.UNKNOWN])
    assert world.gate.stopped is not None
    world.wire.after_commit = lambda _request: None
    assert world.own() == 1


def _never() -> httpx.Response:
    raise AssertionError


@pytest.mark.parametrize("event", [not_arrived, no_connection, instead(500), instead(504)])
def test_a_commit_was_not_made_and_nobody_knows(world: World, event: Any) -> None:
    world.wire.events += [event, event]
    answer = world.commit()
    assert (answer.status_code, became(world), world.own()) == (500, [Sent.UNKNOWN], 0)
    assert world.gate.stopped is None
    world.wire.events.clear()
    assert world.commit().status_code == 200


def test_another_writer_was_first(world: World, stack: Stack) -> None:
    answer = world.commit(lambda one: one["requirements"][1].update({"snapshot-id": 5}))
    assert answer.status_code == 403  # not the snapshot's parent

    def other_commits(_request: httpx.Request, send: Callable[[], httpx.Response]) -> httpx.Response:
        return httpx.Response(409, json={"error": {"message": "m", "type": "CommitFailedException", "code": 409}})

    world.gate.stopped = None
    world.wire.events.append(other_commits)
    answer = world.commit()
    assert answer.status_code == 409
    assert answer.json()["error"]["type"] == "CommitFailedException"
    assert (became(world)[-1], world.own()) == (Sent.CONFLICT, 0)
    assert world.commit().status_code == 200


@pytest.mark.parametrize(("follows", "status"), [(True, 200), (False, 500)])
def test_a_commit_was_made_and_an_expiry_removed_its_snapshot(world: World, *, follows: bool, status: int) -> None:
    world.wire.events.append(replaced_by(409))
    new = [0]

    def expired(request: httpx.Request) -> httpx.Response | None:
        if not any(one.method == "POST" and "/tables/" in one.url.path for one in world.wire.sent):
            return None
        if "/tables/" not in request.url.path:
            return None
        head = {"snapshot-id": 99, "parent-snapshot-id": new[0] if follows else 98}
        refs = {"main": {"type": "branch", "snapshot-id": 99}}
        return httpx.Response(200, json={"metadata": {"snapshots": [head], "refs": refs}})

    world.wire.after_commit = expired
    answer = world.commit(lambda one: new.insert(0, one["updates"][1]["snapshot-id"]))
    assert answer.status_code == status
    assert became(world) == [Sent.APPLIED if follows else Sent.UNKNOWN]


def test_the_principal_may_not_commit(world: World) -> None:
    world.wire.events.append(
        lambda _request, _send: httpx.Response(
            403, json={"error": {"message": "no", "type": "ForbiddenException", "code": 403}}
        )
    )
    assert world.commit().status_code == 403
    assert world.gate.stopped is not None
    assert getattr(world.gate.stopped, "code", "") == "POLARIS_FORBIDDEN"


def test_closing_waits_for_a_commit_on_its_way_and_lets_none_pass_after_it(world: World) -> None:
    arrived, may_answer, closed = threading.Event(), threading.Event(), threading.Event()

    def held(_request: httpx.Request, send: Callable[[], httpx.Response]) -> httpx.Response:
        answer = send()
        arrived.set()
        assert may_answer.wait(20)
        return answer

    world.wire.events.append(held)
    statuses: list[int] = []
    committing = threading.Thread(target=lambda: statuses.append(world.commit().status_code))
    committing.start()
    assert arrived.wait(20)

    def close() -> None:
        world.gate.close()
        closed.set()

    closing = threading.Thread(target=close)
    closing.start()
    assert world.commit().status_code == 403
    assert not closed.is_set()
    may_answer.set()
    for thread in (committing, closing):
        thread.join(20)
    assert closed.is_set()
    assert (statuses, world.own()) == ([200], 1)
