"""The stand-in catalog, the S3 front and moto in this process, for tests with pyiceberg and our Polaris client."""

import warnings
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pyarrow as pa
from botocore.config import Config
from pydantic import SecretStr
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from delegation.identifiers import TableIdentifier
from delegation.polaris.client import PolarisClient
from delegation.polaris.requests import ClientCredentials, OAuth2TokenSource
from delegation.storage.credentials import S3Credential
from infra.local.aws.moto_app import application
from infra.local.catalog.access import LocalPrincipal
from infra.local.catalog.privileges import OWNER, READER, SERVICE
from infra.local.catalog.server import LocalCatalog
from infra.local.catalog.state import CatalogState
from infra.local.processes.programs import WsgiServer
from infra.local.s3.front import S3Front
from infra.local.s3.requests import VendedKeys

BUCKET = "warehouse"
REGION = "eu-west-1"
REALM = "POLARIS"
SCOPE = "PRINCIPAL_ROLE:ALL"
PRINCIPALS = tuple(
    LocalPrincipal(name, f"{name}-id", SecretStr(f"{name}-secret"), privileges)
    for name, privileges in (("owner", OWNER), ("service", SERVICE), ("reader", READER))
)
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False), NestedField(2, "region", StringType(), required=False)
)
BY_REGION = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="region"))


class ShiftedClock:
    """The machine's time, or one that is ahead of it."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


class Stack:
    """moto, the S3 front and the catalog, with one registry of vended keys."""

    def __init__(self, state: CatalogState | None = None) -> None:
        self.clock = ShiftedClock()
        self.keys = VendedKeys()
        self.moto = WsgiServer(application()).start()
        self.front = S3Front(self.moto.url, self.keys, clock=self.clock).start()
        self.admin = self.s3("admin", "admin", None)
        self.catalog = LocalCatalog(
            name="lake",
            location=f"s3://{BUCKET}/tables",
            s3=boto3.client("s3", **self._aws(self.moto.url)),
            sts=boto3.client("sts", **self._aws(self.moto.url)),
            keys=self.keys,
            s3_endpoint=self.front.url,
            region=REGION,
            principals=PRINCIPALS,
            root=SecretStr("root-secret"),
            realm=REALM,
            allowed_locations=["s3://warehouse/elsewhere"],
            clock=self.clock,
            state=state,
        ).start()

    def allow(self, *flags: str) -> None:
        """Set flags of the catalog for the rest of the test, by default none."""
        self.catalog.warehouse.replace_properties(dict.fromkeys(flags, "true"))

    def _aws(self, endpoint: str) -> dict[str, Any]:
        return {
            "endpoint_url": endpoint,
            "region_name": REGION,
            "aws_access_key_id": "admin",
            "aws_secret_access_key": "admin",
        }

    def s3(self, key_id: str, secret: str, token: str | None) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.front.url,
            region_name=REGION,
            aws_access_key_id=key_id,
            aws_secret_access_key=secret,
            aws_session_token=token,
            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}),
        )

    def s3_as(self, credential: S3Credential) -> Any:
        return self.s3(credential.access_key_id, credential.secret_access_key, credential.session_token)

    def stop(self) -> None:
        self.catalog.stop()
        self.front.stop()
        self.moto.stop()


def running(state: CatalogState | None = None) -> Iterator[Stack]:
    """Yield a stack for the tests of a module."""
    stack = Stack(state)
    yield stack
    stack.stop()


def emptied(stack: Stack) -> Iterator[None]:
    """Create the bucket for one test, and delete tables and objects afterwards."""
    stack.admin.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
    yield
    stack.clock.ahead = timedelta()
    stack.allow()
    owner = connect(stack, "owner")
    for namespace in owner.list_namespaces():
        for table in owner.list_tables(namespace):
            owner.drop_table(table)
        owner.drop_namespace(namespace)
    for key in objects(stack):
        stack.admin.delete_object(Bucket=BUCKET, Key=key)
    stack.admin.delete_bucket(Bucket=BUCKET)


def connect(stack: Stack, who: str) -> RestCatalog:
    with warnings.catch_warnings():
        # pyiceberg warns that `oauth2-server-uri` will become mandatory, although it is given here.
        warnings.simplefilter("ignore", DeprecationWarning)
        return RestCatalog(
            "lake",
            uri=stack.catalog.url,
            warehouse="lake",
            credential=f"{who}-id:{who}-secret",
            scope=SCOPE,
            **{"oauth2-server-uri": f"{stack.catalog.url}/v1/oauth/tokens"},
        )


def polaris(stack: Stack, who: str = "service", realm: str | None = REALM) -> PolarisClient:
    tokens = OAuth2TokenSource(
        f"{stack.catalog.url}/v1/oauth/tokens",
        lambda: ClientCredentials(f"{who}-id", SecretStr(f"{who}-secret")),
        clock=stack.clock,
        realm=realm,
    )
    return PolarisClient(stack.catalog.url, tokens, realm=realm)


def objects(stack: Stack, prefix: str = "") -> list[str]:
    pages = stack.admin.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
    return [entry["Key"] for page in pages for entry in page.get("Contents", [])]


def rows(*pairs: tuple[int, str]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": number, "region": region} for number, region in pairs], schema=SCHEMA.as_arrow()
    )


ORDERS = TableIdentifier("lake", ("sales",), "orders")


def orders(stack: Stack, **properties: str) -> Table:
    owner = connect(stack, "owner")
    owner.create_namespace_if_not_exists("sales")
    return owner.create_table(("sales", "orders"), SCHEMA, partition_spec=BY_REGION, properties=properties)


def filled_orders(stack: Stack) -> Table:
    table = orders(stack)
    table.append(rows((1, "eu"), (2, "us")))
    table.append(rows((3, "eu"), (4, "us")))
    table.delete("id = 3")
    return table
