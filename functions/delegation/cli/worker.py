"""`delegation worker`: a plain process that leases tasks and runs them, for Kubernetes or a laptop."""

import json
import os
import signal
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Final

import typer
from pydantic import ValidationError

from delegation import wiring
from delegation.cli.errors import CommandError
from delegation.cli.options import JsonOption
from delegation.cli.output import output_of
from delegation.settings import IdempotencySettings, TaskSettings, policies_of
from delegation.tasks.maintenance import ensure_submitted
from delegation.tasks.policy import InvalidProperty, parse_duration
from delegation.tasks.worker import Worker, WorkerSettings, owner_name

MISUSE: Final = 2
_PROPERTIES: Final = "DELEGATION_PROPERTIES"


class BadSettings(CommandError):
    """The worker cannot start with these settings."""

    code = "BAD_SETTINGS"

    def __init__(self, reason: str) -> None:
        super().__init__(reason, "Correct it and start again; docs/command.md lists what a worker reads.")


def worker_command(
    ctx: typer.Context,
    properties: Annotated[
        Path | None,
        typer.Option(help="Properties of the service, as a Java properties file or a JSON object.", dir_okay=False),
    ] = None,
    poll: Annotated[str, typer.Option(help="How long to wait when no task is due, like 5s.")] = "5s",
    as_json: JsonOption = False,  # noqa: ARG001 - read from the context
) -> None:
    """Lease tasks that are due and run them, one after the other, until SIGTERM.

    Any number of workers share the task table and nothing else. On SIGTERM or Ctrl-C the current task is handed over
    to another worker at its next checkpoint.
    """
    try:
        worker = _worker(properties, poll)
    except (BadSettings, InvalidProperty) as error:
        output_of(ctx).problem(error)
        raise typer.Exit(MISUSE) from error

    def stop(_signal: int, _frame: FrameType | None) -> None:
        # In a thread: the main one may hold the lock of the event that `stop` sets.
        threading.Thread(target=worker.stop).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    worker.run()


def _worker(properties: Path | None, poll: str) -> Worker:
    """A worker by the environment, whose properties those of the file replace; checked before anything is leased."""
    if properties is not None:
        stated = read_properties(properties)
        policies_of(stated)
        os.environ[_PROPERTIES] = json.dumps(stated)
    try:
        wait = parse_duration(poll)
    except ValueError as error:
        raise BadSettings(f"--poll: {error}") from None
    try:
        TaskSettings().policies()
        IdempotencySettings()
        tasks = wiring.task_service()
        behaviors = wiring.all_behaviors(tasks)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise BadSettings(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    ensure_submitted(tasks, wiring.store_maintenance(tasks))
    settings = WorkerSettings(owner=owner_name(socket.gethostname(), os.getpid()), poll=wait)
    return Worker(tasks, behaviors, settings, stop=threading.Event())


def read_properties(path: Path) -> Mapping[str, str]:
    """A JSON object of texts, or lines `name=value` (`name: value`, `#` and `!` begin comments); BadSettings."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(f"{path}: {type(error).__name__}") from None
    if text.lstrip().startswith("{"):
        return _json_properties(path, text)
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        at = min((stripped.index(mark) for mark in "=:" if mark in stripped), default=0)
        if at == 0:
            raise BadSettings(f"{path}, line {number}: not name=value")
        found[stripped[:at].strip()] = stripped[at + 1 :].strip()
    return found


def _json_properties(path: Path, text: str) -> Mapping[str, str]:
    try:
        document: Any = json.loads(text)
    except ValueError as error:
        raise BadSettings(f"{path}: not JSON: {error}") from None
    for name, value in document.items():
        if not isinstance(value, str):
            raise BadSettings(f"{path}: {name}: not a text")
    return {str(name): str(value) for name, value in document.items()}
