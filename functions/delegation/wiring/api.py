"""The API, from the environment; built once a process by its handler."""

import time
from datetime import timedelta

from aws_lambda_powertools import Logger, Metrics, Tracer

from delegation.edge.app import Handler, create_app
from delegation.edge.routes import Dependencies
from delegation.edge.settings import ApiSettings
from delegation.edge.submission import Submissions
from delegation.idempotency.service import Acceptance
from delegation.storage.s3 import WHILE_A_CALLER_WAITS
from delegation.tasks.stores.dynamodb import DynamoDbTaskStore
from delegation.tasks.work.changes import new_nonce
from delegation.tasks.work.service import TaskService
from delegation.timestamps import utc_now
from delegation.wiring.maintenance import idempotency_records
from delegation.wiring.purge import polaris_for_a_caller, purge_behavior
from delegation.wiring.settings import IDEMPOTENCY_LIFETIME, RequestSettings
from delegation.wiring.tasks import dispatch_queue, task_service, task_store


def api_dependencies() -> Dependencies:
    """What the API works with on AWS."""
    store = task_store()
    tasks = task_service(dispatch_queue(), store=store)
    return Dependencies(
        submissions=submissions(tasks, store),
        tasks=tasks,
        realm=RequestSettings().realm,
        idempotency_lifetime=IDEMPOTENCY_LIFETIME,
        clock=utc_now,
    )


def api(logger: Logger) -> Handler:
    """The API on AWS. Traces, if asked for, hold neither answers nor errors: both may show what a request held."""
    settings = ApiSettings()
    handle = create_app(api_dependencies(), logger=logger, metrics=Metrics(namespace=settings.metrics_namespace))
    if not settings.tracing:
        return handle
    traced: Handler = Tracer().capture_lambda_handler(handle, capture_response=False, capture_error=False)
    return traced


def submissions(tasks: TaskService, store: DynamoDbTaskStore) -> Submissions:
    """Accepting and running requests."""
    settings = RequestSettings()
    tables = polaris_for_a_caller()
    records = idempotency_records(store)
    acceptance = Acceptance(store, records, lifetime=IDEMPOTENCY_LIFETIME, clock=utc_now, nonce=new_nonce)
    behavior = purge_behavior(tasks, tables, WHILE_A_CALLER_WAITS)
    return Submissions(
        tasks,
        acceptance,
        behavior,
        tables,
        realm=settings.realm,
        budget=timedelta(seconds=settings.synchronous_budget_seconds),
        sleep=time.sleep,
        limits=behavior.limits,
    )
