"""`delegation worker`: a plain process that leases tasks and runs them, for Kubernetes or a laptop."""

import contextlib
import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Final

import typer
from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter
from pydantic import ValidationError

from delegation.cli.connection import first_problem
from delegation.cli.errors import CommandError
from delegation.cli.options import JsonOption
from delegation.cli.output import output_of
from delegation.operations.purge.behavior.limits import policies_of
from delegation.tasks.errors import TaskError
from delegation.tasks.life.policy import InvalidProperty
from delegation.tasks.work.lease_keeper import WorkOutlivedLease
from delegation.tasks.work.maintenance import ensure_submitted
from delegation.tasks.work.plugins import BadPlugin
from delegation.tasks.work.worker import Worker, WorkerSettings, owner_name
from delegation.timestamps import parse_duration
from delegation.wiring.deployment import DeployedTasks
from delegation.wiring.maintenance import store_maintenance
from delegation.wiring.settings import IdempotencySettings, TaskSettings
from delegation.wiring.worker import worker

logger = logging.getLogger(__name__)
MISUSE: Final = 2
FENCED: Final = 3
"""The exit status of a worker that ended itself because the work it held would not stop with its lease."""


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
    stop = _Stop()
    with stop.on_signals():
        try:
            deployed, stop.worker = _worker(properties, poll, stop.event)
        except (BadSettings, BadPlugin, InvalidProperty) as error:
            output_of(ctx).problem(error)
            raise typer.Exit(MISUSE) from error
        _log_to_stderr()
        logger.info("started", extra={"action": "start", "owner": stop.worker.owner})
        _ensure_maintenance(deployed)
        try:
            stop.worker.run()
        except WorkOutlivedLease as error:
            logger.critical("ending this process", extra={"action": "fence", "task_id": error.task_id})
            logging.shutdown()
            # Nothing else stops a thread: another worker may begin the same task in a moment.
            os._exit(FENCED)


class _Stop:
    """SIGTERM and SIGINT, also while the worker is still being made."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.worker: Worker | None = None

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        """Stop on a signal; afterwards signals do what they did before."""
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, _signal: int, _frame: FrameType | None) -> None:
        # In a thread: the main one may hold the lock of the event that is to be set.
        threading.Thread(target=self._stop).start()

    def _stop(self) -> None:
        self.event.set()
        if self.worker is not None:
            self.worker.stop()


def _log_to_stderr() -> None:
    """One JSON object a line, as the service's functions log."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LambdaPowertoolsFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("delegation").setLevel(logging.INFO)


def _ensure_maintenance(deployed: DeployedTasks) -> None:
    """Where no sweeper does: the task recurs by itself from then on."""
    try:
        ensure_submitted(deployed.tasks, store_maintenance(deployed))
    except TaskError as error:
        logger.warning("maintenance was not submitted", extra={"action": "maintain", "error_code": error.code})


def _worker(properties: Path | None, poll: str, stop: threading.Event) -> tuple[DeployedTasks, Worker]:
    """A worker by the environment, whose properties those of the file replace; checked before anything is leased."""
    if properties is not None:
        stated = read_properties(properties)
        policies_of(stated)
        os.environ["DELEGATION_PROPERTIES"] = json.dumps(stated)
    try:
        wait = parse_duration(poll)
    except ValueError as error:
        raise BadSettings(f"--poll: {error}") from None
    settings = WorkerSettings(owner=owner_name(socket.gethostname(), os.getpid()), poll=wait)
    try:
        TaskSettings.read().policies()
        IdempotencySettings.read()
        return worker(settings, stop)
    except ValidationError as error:
        raise BadSettings(first_problem(error)) from None


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
