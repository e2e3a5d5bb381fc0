"""Following a task until it has an outcome."""

from delegation.cli.errors import command_interrupted, task_did_not_succeed, task_not_done
from delegation.cli.output import Output
from delegation.cli.screens.watching import summary_text
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

    Raises CommandError after the time-out, or CommandError (INTERRUPTED) after Ctrl-C.
    """
    try:
        with output.watching() as show:
            for view in client.follow(task_id, interval_seconds=interval_seconds, timeout_seconds=timeout_seconds):
                show(view)
    except KeyboardInterrupt:
        raise command_interrupted(task_id) from None
    if not view.is_terminal:
        raise task_not_done(task_id, view.status)
    if not view.succeeded:
        raise task_did_not_succeed(task_id, view.error_code, view.result_summary and summary_text(view.result_summary))
    return view
