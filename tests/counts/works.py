"""The work that is counted, each a thousand of something or one request."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest import mock

import boto3
from botocore.awsrequest import AWSResponse

from delegation.edge.answers import ApiResponse
from delegation.gateway.app import Gateway, answer_event
from delegation.gateway.forwarding import Forwarder, GatewayCaller
from delegation.gateway.keys.service import CatalogMutations, Patience
from delegation.gateway.messages import CatalogAnswer, CatalogRequest
from delegation.iceberg.avro import manifests as avro
from delegation.iceberg.paths import TableFile
from delegation.removal.chunks import ChunkWriter, Phase, paths_of, read_chunk
from delegation.removal.index import Sorter
from delegation.removal.spark_executors import ReceivedRuns, Spread
from delegation.storage.base import BatchResult
from delegation.storage.credentials import S3Settings
from delegation.storage.deleter import WaitingBatches
from delegation.storage.memory import MemoryPlanStore
from delegation.storage.s3 import S3ObjectStore
from delegation.storage.s3_delete import prepare_for_deletes
from delegation.storage.sessions import new_session
from delegation.timestamps import utc_now
from delegation.wiring import gateway as wired
from tests.bench.loads.manifests import manifest
from tests.counts.counting import Work
from tests.kit.lakes.lake import filled
from tests.kit.worlds.service import World
from tests.unit.gateway.world import RecordingUpstream, gateway_over, request

KEYS = tuple(f"wh/db/table/data/part={n % 7}/{n:09d}-0123456789abcdef-00001.parquet" for n in range(1_000))
ROWS = [(f"s3://bench/{key}", 9, 1_000 + n) for n, key in enumerate(KEYS)]
_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<DeleteResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'


class _Raw:
    """A response body with urllib3's interface."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, **_: Any) -> list[bytes]:
        return [self._body]


CONFIRMED = "<Deleted><Key>{}</Key></Deleted>"


def deleting_client(entry: str = CONFIRMED) -> Any:
    """Return a client for deletes whose store answers with an entry for each key, without a connection."""
    client = plain_client(entry)
    prepare_for_deletes(client)
    return client


class AnsweringStore(S3ObjectStore):
    """The store as purges use it, with the client of `deleting_client`."""

    def __init__(self, entry: str = CONFIRMED) -> None:
        super().__init__(settings=S3Settings())
        self._entry = entry

    def _build(self, credential: object, *, deleting: bool) -> Any:
        return deleting_client(self._entry)


def plain_client(entry: str = CONFIRMED) -> Any:
    """Return boto3's own client of that store, without validation of parameters."""
    body = f"{_HEAD}{''.join(entry.format(key) for key in KEYS)}</DeleteResult>".encode()
    config = boto3.session.Config(parameter_validation=False, retries={"total_max_attempts": 1})
    return answering("s3", body, "application/xml", config=config)


def answering(service: str, body: bytes, kind: str = "application/x-amz-json-1.0", *, config: Any) -> Any:
    """Return a client whose service answers everything so, without a connection."""

    def answer(request: Any, **_: Any) -> AWSResponse:
        return AWSResponse(request.url, 200, {"Content-Type": kind}, _Raw(body))  # type: ignore[arg-type]

    session: Any = new_session()  # the stubs know literal names only
    client = session.client(
        service,
        region_name="us-east-1",
        endpoint_url="http://127.0.0.1:9",
        aws_access_key_id="id",
        aws_secret_access_key="secret",
        config=config,
    )
    client.meta.events.register(f"before-send.{service}", answer)
    return client


def _deleted(entry: str) -> Work:
    store = AnsweringStore(entry)
    return lambda: store.delete("bucket", KEYS)


def _queued() -> Work:
    """Return the work of the deleter on keys beside sending them: making batches, and recording their outcome."""
    files = [TableFile(*row) for row in ROWS]

    def work() -> None:
        waiting = WaitingBatches([("chunk", iter(files))])
        while waiting:
            batch = waiting.take(1_000, 0.0)
            batch.deleted(BatchResult(tuple(batch.sizes)))
        list(waiting.finished())

    return work


def _read_first() -> Work:
    """Return the reading of a process's first manifest: nothing is known of its records."""
    data = manifest(1, 1_000, 12, "deflate")

    def work() -> int:
        avro.decoder_of.cache_clear()
        return sum(len(batch) for batch in avro.read_paths(data, "m.avro"))

    return work


def _read() -> Work:
    """Return the reading of a manifest whose records' shapes were learned from many before."""
    avro.decoder_of.cache_clear()
    data = manifest(1, 1_000, 12, "deflate")

    def work() -> int:
        return sum(len(batch) for batch in avro.read_paths(data, "m.avro"))

    for _ in range(40):
        work()
    return work


def _sorted_and_written() -> Work:
    def work() -> None:
        with Sorter() as sorter:
            sorter.extend(reversed(ROWS))
            writer = ChunkWriter(MemoryPlanStore(), "plan", Phase.DATA, chunk_paths=10_000)
            for rows in sorter.batches():
                writer.extend(rows)
            writer.flush()

    return work


def _shuffled() -> Work:
    def work() -> None:
        spread = Spread(4)
        runs = [*spread.add(ROWS, 0), *spread.flush()]
        gathered = ReceivedRuns(runs)
        for part in gathered.parts:
            for _rows in gathered.rows(part, 0):
                pass

    return work


def _digested() -> Work:
    store = MemoryPlanStore()
    writer = ChunkWriter(store, "plan", Phase.DATA, chunk_paths=10_000)
    writer.extend(ROWS)
    writer.flush()

    def work() -> None:
        for _paths in paths_of(store, "plan", writer.chunks):
            pass

    return work


def _chunk_read() -> Work:
    store = MemoryPlanStore()
    writer = ChunkWriter(store, "plan", Phase.DATA, chunk_paths=10_000)
    writer.extend(ROWS)
    writer.flush()
    return lambda: read_chunk(store, "plan", writer.chunks[0])


def accepted(times: int = 3) -> Work:
    """Return an accepted request with a key, for a table without a task: read, stored once and dispatched."""
    worlds: list[tuple[World, dict[str, Any]]] = []
    for _ in range(times):
        world = filled(World(), "orders")
        worlds.append((world, world.body("orders")))

    def work() -> ApiResponse:
        world, body = worlds.pop()
        return world.submit(body, key="key-1")

    return work


def forwarded() -> Work:
    gateway = gateway_over(RecordingUpstream(lambda _request: CatalogAnswer(200, (("ETag", "x"),), b"{}")))
    sent = request("POST", "v1/lake/namespaces/ns/tables/t", b'{"requirements": [], "updates": []}', accept="*/*")
    return lambda: gateway.answer(sent)


def performed() -> Work:
    """Return a commit with a key from event to answer: sent once, and two calls of DynamoDB."""
    made: list[Any] = []

    def without_connection(service: str, config: Any) -> Any:
        made.append(answering(service, b"{}", config=config))
        return made[-1]

    with (
        mock.patch.object(wired, "aws", without_connection),
        mock.patch.dict("os.environ", {"DELEGATION_IDEMPOTENCY_TABLE": "keys"}),
    ):
        mutations = wired.mutations_held_for(12.0)
    metadata = {"format-version": 2, "table-uuid": "u", "snapshots": [{"summary": {"operation": "append"}}] * 10}
    body = json.dumps({"metadata-location": "s3://b/m.json", "metadata": metadata}).encode()
    committed = CatalogAnswer(200, (("Content-Type", "application/json"), ("ETag", "x")), body)
    forwarder = Forwarder(RecordingUpstream(lambda _request: committed), timeout=12)
    patience, lifetime = Patience.within(12), timedelta(minutes=30)
    gateway = Gateway(
        forwarder, _Owner(), keys=CatalogMutations(mutations, forwarder, utc_now, patience, "POLARIS", lifetime)
    )
    change = {"action": "set-properties", "updates": {"n": "1"}}
    event = {
        "httpMethod": "POST",
        "requestContext": {"path": "/api/catalog/v1/lake/namespaces/ns/tables/t"},
        "multiValueHeaders": {"Authorization": ["Bearer x"], "Accept": ["*/*"], "Idempotency-Key": ["key-1"]},
        "body": json.dumps({"requirements": [{"type": "assert-table-uuid", "uuid": "u"}], "updates": [change]}),
    }
    return lambda: answer_event(event, gateway.answer, "/api/catalog")


class _Owner:
    """Takes every request for the owner's; verifying a token costs the same wherever it is done."""

    def caller(self, _request: CatalogRequest) -> GatewayCaller:
        return GatewayCaller("owner")


WORKS: dict[str, Callable[[], Work]] = {
    "1,000 keys deleted": lambda: _deleted(CONFIRMED),
    "1,000 keys deleted in a versioned bucket": lambda: _deleted(
        "<Deleted><Key>{}</Key><DeleteMarker>true</DeleteMarker></Deleted>"
    ),
    "1,000 keys refused": lambda: _deleted("<Error><Key>{}</Key><Code>SlowDown</Code></Error>"),
    "1,000 keys queued and recorded": _queued,
    "1,000 entries read, the first": _read_first,
    "1,000 entries read": _read,
    "1,000 rows sorted and written": _sorted_and_written,
    "1,000 rows of a chunk read": _chunk_read,
    "1,000 paths of a chunk read": _digested,
    "1,000 rows shuffled": _shuffled,
    "1 request accepted": accepted,
    "1 request forwarded": forwarded,
    "1 commit with a key": performed,
}
