"""One call of a command: the common options, its output, and its connections."""

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from delegation.cli.errors import WordGroup
from delegation.configuration import DEFAULT_STACK

if TYPE_CHECKING:
    from delegation.cli.connection import Connection
    from delegation.cli.output import Output
    from delegation.cli.tasks.direct import PauseSource, TaskSource
    from delegation.tasks.options import Option, OptionTable


def option(flag: str, text: str, metavar: str | None = None, default: Any = ..., **settings: Any) -> Any:
    """Return an option whose help states its default, if it has one; as a parameter's default or its annotation."""
    return typer.Option(default, flag, metavar=metavar, show_default=False, help=text, **settings)


def optional(flag: str, text: str, metavar: str | None = None, **settings: Any) -> Any:
    return option(flag, text, metavar, None, **settings)


def defaulted(flag: str, text: str, default: Any, **settings: Any) -> Any:
    """Return an option whose default typer adds to the help."""
    return typer.Option(default, flag, help=text, **settings)


def switch(flag: str, text: str) -> Any:
    return typer.Option(False, flag, help=text)


def argument(metavar: str, text: str, default: Any = ...) -> Any:
    """Return an argument, also an optional one, without its default in the help."""
    return typer.Argument(default, metavar=metavar, show_default=False, help=text)


StackOption = Annotated[
    Path | None,
    option(
        "--stack",
        f"The stack.json of a local stack. Default: the stack in the settings, else {DEFAULT_STACK}.",
        envvar="DELEGATION_STACK",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
TasksTableOption = Annotated[
    str | None,
    option(
        "--tasks-table",
        "The task table. Default: DELEGATION_TASKS_TABLE, else the local stack's.",
    ),
]
DirectOption = Annotated[
    bool, typer.Option("--direct", help="Use the task table with your AWS credentials instead of the service.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
TaskId = Annotated[str, argument("TASK_ID", "The task's id.")]
IndexTableOption = Annotated[
    str | None,
    option(
        "--index-table",
        "The reference index. Default: DELEGATION_REFERENCES_TABLE, else the local stack's.",
    ),
]
KeyOption = Annotated[
    str | None,
    option("--key", "The idempotency key. A call with the same key attaches to the same task. Default: a new UUID."),
]
WaitOption = Annotated[
    bool,
    typer.Option("--wait", help="Follow the task until it has an outcome; if it fails, the exit status is 1."),
]
_OPTIONS: Final[Mapping[str, tuple[Any, Any]]] = {
    "stack": (StackOption, None),
    "as_json": (JsonOption, False),
    "tasks_table": (TasksTableOption, None),
    "direct": (DirectOption, False),
    "index_table": (IndexTableOption, None),
    "yes": (YesOption, False),
    "key": (KeyOption, None),
    "wait": (WaitOption, False),
}
"""The common options, by the members of Call that have their values; and their defaults."""


_NO_FILTERS: Final[Mapping[str, Any]] = {}


@dataclass
class Call:
    """A call of a command with its options' values; `given` are those of its operation's table, as in a request."""

    ctx: typer.Context
    as_json: bool = False
    stack: Path | None = None
    tasks_table: str | None = None
    direct: bool = False
    index_table: str | None = None
    yes: bool = False
    key: str | None = None
    wait: bool = False
    given: Mapping[str, str] = field(default_factory=dict)
    filters: Mapping[str, Any] = field(default_factory=dict)
    output: "Output" = field(init=False)

    def __post_init__(self) -> None:
        from delegation.cli.output import open_output  # noqa: PLC0415 - `--help` needs no rich

        self.output = open_output(self.ctx, as_json=self.as_json)

    @cached_property
    def connection(self) -> "Connection":
        """The command's connections, closed when it ends. Raises SettingsInvalid."""
        from delegation.cli.connection import Connection  # noqa: PLC0415 - `--help` needs no client

        return Connection.of(self.ctx, self.stack)

    def tasks(self) -> "TaskSource":
        """Return the service's tasks, or the task table's if a task table is named."""
        if self.direct or self.tasks_table is not None:
            from delegation.cli.tasks.direct import DirectTasks  # noqa: PLC0415 - loads the task store

            return DirectTasks.of(self.connection, self.tasks_table)
        from delegation.cli.tasks.source import ApiTasks  # noqa: PLC0415 - `--help` needs no client

        return ApiTasks(self.connection.operator_client())

    def pauses(self) -> "PauseSource":
        """Return the service's pauses, or the task table's if a task table is named."""
        if self.direct or self.tasks_table is not None:
            from delegation.cli.tasks.direct import DirectPauses  # noqa: PLC0415 - loads the task store

            return DirectPauses.of(self.connection, self.tasks_table)
        return self.connection.operator_client()

    def confirm(self, question: str, *, otherwise: str | None = None) -> None:
        """At a terminal, ask unless --yes is given; a no raises Abort. Elsewhere raise `otherwise` as BadParameter."""
        if self.yes:
            return
        if at_a_terminal():
            typer.confirm(question, abort=True, err=True)
        elif otherwise is not None:
            raise typer.BadParameter(otherwise, param_hint="--yes")

    def confirm_deletion(self, scope: str) -> None:
        self.confirm(f"This permanently deletes every file {scope}. Continue?")


def group(name: str) -> typer.Typer:
    """Return the application of a built-in group of commands, with its help from the list of all."""
    from delegation.cli.main import BUILT_IN  # noqa: PLC0415 - it is loaded by now

    return typer.Typer(cls=WordGroup, no_args_is_help=True, help=BUILT_IN[name].help)


def at_a_terminal() -> bool:
    return sys.stdin.isatty()


def command(
    app: typer.Typer | None = None,
    name: str | None = None,
    takes: str = "stack",
    table: "OptionTable | None" = None,
    filters: Mapping[str, Any] = _NO_FILTERS,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command of a function of a Call; `takes` names options of _OPTIONS, `table` is that of its operation. The
    values of `filters`, options by name, are the call's filters."""
    of_table = [] if table is None else [option for option in table.options if option.argument is not None]
    names: Sequence[str] = (*takes.split(), "as_json")

    def decorated(run: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(run)
        def called(ctx: typer.Context, **values: Any) -> None:
            texts = {option.name: _text_of(values.pop(_parameter(option).name)) for option in of_table}
            given = {name: text for name, text in texts.items() if text is not None}
            chosen = {name: values.pop(name) for name in filters}
            run(Call(ctx, **{name: values.pop(name) for name in names}, given=given, filters=chosen), **values)

        keyword = inspect.Parameter.KEYWORD_ONLY
        _, *all_own = inspect.signature(run, eval_str=True).parameters.values()
        arguments = [parameter for parameter in all_own if parameter.kind is not keyword]
        own = [parameter for parameter in all_own if parameter.kind is keyword]
        common = [
            inspect.Parameter(name, keyword, annotation=_OPTIONS[name][0], default=_OPTIONS[name][1]) for name in names
        ]
        ctx = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
        chosen = [inspect.Parameter(name, keyword, annotation=kind, default=None) for name, kind in filters.items()]
        signature = inspect.Signature([ctx, *arguments, *chosen, *own, *map(_parameter, of_table), *common])
        called.__signature__ = signature  # type: ignore[attr-defined]
        called.__annotations__ = {parameter.name: parameter.annotation for parameter in signature.parameters.values()}
        return app.command(name)(called) if app is not None else called

    return decorated


def flag_of(option: "Option") -> str:
    """Return how the command of its operation takes an option, in capitals if it has no argument."""
    return option.name.upper() if option.argument is None else f"--{option.argument.flag or option.name}"


def _parameter(option: "Option") -> inspect.Parameter:
    argument, flag = option.argument, flag_of(option)
    assert argument is not None  # noqa: S101 - the caller asks for no other
    is_flag = argument.type is bool
    shown: dict[str, Any] = (
        {} if is_flag else {"metavar": argument.metavar, "min": argument.least, "show_default": False}
    )
    annotation: Any = Annotated[
        bool if is_flag else argument.type | None, typer.Option(flag, help=argument.help, **({} if is_flag else shown))
    ]
    name = flag.removeprefix("--").replace("-", "_")
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=False if is_flag else None
    )


def _text_of(value: Any) -> str | None:
    """Return the value of an option as a request has it, None if it is not given."""
    if value is None or value is False or value == []:
        return None
    return "true" if value is True else ",".join(map(str, value)) if isinstance(value, list) else str(value)
