"""Opens the persistence in each process of a Spark job: no client and no credential is sent to executors."""

from dataclasses import dataclass
from functools import cache
from typing import Protocol

import boto3

from polaris_common.dynamodb import client_config
from polaris_common.spark_workers import forget_archives
from polaris_persistence.backends.dynamodb import TIMEOUTS, Calls, DynamoDbBackend
from polaris_persistence.catalogs.process import PersistenceProcess


class ExecutorStores(Protocol):
    """Opens the persistence of the calling process; sent to executors, pickled."""

    def open(self) -> PersistenceProcess:
        """Return the persistence of this process, the same one in every call."""


@dataclass(frozen=True, slots=True)
class DynamoDbStores:
    """Opens the two DynamoDB tables with the credentials of the executor's environment."""

    objects: str
    references: str
    endpoint: str | None = None

    def open(self) -> PersistenceProcess:
        # Each function that executors run opens the persistence first.
        forget_archives()
        return _opened(self)


@cache
def _opened(stores: DynamoDbStores) -> PersistenceProcess:
    client = boto3.client("dynamodb", endpoint_url=stores.endpoint, config=client_config(**TIMEOUTS))
    backend = DynamoDbBackend(Calls(client), objects=stores.objects, references=stores.references)
    return PersistenceProcess(backend)
