"""The dispatcher."""

from delegation.orchestration.dispatch import Dispatcher
from delegation.wiring.clients import aws
from delegation.wiring.settings import DispatcherSettings


def dispatcher() -> Dispatcher:
    """Return what starts executions for queue messages."""
    return Dispatcher(aws("stepfunctions"), DispatcherSettings.read().state_machine_arn)
