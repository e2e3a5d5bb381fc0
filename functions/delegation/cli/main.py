"""The `delegation` command: what is built in, and every command group that an installed package brings.

A group is an entry point of `delegation.commands` whose value is a typer application; its name is the group's.
Exit status: 0 done, 1 failed, 2 misuse; `purge` has more.
"""

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from typer.core import TyperGroup

from delegation.cli import purge, submit, tasks, worker
from delegation.cli.errors import CommandUnavailable
from delegation.cli.output import output_of
from delegation.errors import DelegationError

ENTRY_POINTS = "delegation.commands"


class Root(TyperGroup):
    """Turns foreseen errors into a message with a next step; anything else is a bug and shows its trace."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except DelegationError as error:
            output_of(ctx).problem(error)
            raise typer.Exit(1) from error


def build(installed: Iterable[EntryPoint]) -> typer.Typer:
    """The whole command, with the groups of `installed` beside what is built in."""
    # Traces with local variables would print secrets.
    app = typer.Typer(
        name="delegation",
        cls=Root,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help="Purge Iceberg tables through the Polaris Delegation Service, and see what became of it.",
    )

    @app.callback()
    def root() -> None:
        """Purge Iceberg tables through the Polaris Delegation Service, and see what became of it."""

    app.command("purge")(purge.purge_command)
    app.command("submit")(submit.submit_command)
    app.command("worker")(worker.worker_command)
    app.add_typer(tasks.app, name="tasks")
    for point in sorted(installed, key=lambda point: point.name):
        _add(app, point)
    return app


def _add(app: typer.Typer, point: EntryPoint) -> None:
    try:
        group = point.load()
    except ModuleNotFoundError as error:
        missing = error.name or str(error)
        settings = {"ignore_unknown_options": True, "allow_extra_args": True}

        @app.command(point.name, context_settings=settings, help=f"Not available: {missing} is not installed.")
        def unavailable() -> None:
            raise CommandUnavailable(point.name, f"the module {missing} is not installed")
    else:
        app.add_typer(group, name=point.name)


def main() -> None:
    """The console script."""
    build(entry_points(group=ENTRY_POINTS))()
