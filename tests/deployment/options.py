"""Whether the commands that a page names exist with their options; nothing is run."""

import contextlib
import io
import re
import shlex
from functools import cache
from importlib import import_module
from typing import Any, Final

import click
import typer
from botocore import xform_name
from botocore.loaders import create_loader

from delegation.cli.main import build

_OF_ANY_COMMAND: Final = {"--query", "--output", "--region", "--profile"}
"""AWS CLI User Guide, "Command line options": those that the models of the services do not have."""
_NOT_OF_A_MODEL: Final = ("aws s3 cp",)
"""Commands of the AWS CLI itself (AWS CLI Command Reference, "s3")."""
_OF_THE_CLI: Final = {("sns", "subscribe"): {"--notification-endpoint"}}
"""Options that the AWS CLI calls otherwise than the model (AWS CLI Command Reference, "sns subscribe")."""
_MODELS: Final = {"s3api": "s3"}
"""The models of services that the AWS CLI calls otherwise."""
_INNER: Final = re.compile(r"^\w+(?:=\$\((.*)\)|\(\) \{ (.*); \})$")
"""A command whose output is kept in a variable, or that is given a name."""


class WrongCommand(ValueError):
    """A command lacks an option or an argument, or does not exist."""


def require_options(text: str, *, whole: bool) -> None:
    """Raise WrongCommand for what a command of this project or of AWS does not have; `whole` is one to be pasted."""
    words = _words(_INNER.sub(r"\1\2", text))
    if words[0] == "aws":
        _require_aws(text, words)
    if words[0] == "delegation":
        _require_delegation(words[1:], whole=whole)
    elif words[:2] == ["python", "-m"] and (unknown := _options(words[3:]) - _module_options(words[2])):
        raise WrongCommand(f"`{text}`: {words[2]} has no {', '.join(sorted(unknown))}")


def _words(text: str) -> list[str]:
    """Return a command's words with its variables and inner commands replaced by a word."""
    return shlex.split(re.sub(r"\$\([^()]*\)|\$\w+", "value", text))


def _options(words: list[str]) -> set[str]:
    return {word.partition("=")[0] for word in words if word.startswith("-")}


def _require_delegation(words: list[str], *, whole: bool) -> None:
    command, rest = _application(), words
    try:
        while rest and hasattr(command, "resolve_command"):
            _, command, rest = command.resolve_command(click.Context(command), rest)
        if whole:
            command.make_context(command.name, list(rest))
    except click.UsageError as error:
        raise WrongCommand(f"`delegation {' '.join(words)}`: {error.format_message()}") from None
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    if unknown := _options(rest) - known:
        raise WrongCommand(f"`delegation {' '.join(words)}` has no {', '.join(sorted(unknown))}")


@cache
def _application() -> Any:
    return typer.main.get_command(build(()))


@cache
def _module_options(name: str) -> set[str]:
    """Return the options on the page of help of a module that `python -m` runs; raises WrongCommand."""
    try:
        module = import_module(name)
        main = getattr(module, "main", None) or import_module(f"{name}.__main__").main
    except ModuleNotFoundError as error:
        raise WrongCommand(f"`python -m {name}`: there is no module {error.name}") from None
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        main(["--help"])
    return set(re.findall(r"--[a-z][a-z-]*", shown.getvalue()))


def _require_aws(text: str, words: list[str]) -> None:
    if text.startswith(_NOT_OF_A_MODEL):
        return
    _, service, operation, *rest = words
    model = _model(service)
    shapes, found = model["shapes"], {xform_name(name, "-"): body for name, body in model["operations"].items()}
    if operation not in found:
        raise WrongCommand(f"`{text}`: {service} has no {operation}")
    members = shapes[found[operation]["input"]["shape"]]["members"] if "input" in found[operation] else {}
    known = {f"--{xform_name(name, '-')}" for name in members} | _OF_ANY_COMMAND
    known |= _OF_THE_CLI.get((service, operation), set())
    known |= {f"--no-{option[2:]}" for option in known}
    if unknown := _options(rest) - known:
        raise WrongCommand(f"`{text}`: {service} {operation} has no {', '.join(sorted(unknown))}")


@cache
def _model(service: str) -> dict[str, Any]:
    found: dict[str, Any] = create_loader().load_service_model(_MODELS.get(service, service), "service-2")
    return found
