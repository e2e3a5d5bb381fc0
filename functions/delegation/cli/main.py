"""The `delegation` command: built-in commands, and the command groups of installed packages.

A group is an entry point of `delegation.commands` whose value is a typer application. A built-in command is imported
when it is called, so that `--help` is fast. docs/command.md, Exit statuses, has the meaning of each.
"""

import json
import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand
from typer.main import get_command

from delegation.cli import OWN_ROOTS
from delegation.cli.errors import (
    FAILED,
    CommandError,
    WordGroup,
    command_interrupted,
    command_unavailable,
    exit_status_of,
    list_whole_sentences,
    print_aborted,
    print_misuse,
    refused_by_machine,
    remove_consent,
    suggest_nothing,
    wants_json,
)
from polaris_common.errors import DelegationError

ENTRY_POINTS: Final = "delegation.commands"
_LONGEST_WARNING: Final = 500
EXTRAS: Final = {"cbor2": "persistence"}
"""The extra that installs a module; any other module belongs to the extra `service`."""


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """A command to import when it is called: `module:attribute`, a function or a typer application; its help."""

    target: str
    help: str

    def load(self) -> Any:
        module, _, attribute = self.target.partition(":")
        return getattr(import_module(module), attribute)


BUILT_IN: Final[Mapping[str, LazyCommand]] = {
    "callbacks": LazyCommand(
        "delegation.cli.callbacks:app", "List events and callbacks that were not delivered, and send them again."
    ),
    "certs": LazyCommand(
        "delegation.cli.deployment.certs:app",
        "Make, replace and revoke the certificates of the service, its callers and its operators.",
    ),
    "compact": LazyCommand(
        "delegation.cli.rewrites:compact_command",
        "Rewrite a table's small data files into larger files with Spark, and apply its deletes.",
    ),
    "config": LazyCommand("delegation.cli.deployment.config:app", "Show and check the command's own settings."),
    "deploy-check": LazyCommand(
        "delegation.cli.deployment.deploying:deploy_check_command",
        "Check that a deployment keeps everything that holds data; change nothing.",
    ),
    "audit": LazyCommand(
        "delegation.cli.catalog.audit:audit_command",
        "Show what could be removed or repaired in a catalog's tables, in bytes and money; change nothing.",
    ),
    "doctor": LazyCommand(
        "delegation.cli.doctor.command:doctor_command",
        "Check everything that the service needs, and show how to repair it.",
    ),
    "drop": LazyCommand(
        "delegation.cli.tombstones.drop:drop_command",
        "Drop a table with its files through the gateway; the name is free at once.",
    ),
    "drop-namespace": LazyCommand(
        "delegation.cli.tombstones.drop_namespace:drop_namespace_command",
        "Drop a namespace through the gateway, with --cascade also its tables and their files.",
    ),
    "estimate": LazyCommand(
        "delegation.cli.deployment.costs:estimate_command",
        "Show what a task's plan deletes, how long it takes and what it costs.",
    ),
    "expire": LazyCommand(
        "delegation.cli.expire:expire_command",
        "Remove old snapshots from a table, and the files that only they reference.",
    ),
    "health": LazyCommand(
        "delegation.cli.catalog.health:health_command",
        "List the tables that most need maintenance, with their monthly storage cost.",
    ),
    "local": LazyCommand("delegation.cli.local:app", "Run the whole system on this machine."),
    "drain": LazyCommand(
        "delegation.cli.pausing:drain_command",
        "Start nothing new, and wait until nothing runs.",
    ),
    "pause": LazyCommand(
        "delegation.cli.pausing:pause_command",
        "Stop all work or a part of it within a minute; running attempts are handed over.",
    ),
    "pauses": LazyCommand("delegation.cli.pausing:pauses_command", "Show what is paused, by whom, when and why."),
    "recover": LazyCommand(
        "delegation.cli.deployment.recover:recover_command",
        "Copy lost tasks and records from restored tables to the live tables; overwrite nothing.",
    ),
    "resume": LazyCommand(
        "delegation.cli.pausing:resume_command",
        "End a pause or drain of all work, the realm or a table; tasks continue within two minutes.",
    ),
    "orphans": LazyCommand(
        "delegation.cli.orphans:app",
        "Scan a table for orphan files, approve a plan, and restore deleted files.",
    ),
    "policy": LazyCommand(
        "delegation.cli.catalog.policies:app", "Create and attach policies in Polaris, and show their effect."
    ),
    "polaris": LazyCommand("delegation.cli.catalog.polaris:app", "Prepare Polaris for the service."),
    "purge": LazyCommand(
        "delegation.cli.purge:purge_command",
        "Delete all files of a table, given its metadata.json, with your credentials and without the service.",
    ),
    "references": LazyCommand(
        "delegation.cli.catalog.references:app",
        "List unreadable tables that hold purges back, exempt them, and list branches and tags that expiries lost.",
    ),
    "submit": LazyCommand(
        "delegation.cli.submit:submit_command",
        "Delete all files of a table; its entry in the catalog stays.",
    ),
    "tasks": LazyCommand(
        "delegation.cli.tasks.commands:app", "List, show, follow, explain, cancel and retry the service's tasks."
    ),
    "tombstones": LazyCommand(
        "delegation.cli.tombstones.commands:app",
        "List, show, restore, purge and dismiss the tables that were dropped through the gateway.",
    ),
    "rewrite-manifests": LazyCommand(
        "delegation.cli.rewrites:rewrite_manifests_command",
        "Rewrite a table's manifests, with Spark, so that queries read fewer of them.",
    ),
    "ui": LazyCommand(
        "delegation.cli.ui:ui_command",
        "Serve a status page on this machine until Ctrl-C.",
    ),
    "worker": LazyCommand(
        "delegation.cli.worker:worker_command", "Run the service's tasks in this process, until SIGTERM."
    ),
}


class CommandRoot(WordGroup):
    """Imports a command when it is called, and prints an expected error with a next step; any other one is a bug."""

    loaders: Mapping[str, Callable[[], Any]]
    as_json = False

    def words(self) -> Iterable[str]:
        return self.loaders

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command; with `--json` a misuse is one JSON document too."""
        given = list(sys.argv[1:] if args is None else args)
        self.as_json = wants_json(given)
        if not (standalone_mode and self.as_json):
            try:
                return super().main(given, prog_name, complete_var, standalone_mode, windows_expand_args, **extra)
            except OSError as error:  # before a command starts: --install-completion writes into HOME
                refused = refused_by_machine(error)
                if refused is None:
                    raise
                sys.stderr.write(f"Error: {refused}\nNext: {refused.next_step}\n")
                sys.exit(FAILED)
        try:
            status = super().main(given, prog_name, complete_var, False, windows_expand_args, **extra)
        except typer.TyperException as error:
            status = print_misuse(error, prog_name or "delegation")
        except typer.Abort:
            status = print_aborted()
        sys.exit(status if isinstance(status, int) else 0)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return sorted(self.loaders)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        if cmd_name in BUILT_IN:
            return TyperCommand(cmd_name, help=BUILT_IN[cmd_name].help, short_help=BUILT_IN[cmd_name].help)
        return self.loaded(cmd_name) if cmd_name in self.loaders else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in self.loaders:
            return args[0], self.loaded(args[0]), args[1:]
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (DelegationError, KeyboardInterrupt, ModuleNotFoundError, OSError) as error:
            foreseen = self._foreseen(ctx, error)
            if foreseen is None:
                raise
            self._report(ctx, foreseen)
            raise typer.Exit(exit_status_of(foreseen)) from error
        except typer.TyperException as error:
            remove_consent(error)
            raise

    def _foreseen(self, ctx: Any, error: BaseException) -> DelegationError | None:
        match error:
            case DelegationError():
                return error
            case KeyboardInterrupt():
                return command_interrupted() if self.as_json else None
            case ModuleNotFoundError(name=str(name)) if name.partition(".")[0] not in OWN_ROOTS:
                extra = EXTRAS.get(name.partition(".")[0], "service")
                return command_unavailable(ctx.invoked_subcommand or "", f"the module {name} is not installed", extra)
            case OSError():
                return refused_by_machine(error)
        return None

    def _report(self, ctx: Any, error: DelegationError) -> None:
        from delegation.cli.output import open_output, output_of  # noqa: PLC0415 - `--help` needs no rich

        if self.as_json:
            open_output(ctx, as_json=True)
        output_of(ctx).problem(error)

    def loaded(self, name: str) -> Any:
        """Return a command; one that cannot be imported is replaced by one that fails with the reason."""
        try:
            loaded = self.loaders[name]()
        except ModuleNotFoundError as error:
            reason = f"the module {error.name or error} is not installed"
            return _failing(name, command_unavailable(name, reason, "service" if name in BUILT_IN else None))
        except CommandError as error:
            return _failing(name, error)
        app = loaded
        if not isinstance(loaded, typer.Typer):
            app = typer.Typer(add_completion=False)
            app.command(name)(loaded)
        app.rich_markup_mode = None
        command = get_command(app)
        command.name = name
        suggest_nothing(command)
        list_whole_sentences(command)
        return command


def _failing(name: str, error: CommandError) -> Any:
    def fail(*_args: object, **_options: object) -> None:
        raise error

    settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    text = f"Not available: {error}."
    return TyperCommand(name, context_settings=settings, callback=fail, help=text, short_help=text)


def print_version(ctx: typer.Context, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from delegation.edge.api import VERSION  # noqa: PLC0415

        as_json = isinstance(ctx.command, CommandRoot) and ctx.command.as_json
        typer.echo(json.dumps({"version": VERSION}) if as_json else f"delegation {VERSION}")
        raise typer.Exit


ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        show_default=False,
        help="The profile of the configuration file to use. Default: DELEGATION_PROFILE, else the file's `profile`.",
    ),
]
VersionOption = Annotated[
    bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the release and exit.")
]


def build(installed: Iterable[EntryPoint]) -> typer.Typer:
    """Return the whole command: the built-in commands and the groups of `installed`."""
    loaders = {name: command.load for name, command in BUILT_IN.items()} | {
        point.name: point.load for point in installed
    }
    app = typer.Typer(
        name="delegation",
        cls=type("CommandRoot", (CommandRoot,), {"loaders": loaders}),
        no_args_is_help=True,
        rich_markup_mode=None,  # rich's help takes longer to import than all else that help needs
        pretty_exceptions_enable=False,  # tracebacks with local variables would print secrets
    )

    @app.callback(invoke_without_command=False)
    def root(
        ctx: typer.Context,
        profile: ProfileOption = None,
        version: VersionOption = False,  # noqa: ARG001
        as_json: Annotated[bool, typer.Option("--json", help="With --version: print JSON.")] = False,  # noqa: ARG001
    ) -> None:
        """Delete the files of Iceberg tables with the Polaris Delegation Service, and manage its tasks."""
        ctx.meta["delegation.profile"] = profile

    return app


class ItemWarnings(logging.Handler):
    """Prints a sentence on stderr for each item that a command leaves out."""

    def emit(self, record: logging.LogRecord) -> None:
        from polaris_common.errors import printable  # noqa: PLC0415 - an item that failed has imported it

        named = [str(getattr(record, name)) for name in ("loop", "item") if hasattr(record, name)]
        error = record.exc_info[1] if record.exc_info else None
        why = "" if error is None else f": {type(error).__name__}: {error}"
        text = printable(f"Warning: {' '.join(named)}: {record.getMessage()}{why}", _LONGEST_WARNING)
        sys.stderr.write(f"{text}\n")


def main() -> None:
    """Run the command; the entry point of the console script."""
    # Without a handler, logging would print a bare line or a traceback; with --json, stderr has documents only.
    logging.getLogger("delegation.items").addHandler(
        logging.NullHandler() if wants_json(sys.argv[1:]) else ItemWarnings()
    )
    build(entry_points(group=ENTRY_POINTS))()
