"""A catalog that is a server, with its tables in S3: the stand-in over HTTP, or the Polaris that the environment names.

The server and its store keep their own time; only the deployment's clock is moved.
"""

import contextlib
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import boto3
import httpx
from pydantic import SecretStr

from delegation.identifiers import TableIdentifier
from delegation.polaris.credentials import VendedCredentials
from delegation.polaris.model import LoadedTable
from delegation.polaris.requests import ClientCredentials
from delegation.storage.base import ObjectStore
from delegation.storage.credentials import S3Settings
from delegation.storage.s3 import S3ObjectStore
from delegation.timestamps import utc_now
from infra.local.catalog.privileges import Privilege
from tests.contract.polaris.world import TLS, Polaris, PolarisView
from tests.kit.lakes.lake import Lake, rows
from tests.unit.gateway.drop.deployment import CatalogPlace, Counted, Deployment
from tests.unit.gateway.drop.world import PRINCIPALS

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_TOKEN_SECONDS = 1_200
"""Polaris' tokens last an hour."""


@dataclass
class Served:
    """A server with the principals of the matrix, and the store of its catalog."""

    polaris: Polaris
    s3: "S3Client"
    base: str
    credentials: dict[str, tuple[str, str]]
    view: PolarisView
    _token: tuple[float, str] | None = field(default=None, repr=False)

    def token(self) -> str:
        """The token of the caller of the drops."""
        if self._token is None or self._token[0] < time.monotonic():
            made = self.polaris.token(self.credentials["ann"]).raise_for_status().json()["access_token"]
            self._token = (time.monotonic() + _TOKEN_SECONDS, str(made))
        return self._token[1]

    def world(self) -> "ServedWorld":
        """Return a deployment with namespaces of its own."""
        return ServedWorld(self)


@contextlib.contextmanager
def served(polaris: Polaris) -> Iterator[Served]:
    """Make the principals in a server, and remove them afterwards."""
    world = PolarisView(polaris)
    try:
        held = {name: PRINCIPALS[name] for name in ("ann", "service")} | {"confined": {Privilege.NAMESPACE_LIST}}
        for name, privileges in held.items():
            grants = ({"type": "catalog", "privilege": privilege.name} for privilege in privileges)
            world.principal(*grants, suffix=f"_{name}")
        made = {name: _credential(world, f"{world.name}_{name}") for name in held}
        catalog = world.manage("GET", f"catalogs/{polaris.warehouse}").raise_for_status().json()
        endpoint = polaris.s3_endpoint or os.environ.get("POLARIS_S3_ENDPOINT")
        s3 = boto3.client("s3", endpoint_url=endpoint, region_name=os.environ.get("AWS_REGION", "us-east-1"))
        with contextlib.closing(s3):
            yield Served(polaris, s3, catalog["properties"]["default-base-location"].rstrip("/"), made, world)
    finally:
        world.close()


def _credential(world: PolarisView, principal: str) -> tuple[str, str]:
    made = world.manage("POST", f"principals/{principal}/reset", {}).raise_for_status().json()["credentials"]
    return made["clientId"], made["clientSecret"]


class ServedWorld(Deployment):
    """A deployment before a server; `close` removes its namespaces and their files."""

    def __init__(self, server: Served) -> None:
        polaris, name = server.polaris, f"conf_{uuid.uuid4().hex[:12]}"
        site = CatalogPlace(polaris.url, polaris.warehouse, polaris.realm, name, f"{name}_tombstones")
        client_id, secret = server.credentials["service"]
        transport = httpx.HTTPTransport(verify=TLS)
        super().__init__(site, transport, ClientCredentials(client_id, SecretStr(secret)))
        self._server = server
        self._bucket, _, self._prefix = f"{server.base}/{name}/".removeprefix("s3://").partition("/")
        self.tokens = {"ann": server.token()}
        self.namespaces()

    def close(self) -> None:
        for namespace in (self.site.namespace, self.site.hidden):
            for one in self.send("GET", f"namespaces/{namespace}/tables").json()["identifiers"]:
                self.send("DELETE", f"namespaces/{namespace}/tables/{one['name']}")
            self.send("DELETE", f"namespaces/{namespace}")
        for uri in self.data():
            self._server.s3.delete_object(Bucket=self._bucket, Key=uri.removeprefix(f"s3://{self._bucket}/"))
        super().close()

    def confine(self, *in_tombstones: Privilege) -> None:
        client_id, secret = self._server.credentials["confined"]
        self._service = ClientCredentials(client_id, SecretStr(secret))
        self._grant(self.site.namespace, *PRINCIPALS["service"])
        self._grant(self.site.hidden, *in_tombstones)

    def permit(self) -> None:
        self._grant(self.site.hidden, Privilege.TABLE_WRITE_DATA, Privilege.TABLE_DROP)

    def _grant(self, namespace: str, *privileges: Privilege) -> None:
        for privilege in privileges:
            grant = {"type": "namespace", "namespace": [namespace], "privilege": privilege.name}
            self._server.view.grant(grant, suffix="_confined")

    def table(self, name: str = "orders") -> str:
        lake = Lake()
        lake.create(name, location=f"{self._server.base}/{self.site.namespace}/{name}").append(rows(1, 2))
        for (bucket, key), content in lake.objects.items():
            self._server.s3.put_object(Bucket=bucket, Key=key, Body=content)
        self.register(lake.pointers[name], name)
        return str(lake.metadata(name)["table-uuid"])

    def data(self) -> set[str]:
        pages = self._server.s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix)
        return {f"s3://{self._bucket}/{one['Key']}" for page in pages for one in page.get("Contents", [])}

    def files(self, table: LoadedTable) -> ObjectStore:
        counted: Any = Counted(
            self._store(VendedCredentials(lambda: table, clock=utc_now, loaded=table)), "probe", self.faults
        )
        return counted  # type: ignore[no-any-return]

    def purged_files(self, identifier: TableIdentifier) -> ObjectStore:
        return self._store(VendedCredentials(lambda: self.polaris.load_table(identifier), clock=utc_now))

    def _store(self, credentials: VendedCredentials) -> ObjectStore:
        endpoint = self._server.polaris.s3_endpoint
        return S3ObjectStore(credentials, settings=S3Settings(endpoint, "us-east-1") if endpoint else None)
