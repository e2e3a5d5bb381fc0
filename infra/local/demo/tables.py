"""The demo's tables, which pyiceberg writes to the stack's S3, files that no table needs, and a policy."""

import hashlib
import json
import time
import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

import boto3
import httpx
import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, DoubleType, LongType, NestedField, StringType

from delegation.cli.connection import Stack
from delegation.cli.errors import CommandError
from delegation.client.client import DelegationClient
from delegation.identifiers import TableIdentifier
from delegation.polaris.policies import PolicyClient, PolicyIdentifier, PolicyTarget
from delegation.removal.expiry.task_type import TASK_TYPE
from delegation.upkeep.rules.model import PolicyType
from delegation.wire.tasks import TaskRecord
from infra.local.aws.server import OLDER, PATH, REGION

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
        return frozenset(self.sizes(location))

    def sizes(self, location: str) -> dict[str, int]:
        """Return the bytes of all objects below a table's location, by key."""
        where = urlsplit(location)
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=where.netloc, Prefix=f"{where.path.strip('/')}/"
        )
        return {item["Key"]: item["Size"] for page in pages for item in page.get("Contents", ())}


DATA_FILES: Final = 3
"""Data files that the job wrote; it also wrote a manifest and a manifest list."""


class AgesFixed(CommandError):
    """The store is not the stack's own, so its objects cannot be made older."""

    code = "LOCAL_STACK_AGES"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the objects of the stack's S3 cannot be made older: {reason}",
            "Start a stack with an S3 of its own: `delegation local up --versioned`, without --s3-endpoint.",
        )


@dataclass(frozen=True, slots=True)
class PlantedFile:
    """A file that no metadata names: its URI and its size in bytes."""

    uri: str
    size: int


def plant(catalog: RestCatalog, identifier: TableIdentifier) -> Sequence[PlantedFile]:
    """Copy files of a table's current snapshot under the names of a commit that never happened.

    They are copies, so any reader could take them for live ones. A table without a snapshot gets none.
    """
    table = catalog.load_table((*identifier.namespace, identifier.name))
    return [_copied(table, source, target) for source, target in _names(table, str(uuid.uuid4()))]


def _names(table: Table, job: str) -> list[tuple[str, str]]:
    """Return what is copied, and to where, with the names that Iceberg's writers give."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return []
    data = sorted(task.file.file_path for task in table.scan().plan_files())[:DATA_FILES]
    manifest = snapshot.manifests(table.io)[0].manifest_path
    named = [(path, f"{number:05d}-0-{job}.parquet") for number, path in enumerate(data)]
    named += [(manifest, f"{job}-m0.avro"), (snapshot.manifest_list, f"snap-{uuid.uuid4().int >> 65}-0-{job}.avro")]
    return [(source, f"{source.rpartition('/')[0]}/{name}") for source, name in named]


def _copied(table: Table, source: str, target: str) -> PlantedFile:
    with table.io.new_input(source).open() as reading:
        content = reading.read()
    with table.io.new_output(target).create() as writing:
        writing.write(content)
    return PlantedFile(target, len(content))


class RemoteAges:
    """The ages of the objects in a running stack's store, over HTTP."""

    def __init__(self, stack: Stack) -> None:
        self._url = f"{stack.aws_endpoint}{PATH}"

    def check(self) -> None:
        """Raise AgesFixed where they cannot be changed."""
        self._answered("GET")

    def add(self, by: timedelta) -> timedelta:
        """Make all objects older; return by how much the oldest are now; raises AgesFixed."""
        return self._answered("POST", {"seconds": by.total_seconds()})

    def _answered(self, method: str, content: dict[str, float] | None = None) -> timedelta:
        try:
            answer = httpx.request(method, self._url, json=content, timeout=30, trust_env=False)
        except httpx.TransportError as error:
            raise AgesFixed(f"{self._url} cannot be reached: {type(error).__name__}") from error
        if answer.status_code != httpx.codes.OK:
            raise AgesFixed("the stack does not run this store")
        return timedelta(seconds=answer.json()[OLDER])


NAME: Final = "keep-newest"
OPTED_OUT: Final = {"delegation.policy.snapshot-expiry.enable": "false"}
"""The property of a table for which no inherited policy counts."""
_CONTENT: Final = {
    "version": "2025-02-03",
    "enable": True,
    "config": {"max_snapshot_age_days": 0, "min_snapshot_to_keep": 1},
}
_POLL_SECONDS: Final = 0.5
SWEEP_SECONDS: Final = 2.0


def trial_properties(catalog: str) -> dict[str, str]:
    """Return the properties of a trial: passes over a catalog every few seconds, and no least age of snapshots."""
    return {
        "delegation.upkeep.types": "snapshot-expiry",
        "delegation.upkeep.include": catalog,
        "delegation.upkeep.least-age": "0",
        "delegation.upkeep.interval": "5s",
        "delegation.purge.reference-refresh-interval": "5s",
        "delegation.dispatch.grace-duration": "5s",
    }


class PolicyWithoutEffect(CommandError):
    """No pass has started what a policy asks for."""

    code = "LOCAL_STACK_UPKEEP"


class DemoPolicy:
    """A policy of Polaris in a namespace and attached to it, with the caller's own privileges there."""

    def __init__(self, policies: PolicyClient, catalog: str, namespace: str) -> None:
        self.identifier = PolicyIdentifier(catalog, (namespace,), NAME)
        self.target = PolicyTarget(catalog, (namespace,))
        self._policies = policies

    def attach(self) -> None:
        """Create and attach it: the newest snapshot of each table stays, and each that a ref names."""
        self._policies.create(self.identifier, PolicyType.SNAPSHOT_EXPIRY.value, json.dumps(_CONTENT))
        self._policies.attach(self.identifier, self.target)

    def detach(self) -> None:
        self._policies.detach(self.identifier, self.target)


def started_task(
    service: DelegationClient,
    table: TableIdentifier,
    *,
    timeout_seconds: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Return the id of the expiry that a pass started for a table; raises PolicyWithoutEffect if none does in time."""
    deadline = clock() + timeout_seconds
    while clock() < deadline:
        for task in service.list(type=TASK_TYPE, table=str(table)):
            return task.task_id
        sleep(_POLL_SECONDS)
    raise PolicyWithoutEffect(
        f"no pass has started an expiry of {table} within {timeout_seconds:.0f} s", "Read run_inline.log of the stack."
    )


def policy_of(view: TaskRecord) -> str | None:
    """Return the dotted name of the policy that asked for an expiry, None for a caller's."""
    asked = json.loads(view.task_payload)["operation_parameters"].get("policy")
    return None if asked is None else str(asked)
