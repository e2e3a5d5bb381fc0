"""Errors of the command line, each with what to do next; and misuse: nothing suggests a word that changes something."""

import errno
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final

import typer
from typer.core import TyperGroup

from polaris_common.errors import DelegationError

FAILED: Final = 1
MISUSE: Final = 2
PARTLY_DONE: Final = 4
INTERRUPTED: Final = 130
"""Exit statuses; docs/command.md, Exit statuses, has all of them."""


_NAMED: Final = 20
"""Items in a message."""


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


def partly_done(failed: Mapping[str, str], of: str, done: str) -> CommandError:
    """Return the error for several items of which some could not be `done`, each for its own reason."""
    named = "; ".join(f"{name} ({reason})" for name, reason in itertools.islice(failed.items(), _NAMED))
    more = len(failed) - _NAMED
    return CommandError(
        f"{len(failed):,} of {of} could not be {done}: {named}" + (f"; and {more:,} more" if more > 0 else ""),
        "Remove the causes, then run the same command again.",
        code="ITEMS_FAILED",
        exit_status=PARTLY_DONE,
    )


def command_interrupted(task_id: str | None = None) -> CommandError:
    if task_id is None:
        lasting, following = "tasks that the service accepted continue", "`delegation tasks list` shows them."
    else:
        lasting, following = f"task {task_id} continues", f"`delegation tasks watch {task_id}` follows it again."
    return CommandError(
        f"interrupted by Ctrl-C; {lasting}", following, code="INTERRUPTED", exit_status=INTERRUPTED, task_id=task_id
    )


def gateway_unknown(reason: str) -> CommandError:
    return CommandError(
        reason,
        "Set gateway_url to the catalog's address behind the load balancer's rule (page The rule in front of the "
        "catalog). A local stack has a gateway after `delegation local up --gateway`. Without a gateway, use "
        "`delegation submit`, then drop the table without purge.",
        code="GATEWAY_UNKNOWN",
    )


class TaskTableUnknown(CommandError):
    """No table, or more than one, has the key schema of the task table."""

    code = "TASK_TABLE_UNKNOWN"

    def __init__(self, reason: str) -> None:
        super().__init__(reason, "Name the task table with --tasks-table or DELEGATION_TASKS_TABLE.")


def bad_table_metadata(path: str, reason: str) -> CommandError:
    return CommandError(
        f"{path}: {reason}",
        "Give the JSON that an Iceberg REST catalog returns for loadTable, or omit --metadata.",
        code="BAD_TABLE_METADATA",
    )


def task_did_not_succeed(task_id: str, error_code: str | None, summary: str | None) -> CommandError:
    reason = ": ".join(part for part in (error_code, summary) if part) or "no reason recorded"
    from delegation.edge.codes import RETRIED, by_code  # noqa: PLC0415 - only failures need it

    known = by_code().get(error_code or "")
    advice = "" if known is None else (known.command or known.action).removeprefix(RETRIED).strip(" .")
    cause = "Remove the cause" if not advice or advice.startswith("Nothing") else advice
    return CommandError(
        f"task {task_id} failed: {reason}",
        f"{cause}. Then `delegation tasks retry {task_id}` continues the task; "
        f"`delegation tasks history {task_id}` shows each attempt.",
        code="TASK_FAILED",
    )


def task_unknown(task_id: str) -> CommandError:
    return CommandError(
        f"there is no task {task_id}",
        "Check the id. `delegation tasks list` shows all tasks.",
        code="TASK_NOT_FOUND",
        task_id=task_id,
    )


def task_stays(task_id: str, reason: str, next_step: str) -> CommandError:
    return CommandError(f"task {task_id} {reason}; nothing was changed", next_step, code="TASK_STAYS")


def task_not_done(task_id: str, status: str) -> CommandError:
    return CommandError(
        f"task {task_id} is still {status} after the time-out",
        f"The task continues to run. `delegation tasks watch {task_id}` follows it again.",
        code="TASK_NOT_DONE",
    )


def command_unavailable(name: str, reason: str, extra: str | None = None) -> CommandError:
    return CommandError(
        f"`delegation {name}` cannot run: {reason}",
        f"Install the extra: pip install 'polaris-delegation-service[{extra or name}]'.",
        code="COMMAND_UNAVAILABLE",
    )


_OTHER_FOLDER: Final = "Name a folder in which this user may write (HOME, TMPDIR, or the option with the path)."
_FREE_SPACE: Final = "Free space there, or name another folder (HOME, TMPDIR, --state-dir)."
_REMEDIES: Final = {
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST), _OTHER_FOLDER),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), _FREE_SPACE),
    errno.EADDRINUSE: "Another process uses the port. End that process, or give another port.",
}


def refused_by_machine(error: OSError) -> CommandError | None:
    """Return the error if this machine refuses a file, space or a port; None for any other, which is a bug."""
    remedy = _REMEDIES.get(error.errno or 0)
    if remedy is None:
        return None
    where = f"{error.filename}: " if error.filename else ""
    return CommandError(f"{where}{error.strerror}", remedy, code="MACHINE_REFUSED")


def exit_status_of(error: DelegationError) -> int:
    status: int = getattr(error, "exit_status", FAILED)
    return status


HARMLESS: Final = frozenset(
    (
        *("blocking", "callbacks", "certs", "check", "completion", "config", "doctor", "estimate", "history", "list"),
        *("persistence", "polaris", "references", "refs", "show", "tasks", "types", "watch", "why"),
    )
)
"""Words that only show something or lead to other words; no others are suggested."""
_CONSENT: Final = frozenset({"--yes", "--even-if-incomplete", "--experimental-format", "--keep", "--outside"})
"""Options that allow something; a misspelled option never suggests them."""
_LONGEST_MESSAGE: Final = 500


class WordGroup(TyperGroup):
    """A group of commands that answers a wrong word with a similar harmless one, or with none."""

    def words(self) -> Iterable[str]:
        return self.commands

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the group's options; typer would import pydantic to check even those that are not given."""
        options = super().get_params(ctx)
        for option in options:
            if not option.required and "process_value" not in vars(option):
                vars(option)["process_value"] = _unless_absent(option.process_value)
        return options

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return self._click_resolve_command(ctx, args)
        except typer.TyperException as error:
            if args and not args[0].startswith("-"):
                error.message = f"{error.message.rstrip('.')}{suggestion(args[0], self.words())}"
            raise


def _unless_absent(process: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda ctx, value: None if value is None else process(ctx, value)


def suggestion(wrong: str, words: Iterable[str]) -> str:
    """Return the end of a message for a wrong word: the most similar word, if it is harmless."""
    near = get_close_matches(wrong, list(words))
    if near and near[0] in HARMLESS:
        return f". Did you mean {near[0]!r}?"
    return ". `--help` lists the commands."


def wants_json(words: Iterable[str]) -> bool:
    """Return whether a call requests JSON, even if it is misused elsewhere."""
    for word in words:
        if word == "--":
            return False
        if word == "--json":
            return True
    return False


def suggest_nothing(command: Any) -> None:
    """Make typer's own groups in a command suggest no word: which of theirs change something is unknown."""
    if isinstance(command, TyperGroup):
        command.suggest_commands = False
        for inner in command.commands.values():
            suggest_nothing(inner)


def list_whole_sentences(command: Any) -> None:
    """Show the whole first paragraph of each command's help in a group's list, which would be cut to one line."""
    command.short_help = command.short_help or " ".join((command.help or "").partition("\n\n")[0].split())
    for inner in getattr(command, "commands", {}).values():
        list_whole_sentences(inner)


def remove_consent(error: typer.TyperException) -> None:
    """Remove the options that allow something from what an error suggests."""
    possible = getattr(error, "possibilities", None)
    if possible:
        error.possibilities = [option for option in possible if option not in _CONSENT]  # type: ignore[attr-defined]


def print_misuse(error: typer.TyperException, program: str) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else program
    message = " ".join(error.format_message().split())
    if type(error).__name__ == "NoArgsIsHelpError":  # its message is the whole help
        message = f"`{path}` needs a command"
    _print("MISUSE", message[:_LONGEST_MESSAGE], f"`{path} --help` describes its arguments and options.")
    return MISUSE


def print_aborted() -> int:
    _print("ABORTED", "not confirmed; nothing was changed", "Answer with yes, or give --yes.")
    return FAILED


def _print(code: str, message: str, next_step: str) -> None:
    document = {"error_code": code, "message": message, "next_step": next_step}
    sys.stderr.write(json.dumps(document, ensure_ascii=False) + "\n")
    sys.stderr.flush()
