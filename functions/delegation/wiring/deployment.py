"""The task service with the behaviors of this deployment, and what starts and admits its tasks."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import Final

from delegation.orchestration.dispatch import Dispatcher, Inbox
from delegation.tasks.admission import Admission, announce_nothing
from delegation.tasks.life.declared import KnownTypes, named
from delegation.tasks.life.policy import unknown_types
from delegation.tasks.work.behaviors import TaskBehavior
from delegation.tasks.work.hooks import DispatchQueue, ExternalJobs, JobsLeftToSweeper
from delegation.tasks.work.plugins import load
from delegation.tasks.work.service import TaskService
from delegation.wiring.clients import aws
from delegation.wiring.settings import SWEEPS, BehaviorSettings, DispatcherSettings, TaskSettings
from delegation.wiring.tasks import StoredTasks, task_store, tasks_over
from delegation.wiring.types import TYPES

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeployedTasks:
    """The tasks of this deployment, its task types, and the behaviors that it adds to the built-in ones."""

    store: StoredTasks
    tasks: TaskService
    task_types: KnownTypes
    added: tuple[TaskBehavior, ...]


def deployment(
    queue: DispatchQueue | None = None,
    external_jobs: ExternalJobs = JobsLeftToSweeper(),  # noqa: B008 - it has no state
    *,
    dispatch_grace: timedelta | None = None,
) -> DeployedTasks:
    """Return the tasks with the behaviors of DELEGATION_BEHAVIORS; without `queue` the process cannot dispatch. By
    default lost attempts that may have job runs are left to the sweeper; `external_jobs` ends them here."""
    settings = TaskSettings.read()
    policies = settings.policies()
    if dispatch_grace is not None:
        policies = replace(policies, dispatch=replace(policies.dispatch, grace=dispatch_grace))
    store = task_store()
    plain = tasks_over(store, policies, queue, external_jobs)
    plugins = load(added_behaviors(settings), plain, existing=frozenset(TYPES))
    task_types = KnownTypes(TYPES.known | plugins.versions)
    _warn_of(tuple(sorted(set(unknown_types(settings.properties, task_types).values()))))
    tasks = plain.having(policies=plugins.policies(policies))
    return DeployedTasks(store, tasks, task_types, plugins.behaviors(tasks))


def behaviors_of(runner: str, deployed: DeployedTasks) -> Iterable[TaskBehavior]:
    """Return the behaviors that the function `module:function` makes for a process."""
    made: Callable[[DeployedTasks], Iterable[TaskBehavior]] = named(runner)
    return made(deployed)


def added_behaviors(settings: TaskSettings) -> tuple[str, ...]:
    """Return the names of the added behaviors: the environment's, and the store's own."""
    named = BehaviorSettings.read().behaviors
    return named if settings.store == "table" else (*named, SWEEPS)


@cache
def _warn_of(unknown: tuple[str, ...]) -> None:
    """Warn once per process of retry properties without effect: a newer deployment may have set them."""
    if unknown:
        text = (
            "retry properties of the task types %s have no effect: check their names, unless other processes run them"
        )
        logger.warning(text, ", ".join(unknown), extra={"action": "start"})


_THREADS: Final = 10
"""Tasks admitted at the same time, as many as a client has connections."""


def dispatcher(admitted: Callable[[str, int, str | None], None] = announce_nothing) -> Inbox:
    """Return what starts executions for queue messages and admits tasks; `admitted` is called with each."""
    dispatcher = Dispatcher(aws("stepfunctions"), DispatcherSettings.read().state_machine_arn)
    deployed = deployment()
    admission = Admission(
        deployed.tasks,
        deployed.store,
        deployed.task_types,
        dispatcher.start_execution,
        limits=deployed.tasks.policies.limits,
        threads=_THREADS,
        admitted=admitted,
    )
    return Inbox(dispatcher, admission)
