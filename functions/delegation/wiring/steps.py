"""The steps of the state machine, each with what its role permits, and the job runs on EMR Serverless."""

from typing import TYPE_CHECKING

from delegation.orchestration.job_runs import EmrServerless, ExternalJobRuns, JobConfiguration
from delegation.tasks.work.behaviors import Behaviors
from delegation.tasks.work.hooks import ExternalJobs, JobsLeftToSweeper
from delegation.wiring.clients import QUICK, aws
from delegation.wiring.deployment import DeployedTasks, behaviors_of, deployment
from delegation.wiring.settings import JobSettings, JobStartSettings, OptionalJobSettings
from delegation.wiring.tasks import dispatch_queue
from delegation.wiring.types import TYPES

if TYPE_CHECKING:
    from delegation.orchestration.steps import Steps

_REST_SECONDS = 30
"""How long a sweep makes no call to a job service that did not answer."""


def watched_jobs() -> EmrServerless:
    """Return the job service of a process that reads and cancels job runs."""
    settings = JobSettings.read()
    return EmrServerless(aws("emr-serverless", QUICK), settings.application_id, former=settings.former)


def started_jobs() -> EmrServerless:
    """Return the job service of a process that also starts job runs."""
    settings = JobStartSettings.read()
    configuration = JobConfiguration(
        application_id=settings.application_id,
        role_arn=settings.role_arn,
        entry_point=settings.entry_point,
        spark_parameters=settings.spark_parameters,
        record_bucket=settings.record_bucket,
        jars=tuple(filter(None, settings.jars.split(","))),
    )
    return EmrServerless(aws("emr-serverless"), settings.application_id, configuration, former=settings.former)


def application_is_named() -> bool:
    return OptionalJobSettings.read().application_id is not None


def ended_by(jobs: EmrServerless | None, otherwise: ExternalJobs) -> ExternalJobs:
    """Return what ends the job runs of lost attempts: the job service if there is one."""
    return otherwise if jobs is None else ExternalJobRuns(jobs, rest_seconds=_REST_SECONDS)


def acquiring() -> "Steps":
    return _steps(None)


def starting() -> "Steps":
    return _steps(started_jobs())


def watching(*, dispatches: bool = False) -> "Steps":
    return _steps(watched_jobs(), dispatches=dispatches)


def _steps(jobs: EmrServerless | None, *, dispatches: bool = False) -> "Steps":
    from delegation.orchestration.steps import Steps  # noqa: PLC0415 - the sweeper and workers take no step

    queue = dispatch_queue() if dispatches else None
    deployed = deployment(queue, ExternalJobRuns(jobs) if jobs else JobsLeftToSweeper())
    return Steps(deployed.tasks, deployed.task_types, jobs=jobs)


def all_behaviors(deployed: DeployedTasks) -> Behaviors:
    runners = dict.fromkeys(task_type.runner for task_type in TYPES.values() if task_type.runner is not None)
    return Behaviors([*(each for runner in runners for each in behaviors_of(runner, deployed)), *deployed.added])


def steps_with_behaviors() -> "Steps":
    from delegation.orchestration.steps import Steps  # noqa: PLC0415

    deployed = deployment()
    behaviors = all_behaviors(deployed)
    return Steps(deployed.tasks, behaviors.task_types, behaviors=behaviors)
