"""A stand-in catalog and real tables in memory, in the process of the deployment."""

from datetime import timedelta
from typing import Any

from pydantic import SecretStr

from delegation.identifiers import TableIdentifier
from delegation.polaris.model import LoadedTable
from delegation.polaris.requests import ClientCredentials
from delegation.storage.memory import MemoryObjectStore
from infra.local.catalog.access import LocalPrincipal
from infra.local.catalog.privileges import Privilege
from infra.local.catalog.server import LocalCatalog
from infra.local.s3.requests import VendedKeys
from tests.kit.lakes.lake import Lake, rows
from tests.unit.gateway.drop.deployment import CatalogPlace, Deployment
from tests.unit.gateway.keys.stand_in import InProcess, MemoryS3, MemorySts, one_broker_key

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
_SITE = CatalogPlace(URL, "lake", REALM, "ns", HIDDEN[0])
_lakes: dict[str, Lake] = {}


class DropWorld(Deployment):
    """One deployment and its catalog."""

    def __init__(self, **properties: str) -> None:
        self.lake = Lake()
        self.keys = VendedKeys()
        credentials = ClientCredentials("service", SecretStr("service"))
        super().__init__(_SITE, InProcess(self._app), credentials, **properties)
        with one_broker_key():
            self.catalog = self._catalog()
        self.tokens = {name: self._token(name) for name in PRINCIPALS}
        self.namespaces()

    def _catalog(self) -> LocalCatalog:
        return LocalCatalog(
            name="lake",
            location="s3://lake/wh",
            s3=MemoryS3(self.lake.objects),  # type: ignore[arg-type]
            sts=MemorySts(),  # type: ignore[arg-type]
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
        return self.catalog(environ, start_response)

    def close(self) -> None:
        """Free the port that the catalog holds."""
        super().close()
        self.catalog.stop()

    def objects(self, denied: tuple[str, ...] = ()) -> MemoryObjectStore:
        store = MemoryObjectStore(denied=denied, clock=lambda: self.clock().timestamp())
        store.objects = self.lake.objects
        return store

    def files(self, table: LoadedTable) -> MemoryObjectStore:
        """A table's files with the credentials that it was loaded with, as the S3 front enforces them."""
        key = self.keys.get(table.credentials[0].access_key_id)
        store = self.objects(denied=() if key is not None and key.writable else ("s3://",))
        store.faults = self.faults
        return store

    def purged_files(self, identifier: TableIdentifier) -> MemoryObjectStore:
        return self.objects()

    def confine(self, *in_tombstones: Privilege, who: str = "service") -> None:
        """See Deployment.confine; also for callers."""
        access, state = self.catalog.access, self.catalog.entities
        for privilege in PRINCIPALS[who] - {P.NAMESPACE_LIST}:
            access.revoke(who, privilege)
            access.grant(who, privilege, state.path(("ns",))[-1])
        for privilege in in_tombstones:
            access.grant(who, privilege, state.path(HIDDEN)[-1])

    def permit(self) -> None:
        for privilege in (P.TABLE_WRITE_DATA, P.TABLE_DROP):
            self.catalog.access.grant("service", privilege, self.catalog.entities.path(HIDDEN)[-1])

    def _token(self, name: str) -> str:
        form = {"grant_type": "client_credentials", "client_id": name, "client_secret": name}
        answer = self.http.post(
            f"{URL}/v1/oauth/tokens", data={**form, "scope": "PRINCIPAL_ROLE:ALL"}, headers={"Polaris-Realm": REALM}
        )
        return str(answer.json()["access_token"])

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

    def dropped(self) -> str:
        """Register a table, drop it, and return its uuid."""
        uuid = self.table()
        assert self.drop().status == 204
        return uuid

    def damage(self) -> None:
        """Damage a manifest of the table, which is only found when its purge is planned."""
        manifest = next(where for where in self.lake.objects if where[1].endswith("-m0.avro"))
        self.lake.objects[manifest] = b"damaged"

    def _made(self, location: str) -> int:
        """How many tables were made at a location, so that another one has other files."""
        bucket, _, path = location.removeprefix("s3://").partition("/")
        below = f"{path}/metadata/00000-"
        return sum(1 for where in self.lake.objects if where[0] == bucket and where[1].startswith(below))

    def data(self) -> set[str]:
        """All objects of the warehouse."""
        return self.lake.below("s3://lake/wh/")
