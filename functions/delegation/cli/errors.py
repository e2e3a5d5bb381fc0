"""What the command itself can refuse; each says what to do next."""

from typing import ClassVar

from delegation.errors import DelegationError


class CommandError(DelegationError):
    """The root of this package's errors; `next_step` is one sentence for the person at the terminal."""

    code: ClassVar[str] = "COMMAND_ERROR"

    def __init__(self, message: str, next_step: str) -> None:
        super().__init__(message)
        self.next_step = next_step


class NotConnected(CommandError):
    """There is nothing that says where the service is."""

    code = "NOT_CONNECTED"

    def __init__(self, looked_at: str) -> None:
        super().__init__(
            f"{looked_at} does not exist, and DELEGATION_EDGE_URL is not set",
            "Start the system with `delegation local up`, name its stack.json with --stack, or set DELEGATION_EDGE_URL "
            "and its companions (docs/command.md).",
        )


class BadConnection(CommandError):
    """The connection settings are there and cannot be used."""

    code = "BAD_CONNECTION"


class TaskTableUnknown(CommandError):
    """None or several tables look like the task table."""

    code = "TASK_TABLE_UNKNOWN"

    def __init__(self, reason: str) -> None:
        super().__init__(reason, "Name it with --table or DELEGATION_TASKS_TABLE.")


class BadTableMetadata(CommandError):
    """The file is not the LoadTableResult of a table."""

    code = "BAD_TABLE_METADATA"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"{path}: {reason}",
            "Give what an Iceberg REST catalog answers to loadTable, or leave --metadata out.",
        )


class TaskDidNotSucceed(CommandError):
    """The task is FAILURE."""

    code = "TASK_FAILED"

    def __init__(self, task_id: str, error_code: str | None, summary: str | None) -> None:
        reason = ": ".join(part for part in (error_code, summary) if part) or "no reason recorded"
        super().__init__(
            f"task {task_id} failed: {reason}",
            f"`delegation tasks history {task_id}` shows each attempt; the same submit goes on where it stopped.",
        )


class TaskStays(CommandError):
    """What was asked of the task does not apply to it; nothing was written."""

    code = "TASK_STAYS"

    def __init__(self, task_id: str, reason: str, next_step: str) -> None:
        super().__init__(f"task {task_id} {reason}; it stays as it is", next_step)


class TaskNotDone(CommandError):
    """The time to wait is over and the task is still under way."""

    code = "TASK_NOT_DONE"

    def __init__(self, task_id: str, status: str) -> None:
        super().__init__(
            f"task {task_id} is {status} after the time given",
            f"It goes on by itself: `delegation tasks watch {task_id}` follows it again.",
        )


class CommandUnavailable(CommandError):
    """The package that provides a command group lacks something."""

    code = "COMMAND_UNAVAILABLE"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"`delegation {name}` cannot run: {reason}",
            f"Install what it needs: pip install 'polaris-delegation-service[{name}]'.",
        )
