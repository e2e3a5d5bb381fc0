"""Job runs on EMR Serverless."""

from delegation.orchestration.job_runs import EmrServerless, ExternalJobRuns, JobConfiguration
from delegation.tasks.work.parts.hooks import ExternalJobs
from delegation.wiring.clients import QUICK, aws
from delegation.wiring.settings import JobSettings, JobStartSettings, OptionalJobSettings

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
    )
    return EmrServerless(aws("emr-serverless"), settings.application_id, configuration, former=settings.former)


def application_is_named() -> bool:
    return OptionalJobSettings.read().application_id is not None


def ended_by(jobs: EmrServerless | None, otherwise: ExternalJobs) -> ExternalJobs:
    """Return what ends the job runs of lost attempts: the job service if there is one."""
    return otherwise if jobs is None else ExternalJobRuns(jobs, rest_seconds=_REST_SECONDS)
