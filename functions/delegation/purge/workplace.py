"""Where the worker processes of an engine get their stores from: built anew in each process, never sent to one.

A workplace travels to executors as a value without secrets; what it opens there (clients, vended credentials) stays
there.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from delegation.polaris.client import PolarisClient
from delegation.polaris.credentials import VendedCredentials
from delegation.polaris.model import S3Settings, TableIdentifier
from delegation.polaris.settings import PolarisSettings
from delegation.purge.aws import new_session, s3_client
from delegation.purge.catalog import Catalog
from delegation.purge.context import utc_now
from delegation.purge.objectstore import ObjectStore, PlanStore
from delegation.purge.s3 import Patience, S3ObjectStore, S3PlanStore


class Workplace(Protocol):
    """Picklable and hashable; each method builds something for the process it is called in, once."""

    def __hash__(self) -> int: ...

    def store(self, identifier: TableIdentifier) -> ObjectStore:
        """Reach a table's files."""
        ...

    def plans(self) -> PlanStore:
        """Reach the service's own bucket."""
        ...

    def checkpoint(self, task_id: str, attempt: int) -> Callable[[], None]:
        """Whether an attempt may go on: what it gives is called before each batch, and is cheap.

        Both raise LeaseLost, Cancelled or HandOver when no other batch may begin.
        """
        ...


def go_on() -> None:
    """The checkpoint of work that nobody else can take over."""


class PlanSettings(BaseSettings):
    """`bucket` holds plans and receipts; only the service's own role reaches it."""

    model_config = SettingsConfigDict(frozen=True, env_ignore_empty=True, populate_by_name=True)

    bucket: str = Field(alias="DELEGATION_PLAN_BUCKET", min_length=3)


@dataclass(frozen=True, slots=True)
class ServiceWorkplace:
    """The deployed service's stores: from the environment, tables loaded as the service's own principal.

    A Workplace once it is given a checkpoint by who knows tasks (`delegation.wiring.JobWorkplace`).
    """

    def store(self, identifier: TableIdentifier) -> ObjectStore:
        return vended_store(service_polaris(), identifier, clock=utc_now)

    def plans(self) -> PlanStore:
        return service_plans()


@dataclass(frozen=True, slots=True)
class OwnWorkplace:
    """An operator's process: its own credentials for the tables' files and for the plans, as boto3 finds them.

    `plans_prefix` is put before every plan's key.
    """

    plans_bucket: str
    plans_prefix: str = ""
    settings: S3Settings = field(default_factory=S3Settings)

    def store(self, identifier: TableIdentifier) -> ObjectStore:
        del identifier
        return S3ObjectStore(settings=self.settings)

    def plans(self) -> PlanStore:
        return S3PlanStore(s3_client(self.settings), self.plans_bucket, self.plans_prefix)

    def checkpoint(self, task_id: str, attempt: int) -> Callable[[], None]:
        del task_id, attempt
        return go_on


@functools.cache
def service_polaris() -> PolarisClient:
    """One client per process, with settings and secret of the environment; raises pydantic's ValidationError."""
    return PolarisSettings().client(new_session().client("secretsmanager"))


@functools.cache
def service_plans() -> S3PlanStore:
    """The plan bucket named by the environment; raises pydantic's ValidationError."""
    return S3PlanStore(new_session().client("s3"), PlanSettings().bucket)


def vended_store(
    catalog: Catalog, identifier: TableIdentifier, *, clock: Callable[[], datetime], patience: Patience | None = None
) -> S3ObjectStore:
    """A table's files with the credentials that Polaris vends for it, loaded again before they expire."""
    return S3ObjectStore(VendedCredentials(lambda: catalog.load_table(identifier), clock=clock), patience=patience)
