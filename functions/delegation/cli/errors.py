"""Errors of the command line; each message names the problem, each next step what to do about it."""

from typing import ClassVar

from delegation.errors import DelegationError


class CommandError(DelegationError):
    """The base class; `next_step` is a sentence for the person at the terminal."""

    code: ClassVar[str] = "COMMAND_ERROR"

    def __init__(self, message: str, next_step: str) -> None:
        super().__init__(message)
        self.next_step = next_step


class NotConnected(CommandError):
    """There is no stack.json, and no connection variable is set."""

    code = "NOT_CONNECTED"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} does not exist, and DELEGATION_EDGE_URL is not set",
            "Start the system with `delegation local up`, name its stack.json with --stack, or set DELEGATION_EDGE_URL "
            "and the other connection variables (docs/command.md).",
        )


class BadConnection(CommandError):
    """A connection setting is missing or cannot be used."""

    code = "BAD_CONNECTION"


class TaskTableUnknown(CommandError):
    """No table, or more than one, has the key schema of the task table."""

    code = "TASK_TABLE_UNKNOWN"

    def __init__(self, reason: str) -> None:
        super().__init__(reason, "Name it with --table or DELEGATION_TASKS_TABLE.")


class BadTableMetadata(CommandError):
    """The file given with --metadata is not a LoadTableResult."""

    code = "BAD_TABLE_METADATA"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"{path}: {reason}",
            "Give the JSON that an Iceberg REST catalog returns for loadTable, or omit --metadata.",
        )


class TaskDidNotSucceed(CommandError):
    """The task that the command waited for ended as FAILURE."""

    code = "TASK_FAILED"

    def __init__(self, task_id: str, error_code: str | None, summary: str | None) -> None:
        reason = ": ".join(part for part in (error_code, summary) if part) or "no reason recorded"
        super().__init__(
            f"task {task_id} failed: {reason}",
            f"`delegation tasks history {task_id}` shows each attempt; submit the table again to resume the purge.",
        )


class TaskStays(CommandError):
    """The task's status or type does not allow the change; nothing was written."""

    code = "TASK_STAYS"

    def __init__(self, task_id: str, reason: str, next_step: str) -> None:
        super().__init__(f"task {task_id} {reason}; nothing was changed", next_step)


class TaskNotDone(CommandError):
    """The task had no outcome when the time-out ended the wait."""

    code = "TASK_NOT_DONE"

    def __init__(self, task_id: str, status: str) -> None:
        super().__init__(
            f"task {task_id} is still {status} after the time-out",
            f"It continues to run: `delegation tasks watch {task_id}` follows it again.",
        )


class CommandUnavailable(CommandError):
    """A module that the command needs is not installed; `extra` brings it, by default one of the command's name."""

    code = "COMMAND_UNAVAILABLE"

    def __init__(self, name: str, reason: str, extra: str | None = None) -> None:
        super().__init__(
            f"`delegation {name}` cannot run: {reason}",
            f"Install what it needs: pip install 'polaris-delegation-service[{extra or name}]'.",
        )
