"""`delegation worker`: a plain process that leases tasks and runs them, on Kubernetes or a laptop."""

import contextlib
import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer
from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter
from pydantic import ValidationError

from delegation.cli.calls import Call, command, defaulted, optional, switch
from delegation.cli.errors import MISUSE, CommandError
from delegation.configuration import problems_of
from delegation.environment import parse_properties
from delegation.idempotency.settings import KeySettings
from delegation.misspellings import misspelled
from delegation.tasks.errors import TaskError
from delegation.tasks.life.policy import InvalidProperty
from delegation.tasks.work.attempt_context import WorkOutlivedLease
from delegation.tasks.work.maintenance import ensure_submitted
from delegation.tasks.work.plugins import BadPlugin
from delegation.tasks.work.worker import Worker, WorkerSettings, end_process, owner_name
from delegation.timestamps import parse_duration
from delegation.wiring.deployment import DeployedTasks
from delegation.wiring.maintenance import store_maintenance
from delegation.wiring.notifier import delivering
from delegation.wiring.settings import BehaviorSettings, IdempotencySettings, TaskSettings
from delegation.wiring.steps import application_is_named
from delegation.wiring.types import policies_of
from delegation.wiring.worker import added_worker, spark_worker, worker
from polaris_common.errors import DelegationError

if TYPE_CHECKING:
    from delegation.rewrites.worker import SharedWorker, WorkerLimits

logger = logging.getLogger(__name__)
_PROPERTIES: Final = "DELEGATION_PROPERTIES"


class BadSettings(CommandError):
    code = "BAD_SETTINGS"

    def __init__(self, reason: str) -> None:
        super().__init__(
            reason, "Correct the setting and start the worker again. The page Running workers lists all settings."
        )


@command(takes="")
def worker_command(
    call: Call,
    *,
    properties: Annotated[
        Path | None,
        typer.Option(help="A file with the service's properties: lines name=value, or a JSON object.", dir_okay=False),
    ] = None,
    poll: Annotated[str, typer.Option(help="The polling interval while no task is due.")] = "5s",
    added_only: bool = switch("--added-only", "Run only the behaviors that DELEGATION_BEHAVIORS adds."),
    engine: Literal["inline", "spark"] = defaulted(
        "--engine", "With spark: run only rewrites, in one Spark session of this process.", "inline"
    ),
    tasks_at_once: int | None = optional(
        "--tasks-at-once", "With --engine spark: the number of tables to rewrite at a time. Default: 4.", min=1
    ),
    idle: str | None = optional("--idle", "With --engine spark: end after this time without a task."),
    budget: str | None = optional("--budget", "With --engine spark: lease no more tasks after this time."),
) -> None:
    """Run the service's tasks in this process, until SIGTERM.

    On SIGTERM or Ctrl-C, the worker hands its tasks over at the next checkpoint.
    """
    stop = _Stop()
    with contextlib.ExitStack() as until_the_end:
        until_the_end.enter_context(stop.on_signals())
        try:
            spark = _limits(engine, tasks_at_once, idle, budget)
            settings = _settings(properties, poll)
            deployed, stop.worker = _worker(settings, stop.event, until_the_end, added_only=added_only, spark=spark)
        except (BadSettings, BadPlugin, InvalidProperty) as error:
            call.output.problem(error)
            raise typer.Exit(MISUSE) from error
        _log_to_stderr()
        logger.info("started", extra={"action": "start", "owner": stop.worker.owner})
        is_partial = added_only or spark is not None
        _ensure_maintenance(deployed, added_only=is_partial)
        try:
            with contextlib.nullcontext() if is_partial else delivering(stop.event):
                stop.worker.run()
        except WorkOutlivedLease as error:
            end_process(error)
        except DelegationError as error:
            logger.critical("ending this process: %s", error, extra={"action": "end", "error_code": error.code})
            raise typer.Exit(1) from error


class _Stop:
    """Stops the worker on SIGTERM or SIGINT, also before the worker exists."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.worker: Worker | SharedWorker | None = None

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        """Stop the worker on a signal; afterwards restore the previous signal handlers."""
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, _signal: int, _frame: FrameType | None) -> None:
        # In a thread, because the main thread may hold the lock of the event to be set.
        threading.Thread(target=self._stop).start()

    def _stop(self) -> None:
        self.event.set()
        if self.worker is not None:
            self.worker.stop()


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LambdaPowertoolsFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("delegation").setLevel(logging.INFO)
    # The command's own handler, which is for people, would print each item a second time.
    logging.getLogger("delegation.items").handlers.clear()


def _ensure_maintenance(deployed: DeployedTasks, *, added_only: bool) -> None:
    """Submit the recurring maintenance task, in case no sweeper has, and the sweep of a persistence."""
    try:
        if not added_only:
            ensure_submitted(deployed.tasks, store_maintenance(deployed))
        if TaskSettings.read().store == "persistence":
            from delegation.wiring.persistent_tasks import ensure_swept  # noqa: PLC0415 - few workers need it

            ensure_swept(deployed.tasks)
    except TaskError as error:
        logger.warning("the maintenance task was not submitted", extra={"action": "maintain", "error_code": error.code})


def _settings(properties: Path | None, poll: str) -> WorkerSettings:
    """Read the command's settings, and the properties of the file if given. Raises BadSettings."""
    if properties is not None:
        given = read_properties(properties)
        policies_of(given)
        KeySettings.from_properties(given)
        os.environ[_PROPERTIES] = json.dumps(given)
    for name in os.environ.keys() - {_PROPERTIES}:
        if misspelled(name, (_PROPERTIES,)):  # without the operator's limits more would be deleted than they allow
            raise BadSettings(f"{name} is not a variable of the service; did you mean {_PROPERTIES}?")
    return WorkerSettings(owner=owner_name(socket.gethostname(), os.getpid()), poll=_duration("--poll", poll))


def _duration(option: str, text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise BadSettings(f"{option}: {error}") from None


def _limits(engine: str, tasks_at_once: int | None, idle: str | None, budget: str | None) -> "WorkerLimits | None":
    """Return the limits of a worker with a Spark session, None for another worker. Raises BadSettings."""
    if engine != "spark":
        if idle is not None or budget is not None:
            raise BadSettings("--idle and --budget need --engine spark")
        if tasks_at_once is not None:
            raise BadSettings("--tasks-at-once needs --engine spark. Other workers run one task at a time")
        return None
    from delegation.rewrites.worker import WorkerLimits  # noqa: PLC0415 - other workers rewrite nothing

    return WorkerLimits(
        tasks_at_once or 4,
        idle=None if idle is None else _duration("--idle", idle),
        budget=None if budget is None else _duration("--budget", budget),
    )


def _worker(
    settings: WorkerSettings,
    stop: threading.Event,
    until_the_end: contextlib.ExitStack,
    *,
    added_only: bool,
    spark: "WorkerLimits | None",
) -> "tuple[DeployedTasks, Worker | SharedWorker]":
    """Create a worker from the environment, with a Spark session if it gets limits. Raises BadSettings."""
    try:
        store = TaskSettings.read()
        store.policies()
        if store.store == "persistence" and application_is_named():
            raise BadSettings(
                "DELEGATION_EMR_APPLICATION_ID cannot be combined with DELEGATION_TASK_STORE=persistence, because "
                "Spark jobs read a task table"
            )
        if added_only and not BehaviorSettings.read().behaviors:
            raise BadSettings("--added-only needs behaviors in DELEGATION_BEHAVIORS, which names none")
        if added_only and spark is not None:
            raise BadSettings("--added-only cannot be combined with --engine spark, which runs only rewrites")
        if added_only:
            return added_worker(settings, stop)
        if spark is not None:
            return until_the_end.enter_context(spark_worker(settings, spark, stop))
        if store.store == "table":
            IdempotencySettings.read()
        return worker(settings, stop)
    except ValidationError as error:
        lines = (f"{problem.setting} {problem.reason}" for problem in problems_of(error))
        raise BadSettings("\n".join(lines)) from None
    except ModuleNotFoundError as error:
        if spark is None or error.name not in {"py4j", "pyspark"}:
            raise
        raise BadSettings("--engine spark: Spark is not installed; install the extra [spark]") from None


def read_properties(path: Path) -> Mapping[str, str]:
    """Read a JSON object of strings, or lines `name=value` or `name: value` (`#`, `!`: comment). Raises BadSettings."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(f"{path} cannot be read: {type(error).__name__}") from None
    if not text.lstrip().startswith("{"):
        try:
            return parse_properties(text)
        except ValueError as error:
            raise BadSettings(f"{path}, {error}") from None
    try:
        document: Any = json.loads(text)
    except ValueError as error:
        raise BadSettings(f"{path} is not JSON: {error}") from None
    for name, value in document.items():
        if not isinstance(value, str):
            raise BadSettings(f"{path}: the value of {name} is not a string")
    return {str(name): str(value) for name, value in document.items()}
