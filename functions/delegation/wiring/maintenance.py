from dataclasses import replace
from typing import Any

from delegation.idempotency.store import DynamoDbIdempotencyStore, RecordUpkeep
from delegation.identifiers import new_nonce
from delegation.tasks.stores.dynamodb import DynamoDbTaskStore
from delegation.tasks.work import maintenance
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.behaviors import Behavior, FunctionBehavior, TaskBehavior
from delegation.tasks.work.hooks import NoExternalJobs
from delegation.tasks.work.maintenance import MaintenanceReport, TaskMaintenance
from delegation.wiring.deployment import DeployedTasks, deployment
from delegation.wiring.settings import IdempotencySettings
from delegation.wiring.steps import application_is_named, ended_by, watched_jobs
from delegation.wiring.tasks import dispatch_queue


def swept_tasks() -> DeployedTasks:
    """Return the sweeper's tasks; the job runs of lost attempts are ended if the environment names an application."""
    jobs = watched_jobs() if application_is_named() else None
    return deployment(dispatch_queue(), ended_by(jobs, NoExternalJobs()))


def store_maintenance(deployed: DeployedTasks) -> Behavior[TaskMaintenance, MaintenanceReport]:
    """Return the behavior; a process that only submits its task needs no access to records."""

    def records() -> RecordUpkeep | None:
        if not isinstance(deployed.store, DynamoDbTaskStore):
            return None  # only the API writes records, together with tasks of a task table
        settings = IdempotencySettings.read()
        keys = settings.keys()
        store = DynamoDbIdempotencyStore(deployed.store, settings.idempotency_table)
        return RecordUpkeep(deployed.store, store, lifetime=keys.lifetime, nonce=new_nonce, cleanup=keys.cleanup)

    return maintenance.store_maintenance(deployed.tasks, records, lambda: deployed.task_types)


def behaviors(deployed: DeployedTasks) -> list[TaskBehavior]:
    """Return the behavior of the recurring maintenance task, for a process that runs it."""
    declared = store_maintenance(deployed)

    def work(parameters: TaskMaintenance, run: AttemptContext) -> Any:
        from delegation.wiring.operations import begin_upkeep  # noqa: PLC0415 - the sweeper only submits the task

        report = declared.work(parameters, run)
        begin_upkeep(deployed)
        return report

    return [FunctionBehavior(deployed.tasks, replace(declared, work=work))]
