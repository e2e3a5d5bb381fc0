"""Whether the commands that a page names exist with their options and lose nothing of the answer; nothing is run."""

import contextlib
import io
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from itertools import pairwise
from typing import Any, Final

import click
import jmespath
import typer
from botocore import xform_name
from botocore.loaders import create_loader

from delegation.cli.main import ENTRY_POINTS, build
from tests.deployment.shell import simple_commands

_OF_ANY_COMMAND: Final = {"--query", "--output", "--region", "--profile"}
"""AWS CLI User Guide, "Command line options": those that the models of the services do not have."""
_OF_PAGES: Final = {"--max-items", "--page-size", "--starting-token"}
"""AWS CLI User Guide, "Using the pagination options in the AWS CLI": those of operations that answer in pages."""
_NOT_OF_A_MODEL: Final[dict[tuple[str, ...], set[str]]] = {
    ("s3", "cp"): {"--recursive", "--sse", "--sse-kms-key-id"},
    ("logs", "tail"): {"--since", "--follow", "--format", "--filter-pattern", "--log-stream-names"},
}
"""Commands of the AWS CLI itself with options (AWS CLI Command Reference, "s3 cp", "logs tail")."""
_OF_THE_CLI: Final = {("sns", "subscribe"): {"--notification-endpoint"}}
"""Options that the AWS CLI calls otherwise than the model (AWS CLI Command Reference, "sns subscribe")."""
_MODELS: Final = {"s3api": "s3"}
"""The models of services that the AWS CLI calls otherwise."""
_ONLY_THE_FIRST: Final = re.compile(r"[Oo]nly the first \d+ \w+")
"""How the models say that an operation leaves out the rest, and has no pages."""


class WrongCommand(ValueError):
    """A command lacks an option or an argument, or does not exist."""


def require_options(text: str, *, whole: bool) -> None:
    """Raise WrongCommand for what a command of this project or of AWS does not have; `whole` is one to be pasted."""
    for words in simple_commands(text):
        if words[0] == "aws":
            require_aws(words, whole=whole)
        elif words[0] == "delegation":
            require_delegation(words[1:], whole=whole)
        elif words[:2] == ["python", "-m"] and (unknown := _options(words[3:]) - _module_options(words[2])):
            raise WrongCommand(f"`{text}`: {words[2]} has no {', '.join(sorted(unknown))}")


def _options(words: list[str]) -> set[str]:
    return {word.partition("=")[0] for word in words if word.startswith("-")}


def require_delegation(words: list[str], *, whole: bool) -> None:
    """Raise WrongCommand for words after `delegation` that it does not have, or that it refuses as a `whole`."""
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
    return typer.main.get_command(build(entry_points(group=ENTRY_POINTS)))


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


def require_aws(words: list[str], *, whole: bool) -> None:
    """Raise WrongCommand for an option that is missing or unknown, and for an answer of which a part is lost."""
    text = " ".join(words)
    _, service, operation, *rest = words
    if (service, operation) in _NOT_OF_A_MODEL:
        unknown = _options(rest) - _NOT_OF_A_MODEL[service, operation] - _OF_ANY_COMMAND
    elif operation == "wait":
        unknown = _unknown_of_a_waiter(text, service, rest)
    else:
        unknown = _options(rest) - _known(text, service, operation)
        if whole and (absent := _required(service, operation) - _options(rest)):
            raise WrongCommand(f"`{text}` lacks {', '.join(sorted(absent))}")
        _require_whole_answer(text, service, operation, rest)
    if unknown:
        raise WrongCommand(f"`{text}`: {service} {operation} has no {', '.join(sorted(unknown))}")


def _known(text: str, service: str, operation: str) -> set[str]:
    """Return the options of a command; raises WrongCommand."""
    found = _operations(service)
    if operation not in found:
        raise WrongCommand(f"`{text}`: {service} has no {operation}")
    known = {f"--{xform_name(name, '-')}" for name in _input(service, operation).get("members", {})}
    known |= _OF_ANY_COMMAND | _OF_THE_CLI.get((service, operation), set())
    known |= _OF_PAGES if _has_pages(service, operation) else set()
    return known | {f"--no-{option[2:]}" for option in known}


def _required(service: str, operation: str) -> set[str]:
    return {f"--{xform_name(name, '-')}" for name in _input(service, operation).get("required", [])}


def _unknown_of_a_waiter(text: str, service: str, rest: list[str]) -> set[str]:
    waiters = create_loader().load_service_model(_MODELS.get(service, service), "waiters-2")["waiters"]
    named = {xform_name(name, "-"): body["operation"] for name, body in waiters.items()}
    if rest[0] not in named:
        raise WrongCommand(f"`{text}`: {service} waits for no {rest[0]}")
    return _options(rest) - _known(text, service, xform_name(named[rest[0]], "-"))


def _require_whole_answer(text: str, service: str, operation: str, rest: list[str]) -> None:
    """Raise WrongCommand if a part of the answer is cut off, or a name of `--query` is in none."""
    body = _operations(service)[operation]
    if cut := _ONLY_THE_FIRST.search(body.get("documentation", "")):
        raise WrongCommand(f"`{text}`: {service} {operation} answers with {cut[0].lower()}")
    if "--query" not in rest:
        return
    nodes = list(_nodes(jmespath.compile(rest[rest.index("--query") + 1]).parsed))
    names = {node["value"] for node in nodes if node["type"] == "field"}
    if unknown := names - _members(service, body["output"]["shape"]):
        raise WrongCommand(f"`{text}`: the answer of {service} {operation} has no {', '.join(sorted(unknown))}")
    is_text_list = operation.startswith("list-") and ("--output", "text") in pairwise(rest)
    if is_text_list and any(node["type"] == "index" for node in nodes) and _has_pages(service, operation):
        raise WrongCommand(
            f"`{text}`: with text the AWS CLI applies --query to each page, so an index takes one of each"
        )


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node["children"]:
        yield from _nodes(child) if isinstance(child, dict) else ()


def _members(service: str, shape: str) -> set[str]:
    """Return the names of all members that an answer may have at any depth, keys of maps excepted."""
    shapes, found, seen, left = _model(service)["shapes"], set[str](), set[str](), [shape]
    while left:
        body = shapes[name := left.pop()]
        if name not in seen:
            seen.add(name)
            found |= body.get("members", {}).keys()
            inner = [*body.get("members", {}).values(), *(body[key] for key in ("member", "value") if key in body)]
            left += [one["shape"] for one in inner]
    return found


@cache
def _operations(service: str) -> dict[str, Any]:
    return {xform_name(name, "-"): body for name, body in _model(service)["operations"].items()}


def _input(service: str, operation: str) -> dict[str, Any]:
    body = _operations(service)[operation]
    found: dict[str, Any] = _model(service)["shapes"][body["input"]["shape"]] if "input" in body else {}
    return found


def _has_pages(service: str, operation: str) -> bool:
    pages = create_loader().load_service_model(_MODELS.get(service, service), "paginators-1")["pagination"]
    return operation in {xform_name(name, "-") for name in pages}


@cache
def _model(service: str) -> dict[str, Any]:
    found: dict[str, Any] = create_loader().load_service_model(_MODELS.get(service, service), "service-2")
    return found
