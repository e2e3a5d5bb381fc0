"""The client of the Delegation Service."""

from delegation.client.client import DelegationClient
from delegation.client.executor import DelegatedTaskExecutor, TaskExecutor, TaskExecutorFactory
from delegation.client.settings import ClientSettings
from delegation.wire.config import ServiceConfig
from delegation.wire.responses import TaskAccepted, TaskSuccessResponse
from delegation.wire.tasks import TaskRecord
