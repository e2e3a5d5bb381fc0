"""Access to tables: Polaris as the service's principal, and tables' files with the credentials that Polaris vends."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

import httpx

from delegation.identifiers import TableIdentifier
from delegation.polaris.client import PolarisClient
from delegation.polaris.credentials import VendedCredentials
from delegation.polaris.model import LoadedTable
from delegation.polaris.settings import PolarisSettings
from delegation.polaris.transport import RequestRetries, Transport
from delegation.removal.neighbourhood import Catalog
from delegation.storage.s3 import S3ObjectStore, S3Timeouts
from delegation.timestamps import utc_now
from delegation.wiring.clients import aws

_CALLER_WAITS: Final = httpx.Timeout(15, connect=3)
"""For Polaris within API Gateway's 29 s: loading large metadata takes long, but two such calls do not fit."""


def polaris(transport: Transport | None = None) -> PolarisClient:
    """Return a client of Polaris as the service's principal."""
    return PolarisSettings.read().client(aws("secretsmanager"), clock=utc_now, transport=transport)


def synchronous_polaris() -> PolarisClient:
    """Return a client that fails before API Gateway's time-out, so that the caller gets a 502."""
    return polaris(Transport(httpx.Client(timeout=_CALLER_WAITS), backoff=RequestRetries(patience_seconds=5)))


def vended_store(
    catalog: Catalog,
    identifier: TableIdentifier,
    *,
    clock: Callable[[], datetime],
    timeouts: S3Timeouts | None = None,
    loaded: LoadedTable | None = None,
) -> S3ObjectStore:
    """Return a table's files with credentials vended by Polaris, which are renewed before they expire."""
    return vended_table(catalog, identifier, clock=clock, timeouts=timeouts, loaded=loaded)[1]


def vended_table(
    catalog: Catalog,
    identifier: TableIdentifier,
    *,
    clock: Callable[[], datetime],
    timeouts: S3Timeouts | None = None,
    loaded: LoadedTable | None = None,
) -> tuple[VendedCredentials, S3ObjectStore]:
    """Return a table's source and its files; each load of the source also renews the files' credentials."""
    credentials = VendedCredentials(lambda: catalog.load_table(identifier), clock=clock, loaded=loaded)
    return credentials, S3ObjectStore(credentials, timeouts=timeouts)
