"""What a caller of the delegation service installs."""

from delegation.client.client import DelegationClient
from delegation.client.executor import DelegatedTaskExecutor, TaskExecutor, TaskExecutorFactory
from delegation.client.model import ServiceConfig, TaskAccepted, TaskOutcome, TaskView
from delegation.client.settings import ClientSettings

__all__ = [
    "ClientSettings",
    "DelegatedTaskExecutor",
    "DelegationClient",
    "ServiceConfig",
    "TaskAccepted",
    "TaskExecutor",
    "TaskExecutorFactory",
    "TaskOutcome",
    "TaskView",
]
