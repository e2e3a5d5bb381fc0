"""The client of the Delegation Service, which needs only httpx and pydantic (README.md, "From your code")."""

from delegation.client.client import AsyncDelegationClient, DelegationClient
from delegation.client.delegated_purge import DelegatedPurge
from delegation.client.executor import (
    Authorise,
    DelegatedTaskExecutor,
    LocalTaskExecutor,
    TaskExecutor,
    TaskExecutorFactory,
)
from delegation.client.settings import ClientSettings
from delegation.identifiers import TableIdentifier
from delegation.wire.responses import ServiceConfig, TaskAccepted, TaskSuccessResponse
from delegation.wire.tables import PurgeRequest
from delegation.wire.tasks import TaskList, TaskRecord

__all__ = [
    "AsyncDelegationClient",
    "Authorise",
    "ClientSettings",
    "DelegatedPurge",
    "DelegatedTaskExecutor",
    "DelegationClient",
    "LocalTaskExecutor",
    "PurgeRequest",
    "ServiceConfig",
    "TableIdentifier",
    "TaskAccepted",
    "TaskExecutor",
    "TaskExecutorFactory",
    "TaskList",
    "TaskRecord",
    "TaskSuccessResponse",
]
