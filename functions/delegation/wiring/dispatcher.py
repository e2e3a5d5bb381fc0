from collections.abc import Callable
from typing import Final

from delegation.orchestration.dispatch import Admission, Dispatcher, Inbox, announce_nothing
from delegation.wiring.clients import aws
from delegation.wiring.deployment import deployment
from delegation.wiring.settings import DispatcherSettings

_THREADS: Final = 10
"""Tasks admitted at once, as many as a client has connections."""


def dispatcher(admitted: Callable[[str, int, str | None], None] = announce_nothing) -> Inbox:
    """Return what starts executions for queue messages, and admits tasks, of which it informs `admitted`."""
    dispatcher = Dispatcher(aws("stepfunctions"), DispatcherSettings.read().state_machine_arn)
    deployed = deployment()
    admission = Admission(
        deployed.tasks,
        deployed.store,
        deployed.task_types,
        dispatcher.start_execution,
        limits=deployed.tasks.policies.limits,
        threads=_THREADS,
        admitted=admitted,
    )
    return Inbox(dispatcher, admission)
