"""The behavior of purges."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

import httpx

from delegation.identifiers import TableIdentifier
from delegation.operations.purge.behavior.limits import policies_of
from delegation.operations.purge.behavior.run import PurgeBehavior
from delegation.operations.purge.context import PurgeSettings
from delegation.operations.purge.planning.catalog import Catalog
from delegation.polaris.client import PolarisClient
from delegation.polaris.credentials import VendedCredentials
from delegation.polaris.settings import PolarisSettings
from delegation.polaris.transport import RequestRetries, Transport
from delegation.storage.s3 import WHILE_A_CALLER_WAITS, Patience, S3ObjectStore
from delegation.storage.s3_plans import S3PlanStore
from delegation.tasks.work.service import TaskService
from delegation.timestamps import utc_now
from delegation.wiring.clients import PATIENT, aws
from delegation.wiring.settings import PurgeEnvironment

_CALLER_WAITS: Final = httpx.Timeout(15, connect=3)
"""For Polaris within API Gateway's 29 s: large metadata takes long, but two such answers do not fit."""


def polaris(transport: Transport | None = None) -> PolarisClient:
    """Return a client of Polaris as the service's principal."""
    return PolarisSettings.read().client(aws("secretsmanager"), clock=utc_now, transport=transport)


def polaris_for_a_caller() -> PolarisClient:
    """Return a client that fails before API Gateway's time-out, so that the caller gets a 502."""
    return polaris(Transport(httpx.Client(timeout=_CALLER_WAITS), backoff=RequestRetries(patience_seconds=5)))


def purge_behavior(tasks: TaskService, tables: PolarisClient, patience: Patience | None = None) -> PurgeBehavior:
    """Return the behavior; `patience` bounds the calls to S3, by default for a background run."""
    settings = PurgeEnvironment.read()
    return PurgeBehavior(
        tasks=tasks,
        catalog=tables,
        store_of=lambda identifier: vended_store(tables, identifier, clock=utc_now, patience=patience),
        plans=S3PlanStore(aws("s3", patience.config() if patience else PATIENT), settings.plan_bucket),
        settings=PurgeSettings(inline_max_files=settings.inline_max_files),
        limits=policies_of(settings.properties)[1],
    )


def purge_for_a_caller(tasks: TaskService, tables: PolarisClient) -> PurgeBehavior:
    """Return the behavior with short S3 time-outs, so that the caller gets an answer in time."""
    return purge_behavior(tasks, tables, WHILE_A_CALLER_WAITS)


def vended_store(
    catalog: Catalog, identifier: TableIdentifier, *, clock: Callable[[], datetime], patience: Patience | None = None
) -> S3ObjectStore:
    """Return a table's files with credentials vended by Polaris, which are renewed before they expire."""
    return S3ObjectStore(VendedCredentials(lambda: catalog.load_table(identifier), clock=clock), patience=patience)
