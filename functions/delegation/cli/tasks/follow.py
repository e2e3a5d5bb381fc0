"""Following a task until it has an outcome."""

from delegation.cli.errors import CommandInterrupted, TaskDidNotSucceed, TaskNotDone
from delegation.cli.output import Output
from delegation.client.client import DelegationClient
from delegation.wire.tasks import TaskRecord


def watch(
    output: Output,
    client: DelegationClient,
    task_id: str,
    *,
    interval_seconds: float = 1.0,
    timeout_seconds: float | None = None,
) -> TaskRecord:
    """Show a task until it is terminal.

    Raises TaskDidNotSucceed, TaskNotDone after the time-out, or CommandInterrupted after Ctrl-C.
    """
    try:
        with output.watching() as show:
            for view in client.follow(task_id, interval_seconds=interval_seconds, timeout_seconds=timeout_seconds):
                show(view)
    except KeyboardInterrupt:
        raise CommandInterrupted(task_id) from None
    if not view.is_terminal:
        raise TaskNotDone(task_id, view.status)
    if not view.succeeded:
        raise TaskDidNotSucceed(task_id, view.error_code, view.result_summary)
    return view
