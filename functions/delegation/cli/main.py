"""The `delegation` command: what is built in, and every command group that an installed package brings.

A group is an entry point of `delegation.commands` whose value is a typer application; its name is the group's. What is
built in is imported when it is called: `--help` names it without. Exit status: 0 done, 1 failed, 2 misuse; `purge` has
more.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from delegation.cli.errors import CommandError, CommandUnavailable
from delegation.errors import DelegationError

ENTRY_POINTS: Final = "delegation.commands"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command is: `module:attribute`, a function or a typer application, and its help in one line."""

    target: str
    help: str

    def load(self) -> Any:
        """Import it."""
        module, _, attribute = self.target.partition(":")
        return getattr(import_module(module), attribute)


BUILT_IN: Final[Mapping[str, Place]] = {
    "local": Place("delegation.cli.local:app", "Run the whole system on this machine."),
    "persistence": Place("delegation.cli.persistence:app", "Look after the tables of the persistence layer."),
    "purge": Place(
        "delegation.cli.purge:purge_command",
        "Delete all files of a table that its metadata file reaches, with your own credentials, without any service.",
    ),
    "submit": Place(
        "delegation.cli.submit:submit_command",
        "Delete all files of a table: data, deletes, manifests, metadata. Its entry in the catalog stays.",
    ),
    "tasks": Place(
        "delegation.cli.tasks:app", "List tasks, look at one, follow it, read its history, cancel it, retry it."
    ),
    "worker": Place(
        "delegation.cli.worker:worker_command",
        "Lease tasks that are due and run them, one after the other, until SIGTERM.",
    ),
}


class CommandRoot(TyperGroup):
    """Loads a command when it is called, and turns foreseen errors into a message with a next step.

    Anything else is a bug and shows its trace.
    """

    loaders: Mapping[str, Callable[[], Any]]

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return sorted(self.loaders)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        if cmd_name in BUILT_IN:
            return TyperCommand(cmd_name, help=BUILT_IN[cmd_name].help)
        return self.loaded(cmd_name) if cmd_name in self.loaders else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in self.loaders:
            return args[0], self.loaded(args[0]), args[1:]
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except DelegationError as error:
            from delegation.cli.output import output_of  # noqa: PLC0415 - rich is not needed to say what there is

            output_of(ctx).problem(error)
            raise typer.Exit(1) from error

    def loaded(self, name: str) -> Any:
        """The command itself; one whose modules are not all installed says so when it is called."""
        try:
            found = self.loaders[name]()
        except ModuleNotFoundError as error:
            return _failing(name, CommandUnavailable(name, f"the module {error.name or error} is not installed"))
        except CommandError as error:
            return _failing(name, error)
        app = found
        if not isinstance(found, typer.Typer):
            app = typer.Typer(add_completion=False)
            app.command(name)(found)
        command = get_command(app)
        command.name = name
        return command


def _failing(name: str, error: CommandError) -> Any:
    def fail(*_args: object, **_options: object) -> None:
        raise error

    settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    return TyperCommand(name, context_settings=settings, callback=fail, help=f"Not available: {error}.")


def build(installed: Iterable[EntryPoint]) -> typer.Typer:
    """The whole command, with the groups of `installed` beside what is built in."""
    loaders = {name: place.load for name, place in BUILT_IN.items()} | {point.name: point.load for point in installed}
    app = typer.Typer(
        name="delegation",
        cls=type("CommandRoot", (CommandRoot,), {"loaders": loaders}),
        no_args_is_help=True,
        pretty_exceptions_enable=False,  # traces with local variables would print secrets
    )

    @app.callback()
    def root() -> None:
        """Purge Iceberg tables through the Polaris Delegation Service, and see what became of it."""

    return app


def main() -> None:
    """The console script."""
    build(entry_points(group=ENTRY_POINTS))()
