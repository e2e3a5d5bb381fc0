"""A stand-in catalog, real tables in memory, the service and the gateway's drops in one process; waits move the clock.

Every request to the catalog and every call of a store counts in `faults`, so that a test kills the process at each.
"""

import io
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any
from unittest.mock import patch
from urllib.parse import quote

import httpx
from botocore.exceptions import ClientError
from cryptography.hazmat.primitives.asymmetric import rsa
from pydantic import SecretStr

from delegation.gateway.app import PurgingDrops
from delegation.gateway.callers import GatewayCaller
from delegation.gateway.drop.behavior import DropBehavior
from delegation.gateway.drop.errors import DropError
from delegation.gateway.drop.sequence import TableDrops
from delegation.gateway.drop.service import Tombstones
from delegation.gateway.drop.settings import DropSettings
from delegation.gateway.drop.steps import DropSteps
from delegation.gateway.drop.store import MemoryTombstoneStore
from delegation.gateway.drop.tombstones import Tombstone
from delegation.gateway.drop.upkeep import UpkeepBegun, UpkeepReport, look_after_all, tombstone_upkeep
from delegation.gateway.errors import CatalogOutcomeUnknown
from delegation.gateway.messages import CatalogAnswer, CatalogRequest
from delegation.identifiers import TableIdentifier
from delegation.operations.purge.behavior.kinds import DROP_KIND
from delegation.operations.purge.behavior.limits import Limits
from delegation.operations.purge.behavior.run import PurgeBehavior
from delegation.operations.purge.estimate import PurgeSettings
from delegation.polaris.client import PolarisClient
from delegation.polaris.model import LoadedTable
from delegation.polaris.tokens import ClientCredentials, OAuth2TokenSource
from delegation.polaris.transport import RequestRetries, Transport
from delegation.storage.memory import Faults, MemoryObjectStore, MemoryPlanStore
from delegation.tasks.life.lease import Lease
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.policy import Policies
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.tasks.work.dispatch_queue import NoDispatchQueue
from delegation.tasks.work.parts.hooks import TaskHooks
from delegation.tasks.work.service import TaskService
from delegation.timestamps import utc_now
from delegation.wiring.types import TYPES
from infra.local.catalog.principals.access import LocalPrincipal
from infra.local.catalog.principals.privileges import Privilege
from infra.local.catalog.server import LocalCatalog
from infra.local.s3.vended_keys import VendedKeys
from tests.unit.operations.purge.lake import FAST, Lake, rows
from tests.unit.tasks.builders import Clock

REALM = "POLARIS"
URL = "http://catalog/api/catalog"
HIDDEN = ("delegation_tombstones",)
ORDERS = TableIdentifier("lake", ("ns",), "orders")
P = Privilege
PRINCIPALS = {
    "service": {P.TABLE_WRITE_DATA, P.TABLE_DROP, P.TABLE_CREATE, P.NAMESPACE_LIST},
    "ann": {P.CATALOG_MANAGE_CONTENT},
    "dropper": {P.TABLE_DROP, P.TABLE_READ_DATA, P.TABLE_READ_PROPERTIES, P.TABLE_CREATE},
    "reader": {P.TABLE_READ_DATA, P.TABLE_READ_PROPERTIES},
}
_lakes: dict[str, Lake] = {}
_numbers = itertools.count()
_make_key = rsa.generate_private_key


@cache
def _one_key(public_exponent: int, key_size: int) -> rsa.RSAPrivateKey:
    """The key of every catalog's tokens: to make one takes longer than a drop."""
    return _make_key(public_exponent, key_size)


class ObjectsAsS3:
    """The calls of an S3 client that the catalog makes, over objects in memory."""

    def __init__(self, objects: dict[tuple[str, str], bytes]) -> None:
        self._objects = objects

    def get_object(self, Bucket: str, Key: str) -> dict[str, Any]:
        if (Bucket, Key) not in self._objects:
            raise ClientError({"Error": {"Code": "NoSuchKey", "Message": Key}}, "GetObject")
        return {"Body": io.BytesIO(self._objects[Bucket, Key])}

    def put_object(self, Bucket: str, Key: str, Body: bytes, **_more: Any) -> None:
        self._objects[Bucket, Key] = Body

    def delete_object(self, Bucket: str, Key: str) -> None:
        self._objects.pop((Bucket, Key), None)


class CountingSts:
    """Issues a new key at each call."""

    def assume_role(self, **_arguments: Any) -> dict[str, Any]:
        number = next(_numbers)
        return {
            "Credentials": {
                "AccessKeyId": f"KEY{number}",
                "SecretAccessKey": f"secret-{number}",
                "SessionToken": f"token-{number}",
            }
        }


class Counted:
    """A store whose calls count in `faults`."""

    def __init__(self, store: Any, name: str, faults: Faults) -> None:
        self._store = store
        self._name = name
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not callable(method):
            return method

        def counted(*arguments: Any, **named: Any) -> Any:
            with self._faults.call(f"{self._name} {name}"):
                return method(*arguments, **named)

        return counted


class CountedRequests(httpx.WSGITransport):
    """Requests to the catalog; `lose` says which request or answer is lost, `fake` has answers of another catalog."""

    faults: Faults
    lose: Callable[[httpx.Request], str | None]
    fake: Mapping[str, tuple[int, str, str]]

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if "target" in request.extensions:  # the gateway's requests have it instead of a URL's path
            request.url = request.url.copy_with(raw_path=request.extensions["target"])
        name = f"{request.method} {request.url.path}"
        with self.faults.call(name):
            fate = self.lose(request)
            if name in self.fake:
                status, kind, message = self.fake[name]
                body = {"error": {"message": message, "type": kind, "code": status}} if kind else None
                return httpx.Response(status, json=body)
            if fate == "request":
                raise httpx.ReadTimeout("no answer", request=request)
            if fate == "503 instead":
                return httpx.Response(503)
            request.headers["X-Raw-Path"] = request.url.raw_path.decode()
            answer = super().handle_request(request)
            if fate == "500 after":
                return httpx.Response(500)
            if fate == "answer":
                raise httpx.ReadTimeout("no answer", request=request)
            return answer


@dataclass
class Answered:
    """A drop's answer: its status, what it says of the tombstone, and the error's code if it is one."""

    status: int
    code: str | None = None
    text: str = ""
    tombstone: str | None = None
    state: str | None = None
    purge_after: str | None = None


class DropWorld:
    """One deployment. `restart` forgets what processes know; what is stored remains."""

    def __init__(self, **properties: str) -> None:
        self.clock = Clock(utc_now())  # a catalog refuses commits to tables with snapshots from its future
        self.faults = Faults()
        self.lake = Lake()
        self.keys = VendedKeys()
        with patch.object(rsa, "generate_private_key", _one_key):
            self.catalog = self._catalog()
        self.requests = CountedRequests(app=self._app)
        self.requests.lose, self.requests.fake = lambda _request: None, {}
        self.http = httpx.Client(transport=self.requests)
        self.records = MemoryTombstoneStore()
        self.task_store = MemoryTaskStore()
        self.plans = MemoryPlanStore()
        self.failed: list[Tombstone] = []
        self.stuck: list[int] = []
        self.properties = {f"delegation.drop.{name.replace('_', '-')}": value for name, value in properties.items()}
        self.restart()
        self.tokens = {name: self._token(name) for name in PRINCIPALS}
        for namespace in (("ns",), HIDDEN):
            self.send("POST", "namespaces", {"namespace": list(namespace), "properties": {}})

    def _catalog(self) -> LocalCatalog:
        return LocalCatalog(
            name="lake",
            location="s3://lake/wh",
            s3=ObjectsAsS3(self.lake.objects),  # type: ignore[arg-type]
            sts=CountingSts(),  # type: ignore[arg-type]
            keys=self.keys,
            s3_endpoint="http://s3",
            region="us-east-1",
            principals=[
                LocalPrincipal(name, name, SecretStr(name), frozenset(held)) for name, held in PRINCIPALS.items()
            ],
            root=SecretStr("root"),
            token_lifetime=timedelta(days=365),
            clock=self.clock,
        )

    def _app(self, environ: Any, start_response: Any) -> Any:
        """Answer as the catalog does, which reads the encoded path as its server passes it on."""
        environ["REQUEST_URI"] = environ["HTTP_X_RAW_PATH"]
        return self.catalog(environ, start_response)

    def close(self) -> None:
        """Free the port that the catalog holds."""
        self.http.close()
        self.catalog.stop()

    def restart(self, faults: Faults | None = None, options: Mapping[str, str] | None = None) -> None:
        """Begin new processes, which are killed as `faults` says."""
        self.faults = faults or Faults()
        self.requests.faults = self.faults
        transport = Transport(self.http, backoff=RequestRetries(attempts=1))
        token = OAuth2TokenSource(
            f"{URL}/v1/oauth/tokens",
            lambda: ClientCredentials("service", SecretStr("service")),
            clock=self.clock,
            realm=REALM,
            transport=transport,
        )
        self.polaris = PolarisClient(URL, token, realm=REALM, transport=transport)
        self.tasks = TaskService(
            Counted(self.task_store, "task", self.faults),
            Policies.from_properties({"delegation.retry.default.max-attempts": "5"}),
            NoDispatchQueue(),
            clock=self.clock,
            hooks=TaskHooks(types=TYPES),
        )
        store = Counted(self.records, "tombstone", self.faults)
        self.tombstones = Tombstones(store, self.tasks, self.polaris, self.clock, self.failed.append, self.stuck.append)
        limits = Limits.from_properties(options or {})
        self.settings = DropSettings.from_properties(self.properties)
        self.steps = DropSteps(self.tombstones, self.settings, limits.base, self.sleep)
        self.purge = PurgeBehavior(
            tasks=self.tasks,
            catalog=self.polaris,
            store_of=lambda _identifier: self.objects(),
            plans=self.plans,
            settings=PurgeSettings(chunk_paths=4, run_records=5, read_threads=1, delete=FAST),
            monotonic=self.seconds,
            sleep=self.sleep,
            limits=limits,
        )
        self.behavior = DropBehavior(self.purge, self.tombstones)
        upkeep = UpkeepBegun(self.tasks, tombstone_upkeep(lambda: self.steps))
        self.drops: PurgingDrops = TableDrops(
            self.forward, self.files, self.steps, REALM, timedelta(seconds=25), upkeep
        )

    def objects(self, denied: tuple[str, ...] = ()) -> MemoryObjectStore:
        store = MemoryObjectStore(denied=denied)
        store.objects = self.lake.objects
        return store

    def files(self, table: LoadedTable) -> MemoryObjectStore:
        """A table's files with the credentials that it was loaded with, as the S3 front enforces them."""
        key = self.keys.find(table.credentials[0].access_key_id)
        store = self.objects(denied=() if key is not None and key.writable else ("s3://",))
        store.faults = self.faults
        return store

    def seconds(self) -> float:
        return self.clock.now.timestamp()

    def sleep(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))
        self.on_sleep()

    def on_sleep(self) -> None:
        """What happens while a process waits."""

    # The catalog

    def _token(self, name: str) -> str:
        form = {"grant_type": "client_credentials", "client_id": name, "client_secret": name}
        answer = self.http.post(
            f"{URL}/v1/oauth/tokens", data={**form, "scope": "PRINCIPAL_ROLE:ALL"}, headers={"Polaris-Realm": REALM}
        )
        return str(answer.json()["access_token"])

    def send(self, method: str, path: str, body: Any = None, *, who: str = "ann") -> httpx.Response:
        """Send a request to the catalog that no test kills; raises for an answer that is no success."""
        self.requests.faults, faults = Faults(), self.requests.faults
        headers = {"Authorization": f"Bearer {self.tokens[who]}", "Polaris-Realm": REALM}
        answer = self.http.request(method, f"{URL}/v1/lake/{path}", json=body, headers=headers)
        self.requests.faults = faults
        return answer.raise_for_status()

    def forward(self, request: CatalogRequest) -> CatalogAnswer:
        """Forward a request as the gateway does."""
        query = f"?{request.query}" if request.query else ""
        try:
            answer = self.http.request(
                request.method, f"{URL}/{request.path}{query}", headers=list(request.headers), content=request.body
            )
        except httpx.TransportError as error:
            raise CatalogOutcomeUnknown("no answer") from error
        return CatalogAnswer(answer.status_code, tuple(answer.headers.multi_items()), answer.content)

    def table(self, name: str = "orders", *, at: str | None = None, **properties: str) -> str:
        """Register a table with two data files at its namespace's location, and return its uuid."""
        location = at or f"s3://lake/wh/ns/{name}"
        key = f"{location} {sorted(properties.items())} {self._made(location)}"
        if key not in _lakes:
            _lakes[key] = lake = Lake()
            lake.create(name, location=location, **properties).append(rows(1, 2))
        made = _lakes[key]
        self.lake.objects.update(made.objects)
        self.register(made.pointers[name], name)
        return str(made.metadata(name)["table-uuid"])

    def _made(self, location: str) -> int:
        """How many tables were made at a location, so that another one has other files."""
        bucket, _, path = location.removeprefix("s3://").partition("/")
        below = f"{path}/metadata/00000-"
        return sum(1 for where in self.lake.objects if where[0] == bucket and where[1].startswith(below))

    def register(self, metadata_location: str, name: str, namespace: tuple[str, ...] = ("ns",)) -> None:
        body = {"name": name, "metadata-location": metadata_location}
        self.send("POST", f"namespaces/{'%1F'.join(namespace)}/register", body)

    def rename(self, name: str, namespace: tuple[str, ...], to: str) -> None:
        """Rename a table of the namespace `ns`."""
        ends = {"source": {"namespace": ["ns"], "name": name}, "destination": {"namespace": namespace, "name": to}}
        self.send("POST", "tables/rename", ends)

    def uuid(self, name: str = "orders", namespace: tuple[str, ...] = ("ns",)) -> str | None:
        """The uuid of the table that has a name, None without one."""
        try:
            return str(
                self.send("GET", f"namespaces/{'%1F'.join(namespace)}/tables/{name}").json()["metadata"]["table-uuid"]
            )
        except httpx.HTTPStatusError:
            return None

    def hidden(self) -> list[str]:
        """The names in the tombstone namespace."""
        found = self.send("GET", f"namespaces/{HIDDEN[0]}/tables").json()["identifiers"]
        return [one["name"] for one in found]

    def data(self) -> set[str]:
        """All objects of the warehouse."""
        return self.lake.below("s3://lake/wh/")

    # The gateway and the service

    def drop(
        self,
        name: str = "orders",
        *,
        who: str = "ann",
        mode: str | None = None,
        roles: str = "",
        key: str | None = None,
        uuid: str | None = None,
        realms: tuple[str, ...] = (REALM,),
        principal: str | None = "",
        query: str = "purgeRequested=true",
    ) -> Answered:
        """Send DELETE with purge through the gateway."""
        headers = [
            ("authorization", f"Bearer {self.tokens[who]}"),
            *(("polaris-realm", realm) for realm in realms),
            *([("x-delegation-drop-mode", mode)] if mode else []),
            *([("idempotency-key", key)] if key else []),
            *([("x-delegation-table-uuid", uuid)] if uuid else []),
        ]
        path = f"v1/lake/namespaces/ns/tables/{quote(name, safe='')}"
        request = CatalogRequest("DELETE", path, query, tuple(headers))
        verified = who if principal == "" else principal
        caller = GatewayCaller(verified, headers[0][1], next(iter(realms), None), frozenset(filter(None, [roles])))
        try:
            answer = self.drops.drop(request, caller, TableIdentifier("lake", ("ns",), name))
        except DropError as error:
            return Answered(error.status, error.code, str(error))
        body = json.loads(answer.body or "{}")
        error = body.get("error", {})
        headers = [answer.header(f"X-Delegation-{name}") for name in ("Tombstone", "Tombstone-State", "Purge-After")]
        return Answered(answer.status, error.get("type"), error.get("message", ""), *headers)

    def record(self) -> Tombstone:
        """The newest record."""
        return self.records.newest(1).tombstones[0]

    def all_tasks(self) -> Iterator[Task]:
        for entry in self.task_store.heads(cursor=None, limit=100).entries:
            assert isinstance(entry, Task)
            yield entry

    def drop_tasks(self) -> list[Task]:
        return [task for task in self.all_tasks() if task.task_type == DROP_KIND]

    def work(self, rounds: int = 6) -> None:
        """Run all tasks of drops that are due, each attempt again after a failure."""
        for _ in range(rounds):
            self.run_due()
            self.clock.advance(timedelta(hours=1))

    def run_due(self) -> None:
        """Run the tasks of drops that are due now."""
        for task in self.drop_tasks():
            self.attempt(task)

    def attempt(self, task: Task) -> Task:
        """Make one attempt at a task if it is due."""
        if task.is_terminal:
            return task
        owner = f"worker-{next(_numbers)}"
        held = self.tasks.leases.acquire(task.task_id, owner, lambda now: Lease.lasting(timedelta(minutes=10), now))
        if held.lease_owner != owner or held.status is Status.SUCCESS:
            return held
        engine = self.behavior.prepare(held)
        return self.tasks.reads.get(task.task_id) if engine is None else self.behavior.run(held, hand_over_at=None)

    def upkeep(self) -> UpkeepReport:
        """Run the recurring task once."""
        return look_after_all(self.steps, lambda: None)

    def settle(self) -> None:
        """Let hours pass, in which the recurring task and the purges run until nothing is left to do."""
        for _ in range(4):
            self.clock.advance(timedelta(minutes=20))
            self.upkeep()
            self.work(rounds=1)
