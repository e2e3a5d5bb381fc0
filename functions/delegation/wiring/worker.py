"""The worker."""

import threading
from datetime import timedelta

from delegation.orchestration.job_engine import JobEngine
from delegation.tasks.work.behaviors import Behaviors
from delegation.tasks.work.external_jobs import SPARK, JobsLeftToSweeper
from delegation.tasks.work.worker import Worker, WorkerSettings
from delegation.wiring.deployment import DeployedTasks, deployment
from delegation.wiring.jobs import application_is_named, ended_by, started_jobs
from delegation.wiring.work import all_behaviors


def added_worker(settings: WorkerSettings, stop: threading.Event) -> Worker:
    """Return a worker that runs the added behaviors alone: it needs the task table, and nothing of a catalog."""
    deployed = deployment(None, JobsLeftToSweeper(), dispatch_grace=timedelta(0), counts=False)
    return Worker(deployed.tasks, Behaviors(deployed.added), settings, stop=stop)


def worker(settings: WorkerSettings, stop: threading.Event) -> tuple[DeployedTasks, Worker]:
    """Return a worker; Spark jobs run on EMR Serverless if an application is named, else all tasks run inline.

    A task that it hands over is due at once, because no execution waits for a worker's task.
    """
    jobs = started_jobs() if application_is_named() else None
    deployed = deployment(None, ended_by(jobs, JobsLeftToSweeper()), dispatch_grace=timedelta(0), counts=False)
    engines = {SPARK: JobEngine(deployed.tasks, jobs)} if jobs else {}
    return deployed, Worker(deployed.tasks, all_behaviors(deployed, counts=False), settings, stop=stop, engines=engines)
