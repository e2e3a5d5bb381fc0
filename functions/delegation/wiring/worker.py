import threading
from datetime import timedelta

from delegation.items import code_of
from delegation.metrics import WORKER_ERRORS, MetricLines
from delegation.orchestration.job_engine import JobEngine
from delegation.tasks.admission import WorkersAdmission
from delegation.tasks.work.behaviors import Behaviors
from delegation.tasks.work.hooks import SPARK, JobsLeftToSweeper
from delegation.tasks.work.worker import Worker, WorkerSettings
from delegation.wiring.deployment import DeployedTasks, deployment
from delegation.wiring.steps import all_behaviors, application_is_named, ended_by, started_jobs


def added_worker(settings: WorkerSettings, stop: threading.Event) -> tuple[DeployedTasks, Worker]:
    """Return a worker that runs the added behaviors alone: it needs a store of tasks, and nothing of a catalog."""
    deployed = deployment(None, JobsLeftToSweeper(), dispatch_grace=timedelta(0))
    behaviors = Behaviors(deployed.added)
    admission = WorkersAdmission(deployed.tasks, deployed.store, behaviors.task_types)
    return deployed, Worker(deployed.tasks, behaviors, settings, stop=stop, idle=count_idle, admission=admission)


def worker(settings: WorkerSettings, stop: threading.Event) -> tuple[DeployedTasks, Worker]:
    """Return a worker; Spark jobs run on EMR Serverless if an application is named, else all tasks run inline. A task
    that it hands over is due at once, because no execution waits for it."""
    jobs = started_jobs() if application_is_named() else None
    deployed = deployment(None, ended_by(jobs, JobsLeftToSweeper()), dispatch_grace=timedelta(0))
    engines = {SPARK: JobEngine(deployed.tasks, jobs)} if jobs else {}
    behaviors = all_behaviors(deployed)
    admission = WorkersAdmission(deployed.tasks, deployed.store, behaviors.task_types)
    return deployed, Worker(
        deployed.tasks, behaviors, settings, stop=stop, engines=engines, idle=count_idle, admission=admission
    )


def count_idle(error: Exception) -> None:
    """Print the metric of a worker that could not work."""
    MetricLines.of_environment().put({WORKER_ERRORS: 1}, action="lease", error_code=code_of(error))
