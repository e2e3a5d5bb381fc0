"""The demo's four Iceberg tables, which pyiceberg writes through the catalog to the stack's S3."""

import hashlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

import boto3
import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, DoubleType, LongType, NestedField, StringType

from delegation.cli.connection import Stack
from infra.local.aws.server import REGION

NAMESPACE: Final = "shop"
INLINE_MAX_FILES: Final = 60
"""The stack's limit during the demo: `orders` has fewer files, `events` more."""
TAG: Final = "end-of-quarter"
_START: Final = date(2026, 7, 1)
_REGIONS: Final = ("emea", "amer", "apac")
_SCHEMA: Final = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "region", StringType(), required=False),
    NestedField(3, "day", DateType(), required=False),
    NestedField(4, "amount", DoubleType(), required=False),
)
_ARROW: Final = pa.schema([("id", pa.int64()), ("region", pa.string()), ("day", pa.date32()), ("amount", pa.float64())])


@dataclass(frozen=True, slots=True)
class Recipe:
    """The size of a table: `appends` snapshots, each with every region on each of `days` days."""

    name: str
    appends: int
    days: int
    rows_per_file: int = 20


@dataclass(frozen=True, slots=True)
class SampleState:
    """What a reader sees of a table: its rows, their checksum, its snapshots; and the objects at its location."""

    rows: int
    snapshots: int
    objects: int
    checksum: str


ORDERS: Final = Recipe("orders", appends=3, days=2)
EVENTS: Final = Recipe("events", appends=4, days=12)
CUSTOMERS: Final = Recipe("customers", appends=2, days=2)
VISITS: Final = Recipe("visits", appends=4, days=2)
RECIPES: Final = (ORDERS, EVENTS, CUSTOMERS)
"""What `delegation local tables` writes; the demo has `visits` too, whose snapshots it expires."""
PATIENCE: Final = {"s3.connect-timeout": "60", "s3.request-timeout": "60"}
"""Seconds for S3, emulated on the same machine: pyarrow stops waiting after 3, which a busy one takes to answer."""


def connect(stack: Stack) -> RestCatalog:
    """Return pyiceberg's catalog, connected as the stack's owner of tables."""
    with warnings.catch_warnings():
        # pyiceberg warns that the token URL will become mandatory, although it is given here.
        warnings.simplefilter("ignore", DeprecationWarning)
        return RestCatalog(
            stack.warehouse,
            **{
                "uri": stack.polaris_url,
                "warehouse": stack.warehouse,
                "credential": stack.polaris_credential.get_secret_value(),
                "scope": stack.polaris_scope,
                "oauth2-server-uri": f"{stack.polaris_url}/v1/oauth/tokens",
                "header.Polaris-Realm": stack.realm,
                **PATIENCE,
            },
        )


def create(
    catalog: RestCatalog,
    recipe: Recipe,
    progress: Callable[[str], None],
    properties: Mapping[str, str] = MappingProxyType({}),
) -> Table:
    """Create a partitioned table with several snapshots, a tag on the first, and a delete that rewrote files."""
    spec = PartitionSpec(
        PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="region"),
        PartitionField(source_id=3, field_id=1001, transform=IdentityTransform(), name="day"),
    )
    table = catalog.create_table((NAMESPACE, recipe.name), _SCHEMA, partition_spec=spec, properties=dict(properties))
    for append in range(recipe.appends):
        table.append(_rows(recipe, append))
        progress(f"snapshot {append + 1} of {recipe.appends + 1}")
        if append == 0:
            tagged = table.current_snapshot()
            if tagged is not None:
                table.manage_snapshots().create_tag(tagged.snapshot_id, TAG).commit()
    # Deletes some rows of one region: pyiceberg rewrites their files (copy on write).
    table.delete(f"region = '{_REGIONS[0]}' AND amount >= 50.0")
    progress(f"snapshot {recipe.appends + 1} of {recipe.appends + 1}")
    refreshed: Table = table.refresh()
    return refreshed


def _rows(recipe: Recipe, append: int) -> pa.Table:
    count = recipe.rows_per_file
    rows = [
        {
            "id": ((append * recipe.days + day) * len(_REGIONS) + place) * count + number,
            "region": region,
            "day": _START + timedelta(days=day),
            "amount": float((number * 7 + place) % 100),
        }
        for day in range(recipe.days)
        for place, region in enumerate(_REGIONS)
        for number in range(count)
    ]
    return pa.Table.from_pylist(rows, schema=_ARROW)


def rows_of(catalog: RestCatalog, name: str, tag: str | None = None) -> list[dict[str, Any]]:
    """Read every row of a table, or of its tag, ordered by id; raises ValueError if it has no such tag."""
    table = catalog.load_table((NAMESPACE, name))
    snapshot_id = None
    if tag is not None:
        tagged = table.snapshot_by_name(tag)
        if tagged is None:
            raise ValueError(f"{name} has no tag {tag}")
        snapshot_id = tagged.snapshot_id
    return sorted(table.scan(snapshot_id=snapshot_id).to_arrow().to_pylist(), key=lambda row: row["id"])


def state_of(catalog: RestCatalog, bucket: "Bucket", name: str) -> SampleState:
    """Read a table and list its location; the checksum is of every row, ordered by id."""
    table = catalog.load_table((NAMESPACE, name))
    rows = rows_of(catalog, name)
    checksum = hashlib.sha256(repr(rows).encode()).hexdigest()[:12]
    return SampleState(len(rows), len(table.snapshots()), len(bucket.keys(table.location())), checksum)


class Bucket:
    """The object store, listed with an administrator's keys."""

    def __init__(self, stack: Stack) -> None:
        self._s3 = boto3.client(
            "s3",
            endpoint_url=stack.s3_endpoint,
            region_name=REGION,
            aws_access_key_id="demo",
            aws_secret_access_key="demo",  # noqa: S106 - no secret
        )

    def keys(self, location: str) -> frozenset[str]:
        """Return the keys of all objects below a table's location."""
        return frozenset(self.sizes(location))

    def sizes(self, location: str) -> dict[str, int]:
        """Return the bytes of all objects below a table's location, by key."""
        where = urlsplit(location)
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=where.netloc, Prefix=f"{where.path.strip('/')}/"
        )
        return {item["Key"]: item["Size"] for page in pages for item in page.get("Contents", ())}
