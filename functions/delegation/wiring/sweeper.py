"""The sweeper: tasks for who presumes them lost, and the maintenance that it submits."""

from delegation.tasks.work.external_jobs import NoExternalJobs
from delegation.wiring.deployment import DeployedTasks, deployment
from delegation.wiring.jobs import application_is_named, ended_by, watched_jobs
from delegation.wiring.maintenance import store_maintenance
from delegation.wiring.tasks import dispatch_queue

__all__ = ["DeployedTasks", "store_maintenance", "swept_tasks"]


def swept_tasks() -> DeployedTasks:
    """Tasks whose lost attempts' job runs are ended, if an application is named."""
    jobs = watched_jobs() if application_is_named() else None
    return deployment(dispatch_queue(), ended_by(jobs, NoExternalJobs()))
