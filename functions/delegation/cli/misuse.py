"""Misuse of the command: how it is answered, and that no wrong word is answered with a word that changes something."""

import json
import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, Final

import typer
from typer.core import TyperGroup

from delegation.cli.errors import FAILED, MISUSE

HARMLESS: Final = frozenset(
    (
        *("blocking", "callbacks", "certs", "check", "completion", "config", "doctor", "estimate", "history", "list"),
        *("persistence", "polaris", "references", "refs", "show", "tasks", "types", "watch", "why"),
    )
)
"""The words that only show something, or that only lead to other words: the others are never suggested."""
_CONSENT: Final = frozenset({"--yes", "--even-if-incomplete", "--experimental-format", "--keep", "--outside"})
"""Options that allow something: a misspelled option is not answered with one of them."""
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
    """Return the end of a message for a wrong word: a similar word if it is harmless and no other is more similar."""
    near = get_close_matches(wrong, list(words))
    if near and near[0] in HARMLESS:
        return f". Did you mean {near[0]!r}?"
    return ". `--help` lists the commands."


def wants_json(words: Iterable[str]) -> bool:
    """Return whether a call asks for JSON, even if it is misused elsewhere."""
    for word in words:
        if word == "--":
            return False
        if word == "--json":
            return True
    return False


def suggest_nothing(command: Any) -> None:
    """Have typer's own groups in a command suggest no word, because which of theirs change something is unknown."""
    if isinstance(command, TyperGroup):
        command.suggest_commands = False
        for inner in command.commands.values():
            suggest_nothing(inner)


def list_whole_sentences(command: Any) -> None:
    """Have a group's list show the whole first paragraph of each command's help, which would be cut to one line."""
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
