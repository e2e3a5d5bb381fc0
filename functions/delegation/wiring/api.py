"""The API."""

import time
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING

from aws_lambda_powertools import Logger, Metrics, Tracer

from delegation.edge.app import ApiHandler, create_app
from delegation.edge.routes import Dependencies
from delegation.edge.submission import Submissions
from delegation.idempotency.dynamodb import DynamoDbIdempotencyStore
from delegation.idempotency.service import Acceptance
from delegation.operations.purge.behavior.limits import policies_of
from delegation.tasks.stores.dynamodb import DynamoDbTaskStore
from delegation.tasks.work.changes import new_nonce
from delegation.tasks.work.service import TaskService
from delegation.timestamps import utc_now
from delegation.wiring.settings import IDEMPOTENCY_LIFETIME, ApiSettings, PurgeEnvironment, RequestSettings
from delegation.wiring.tasks import dispatch_queue, task_service, task_store

if TYPE_CHECKING:
    from delegation.polaris.client import PolarisClient
    from delegation.tasks.work.behaviors import TaskBehavior


def api_dependencies() -> Dependencies:
    """Return the API's dependencies on AWS."""
    store = task_store()
    tasks = task_service(dispatch_queue(), store=store, counts=True)
    return Dependencies(
        submissions=submissions(tasks, store),
        tasks=tasks,
        realm=RequestSettings.read().realm,
        idempotency_lifetime=IDEMPOTENCY_LIFETIME,
        clock=utc_now,
    )


def api(logger: Logger) -> ApiHandler:
    """Return the API on AWS. Traces capture neither answers nor errors, because both may quote a request."""
    settings = ApiSettings.read()
    handle = create_app(api_dependencies(), logger=logger, metrics=Metrics(namespace=settings.metrics_namespace))
    if not settings.tracing:
        return handle
    traced: ApiHandler = Tracer().capture_lambda_handler(handle, capture_response=False, capture_error=False)
    return traced


def submissions(tasks: TaskService, store: DynamoDbTaskStore) -> Submissions:
    """Return what accepts and runs requests; the first request that runs a purge imports the engine."""
    settings, purges = RequestSettings.read(), PurgeEnvironment.read()
    records = DynamoDbIdempotencyStore(store, settings.idempotency_table)

    @cache
    def tables() -> "PolarisClient":
        from delegation.wiring.purge import synchronous_polaris  # noqa: PLC0415

        return synchronous_polaris()

    @cache
    def behavior() -> "TaskBehavior":
        from delegation.wiring.purge import synchronous_purge  # noqa: PLC0415

        return synchronous_purge(tasks, tables())

    return Submissions(
        tasks,
        Acceptance(store, records, lifetime=IDEMPOTENCY_LIFETIME, clock=utc_now, nonce=new_nonce),
        behavior,
        tables,
        realm=settings.realm,
        budget=timedelta(seconds=settings.synchronous_budget_seconds),
        sleep=time.sleep,
        limits=policies_of(purges.properties)[1],
        small_files=purges.inline_max_files,
    )
