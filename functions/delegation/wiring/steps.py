"""The steps of the state machine that need no behavior, each with what its role permits."""

from delegation.orchestration.job_runs import EmrServerless, ExternalJobRuns
from delegation.orchestration.steps import Steps
from delegation.tasks.work.parts.hooks import JobsLeftToSweeper
from delegation.wiring.deployment import deployment
from delegation.wiring.jobs import started_jobs, watched_jobs
from delegation.wiring.tasks import dispatch_queue


def acquiring() -> Steps:
    return _steps(None)


def starting() -> Steps:
    return _steps(started_jobs())


def watching(*, dispatches: bool = False) -> Steps:
    return _steps(watched_jobs(), dispatches=dispatches)


def _steps(jobs: EmrServerless | None, *, dispatches: bool = False) -> Steps:
    queue = dispatch_queue() if dispatches else None
    deployed = deployment(queue, ExternalJobRuns(jobs) if jobs else JobsLeftToSweeper())
    return Steps(deployed.tasks, deployed.task_types, jobs=jobs)
