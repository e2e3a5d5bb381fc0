"""Drops with purge: the requests that the gateway answers, and the tasks that finish them."""

from datetime import timedelta
from typing import TYPE_CHECKING

from delegation.gateway.drop.behavior import DropBehavior
from delegation.gateway.drop.sequence import TableDrops
from delegation.gateway.drop.service import Tombstones
from delegation.gateway.drop.steps import DropSteps, UpkeepBegun, tombstone_upkeep
from delegation.gateway.drop.store import TombstoneStore, TombstoneTable
from delegation.gateway.drop.tombstones import Tombstone
from delegation.gateway.forwarding import Forwarder
from delegation.metrics import TOMBSTONES_FAILED, TOMBSTONES_STUCK, MetricLines
from delegation.polaris.client import PolarisClient
from delegation.polaris.credentials import VendedCredentials
from delegation.polaris.model import LoadedTable
from delegation.removal.purge.requests import Limits
from delegation.storage.s3 import SYNCHRONOUS_TIMEOUTS, S3ObjectStore
from delegation.tasks.work.behaviors import FunctionBehavior, TaskBehavior
from delegation.tasks.work.service import TaskService
from delegation.timestamps import utc_now
from delegation.wiring.clients import aws
from delegation.wiring.operations import shared_access
from delegation.wiring.settings import DropEnvironment, RequiredTombstoneEnvironment
from delegation.wiring.table_access import synchronous_polaris
from delegation.wiring.tasks import dispatch_queue, task_service
from polaris_common.dynamodb import client_config

if TYPE_CHECKING:
    from delegation.gateway.drop.caller import OwnersTombstones
    from delegation.gateway.routing import CatalogPaths


def required_tombstones(tasks: TaskService, tables: PolarisClient) -> Tombstones:
    """Return the tables that were dropped through the gateway. Raises ValidationError without a tombstone table."""
    table = RequiredTombstoneEnvironment.read().tombstones_table
    store = TombstoneStore(TombstoneTable(aws("dynamodb", client_config())), table)
    return Tombstones(store, tasks, tables, utc_now, count_failed, count_stuck)


def drop_steps(tombstones: Tombstones) -> DropSteps:
    """Return the steps of a drop, with the guards' options of a purge without properties."""
    environment = DropEnvironment.read()
    return DropSteps(tombstones, environment.settings(), Limits.from_properties(environment.properties).base)


def table_drops(forwarder: Forwarder, realm: str) -> TableDrops:
    """Return what answers drops with purge in place of the catalog. Raises ValidationError."""
    tasks = task_service(dispatch_queue())
    steps = drop_steps(required_tombstones(tasks, synchronous_polaris()))
    return TableDrops(
        forward=forwarder.forward,
        files=callers_files,
        steps=steps,
        realm=realm,
        budget=timedelta(seconds=DropEnvironment.read().budget_seconds),
        begin=UpkeepBegun(tasks, tombstone_upkeep(lambda: steps)),
    )


def owners_tombstones(forwarder: Forwarder, realm: str, paths: "CatalogPaths") -> "OwnersTombstones":
    """Return what answers callers about the tables that they dropped. Raises ValidationError."""
    from delegation.gateway.drop.caller import OwnersTombstones  # noqa: PLC0415 - the gateway alone has them

    tombstones = required_tombstones(task_service(dispatch_queue()), synchronous_polaris())
    return OwnersTombstones(lambda: tombstones, forwarder.forward, realm, paths)


def callers_files(table: LoadedTable) -> S3ObjectStore:
    """Return a table's files with the credentials that it was loaded with, which are used once."""
    return S3ObjectStore(VendedCredentials(lambda: table, clock=utc_now, loaded=table), timeouts=SYNCHRONOUS_TIMEOUTS)


def drop_behavior(tasks: TaskService) -> DropBehavior:
    """Return the behavior of drops. Raises ValidationError without a tombstone table."""
    purges, tables = shared_access(tasks)
    return DropBehavior(purges, required_tombstones(tasks, tables))


def drop_behaviors(tasks: TaskService) -> list[TaskBehavior]:
    """Return the behaviors of drops and of their upkeep. Raises as drop_behavior."""
    drops = drop_behavior(tasks)
    upkeep = tombstone_upkeep(lambda: drop_steps(drops.tombstones))
    return [drops, FunctionBehavior(tasks, upkeep)]


def count_failed(record: Tombstone) -> None:
    """Print the metric of a failed tombstone; only the process whose write notes the failure calls this."""
    MetricLines.of_environment().put(
        {TOMBSTONES_FAILED: 1}, tombstone_id=record.tombstone_id, task_id=record.task_id or ""
    )


def count_stuck(number: int) -> None:
    """Print the metric of tombstones that the recurring task could not settle; each of its runs calls this."""
    MetricLines.of_environment().put({TOMBSTONES_STUCK: number})
