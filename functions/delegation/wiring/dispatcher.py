"""The dispatcher: from queue messages to executions."""

from delegation.orchestration.dispatch import Dispatcher
from delegation.wiring.clients import aws
from delegation.wiring.settings import DispatcherSettings


def dispatcher() -> Dispatcher:
    """What turns messages into executions."""
    return Dispatcher(aws("stepfunctions"), DispatcherSettings.read().state_machine_arn)
