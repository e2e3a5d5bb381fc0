import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, cast

from delegation.items import code_of
from delegation.metrics import WORKER_ERRORS, MetricLines
from delegation.orchestration.job_engine import JobEngine
from delegation.orchestration.job_runs import jar_settings
from delegation.tasks.admission import WorkersAdmission
from delegation.tasks.stores.admission import AdmissionStore
from delegation.tasks.work.behaviors import Behaviors
from delegation.tasks.work.hooks import SPARK, JobsLeftToSweeper
from delegation.tasks.work.service import TaskService
from delegation.tasks.work.worker import Worker, WorkerSettings
from delegation.wiring.deployment import DeployedTasks, deployment
from delegation.wiring.settings import OptionalJobSettings
from delegation.wiring.steps import all_behaviors, application_is_named, ended_by, started_jobs, watched_jobs

if TYPE_CHECKING:
    from delegation.rewrites.worker import SharedSession, SharedWorker, WorkerLimits


def added_worker(settings: WorkerSettings, stop: threading.Event) -> tuple[DeployedTasks, Worker]:
    """Return a worker that runs only the added behaviors: it needs a store of tasks, and no catalog."""
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


@contextmanager
def spark_worker(
    settings: WorkerSettings, limits: "WorkerLimits", stop: threading.Event
) -> "Iterator[tuple[DeployedTasks, SharedWorker]]":
    """Give a worker that rewrites tables with a Spark session of this process, until the end of the block."""
    from delegation.rewrites.behavior import SHARED  # noqa: PLC0415
    from delegation.rewrites.job import shared_session  # noqa: PLC0415 - other workers load no Spark
    from delegation.rewrites.runtimes import JARS  # noqa: PLC0415

    jars = [jar for jar in OptionalJobSettings.read().jars.split(",") if jar] or JARS
    jobs = watched_jobs() if application_is_named() else None
    deployed = deployment(None, ended_by(jobs, JobsLeftToSweeper()), dispatch_grace=timedelta(0))
    with shared_session(**jar_settings(jars)) as session:
        yield deployed, shared_worker(deployed.tasks, session, settings, limits, stop, engines=(SHARED, SPARK))


def shared_worker(
    tasks: TaskService,
    session: "SharedSession",
    settings: WorkerSettings,
    limits: "WorkerLimits",
    stop: threading.Event,
    *,
    engines: Collection[str],
) -> "SharedWorker":
    """Return the worker of a session; `stop` is the event that ends it. Waiting rewrites name it by `engines`."""
    from delegation.rewrites.shared_job import LeftRewrites  # noqa: PLC0415
    from delegation.rewrites.worker import SessionWorker, SharedWorker  # noqa: PLC0415 - others rewrite nothing
    from delegation.wiring.rewrites import session_behaviors  # noqa: PLC0415

    behaviors = Behaviors(session_behaviors(tasks, session))
    store = cast("AdmissionStore", tasks.reads.store)
    workers = [
        SessionWorker(
            tasks,
            behaviors,
            replace(settings, owner=f"{settings.owner}/{number}"),
            places=session.places,
            stop=stop,
            idle=count_idle,
            admission=LeftRewrites(tasks, store, behaviors.task_types, places=session.places, engines=engines),
        )
        for number in range(1, limits.tasks_at_once + 1)
    ]
    return SharedWorker(tasks, session, workers, limits, stop)


def count_idle(error: Exception) -> None:
    """Print the metric of a worker that could not work."""
    MetricLines.of_environment().put({WORKER_ERRORS: 1}, action="lease", error_code=code_of(error))
