"""Errors of the command line; each message names the problem, each next step what to do about it."""

from typing import Final

from delegation.configuration.problems import SettingsInvalid
from delegation.errors import DelegationError, counted

FAILED: Final = 1
MISUSE: Final = 2
PARTLY_DONE: Final = 4
INTERRUPTED: Final = 130
"""Exit statuses; docs/command.md, Exit statuses, has all of them."""


class CommandError(DelegationError):
    """The base class; `next_step` is a sentence for the person at the terminal."""

    code = "COMMAND_ERROR"
    exit_status: int = FAILED

    def __init__(
        self,
        message: str,
        next_step: str,
        *,
        code: str | None = None,
        exit_status: int | None = None,
        task_id: str | None = None,
    ) -> None:
        super().__init__(message, code=code, task_id=task_id)
        self.next_step = next_step
        self.exit_status = exit_status or type(self).exit_status


class CommandInterrupted(CommandError):
    """Ctrl-C ended the command; what the service accepted continues."""

    code = "INTERRUPTED"
    exit_status = INTERRUPTED

    def __init__(self, task_id: str | None = None) -> None:
        """`task_id` is the task that the command followed, if any."""
        self.task_id = task_id
        if task_id is None:
            lasting, following = "what the service accepted continues", "`delegation tasks list` shows it."
        else:
            lasting, following = f"task {task_id} continues", f"`delegation tasks watch {task_id}` follows it again."
        super().__init__(f"interrupted by Ctrl-C; {lasting}", following)


class NotConnected(CommandError):
    """There is no stack.json, and no connection variable is set."""

    code = "NOT_CONNECTED"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} does not exist, and edge_url (DELEGATION_EDGE_URL) is not set",
            "Start the system with `delegation local up`, name its stack.json with --stack, or set the connection in a "
            "profile or the environment: `delegation config show` lists the settings.",
        )


class GatewayUnknown(CommandError):
    """There is no address that leads through the gateway."""

    code = "GATEWAY_UNKNOWN"

    def __init__(self, reason: str) -> None:
        super().__init__(
            reason,
            "Set gateway_url to the catalog's address behind the rule (docs/gateway-rule.md); a local stack has one "
            "after `delegation local up --gateway`. Without a gateway use `delegation submit`, then drop the table "
            "without purge.",
        )


class BadConnection(CommandError):
    """A connection setting cannot be used."""

    code = "BAD_CONNECTION"


class IndexTableUnknown(CommandError):
    """The table of the reference index is not known."""

    code = "INDEX_TABLE_UNKNOWN"

    def __init__(self, reason: str) -> None:
        super().__init__(
            reason, "Name it with --index-table or DELEGATION_REFERENCES_TABLE: the table References of the Data stack."
        )


class TaskTableUnknown(CommandError):
    """No table, or more than one, has the key schema of the task table."""

    code = "TASK_TABLE_UNKNOWN"

    def __init__(self, reason: str) -> None:
        super().__init__(reason, "Name it with --tasks-table or DELEGATION_TASKS_TABLE.")


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


class TaskUnknown(CommandError):
    """There is no task with this id."""

    code = "TASK_NOT_FOUND"

    def __init__(self, task_id: str) -> None:
        super().__init__(f"there is no task {task_id}", "Check the id. `delegation tasks list` shows all tasks.")
        self.task_id = task_id


class TasksStay(CommandError):
    """Some of several tasks were not changed."""

    code = "TASKS_NOT_CHANGED"
    exit_status = PARTLY_DONE

    def __init__(self, word: str, failed: int, of: int) -> None:
        super().__init__(
            f"{failed:,} of {counted(of, 'task')} could not be {word}; the others were",
            "The list has the reason of each; run the same command again for what may pass.",
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


def exit_status_of(error: DelegationError) -> int:
    """Return the exit status with which a command ends after an error."""
    return MISUSE if isinstance(error, SettingsInvalid) else getattr(error, "exit_status", FAILED)
