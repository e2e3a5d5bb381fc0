import time
from collections.abc import Mapping
from datetime import timedelta
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from aws_lambda_powertools import Logger, Tracer

from delegation.edge.api.app import ApiHandler, create_app
from delegation.edge.api.routes import Dependencies
from delegation.edge.submission import Submissions
from delegation.idempotency.service import Acceptance
from delegation.idempotency.store import DynamoDbIdempotencyStore
from delegation.identifiers import new_nonce
from delegation.metrics import MetricLines
from delegation.tasks.life.model import Caller, Task
from delegation.tasks.options import RequestSources
from delegation.tasks.stores.dynamodb import DynamoDbTaskStore
from delegation.tasks.work.service import TaskService
from delegation.timestamps import utc_now
from delegation.wiring.settings import (
    ApiSettings,
    LimitSettings,
    RequestSettings,
    TombstoneEnvironment,
)
from delegation.wiring.tasks import dispatch_queue, notification_store, pause_store, task_service, task_table
from delegation.wiring.types import TYPES, forecast_of

_NO_TASK: Final = "00000000-0000-0000-0000-000000000000"

if TYPE_CHECKING:
    from delegation.gateway.drop.service import Tombstones
    from delegation.idempotency.mutations import Mutations
    from delegation.polaris.client import PolarisClient
    from delegation.tasks.pauses import PauseControl
    from delegation.tasks.stores.admission import QueuePlace
    from delegation.tasks.work.behaviors import TaskBehavior
    from delegation.wire.tables import PlanApproval


def api_dependencies() -> Dependencies:
    store = task_table()
    tasks = task_service(dispatch_queue(), store=store)
    return Dependencies(
        submissions=submissions(tasks, store),
        tasks=tasks,
        realm=RequestSettings.read().realm,
        idempotency_lifetime=RequestSettings.read().keys().advertised,
        clock=utc_now,
        receipt=receipt,
        checks={"task table": lambda: store.get(_NO_TASK), "plan bucket": _plan_bucket, "Polaris": _polaris},
        mutations=lambda: mutations(store),
        types=TYPES,
        estimate=forecast_of,
        waiting=lambda task: waiting(store, task),
        resend=lambda task_id: _resend(store, task_id),
        tombstones=lambda: tombstones(tasks),
        pauses=lambda: _pauses(store),
        maintenance=_maintenance,
        approve=partial(_approve, tasks),
    )


def _maintenance() -> Mapping[str, Any]:
    from delegation.wiring.policies import shown_settings  # noqa: PLC0415 - a cold start needs none of it

    return shown_settings(RequestSettings.read().properties)


def tombstones(tasks: TaskService) -> "Tombstones | None":
    """Return the tables that were dropped through the gateway, None in a deployment without a gateway."""
    if TombstoneEnvironment.read().tombstones_table is None:
        return None
    from delegation.wiring.drops import required_tombstones  # noqa: PLC0415 - a cold start needs none of it
    from delegation.wiring.table_access import synchronous_polaris  # noqa: PLC0415

    return required_tombstones(tasks, synchronous_polaris())


def _pauses(store: DynamoDbTaskStore) -> "PauseControl":
    from delegation.tasks.pauses import PauseControl  # noqa: PLC0415

    return PauseControl(pause_store(store), utc_now)


def _approve(tasks: TaskService, task_id: str, wanted: "PlanApproval", *, by: Caller, is_operator: bool) -> Task:
    from delegation.removal.orphans.requests import approve, approvers_of  # noqa: PLC0415
    from delegation.wiring.operations import plan_store  # noqa: PLC0415

    approvers = approvers_of(RequestSettings.read().properties)
    return approve(tasks.writes, plan_store, approvers, task_id, wanted, by=by, is_operator=is_operator)


def _resend(store: DynamoDbTaskStore, task_id: str) -> None:
    """Make the dead letters of a task deliverable again; the next sweep sends them."""
    from delegation.notifications.queue import dead_letters_of, resent  # noqa: PLC0415

    owed = notification_store(store)
    for letter in resent(owed, dead_letters_of(owed, task_id), utc_now()):
        if letter.error is not None:
            raise letter.error


def mutations(store: DynamoDbTaskStore) -> "Mutations":
    """Return what performs a change at most once for its key, for functions that end before the key's lease."""
    from delegation.idempotency.mutations import Mutations  # noqa: PLC0415
    from delegation.idempotency.reservations import DynamoDbReservationStore, KeyPolicy, ReservationTable  # noqa: PLC0415

    settings = RequestSettings.read()
    records = DynamoDbReservationStore(ReservationTable(store.dynamodb.client), settings.idempotency_table)
    policy = KeyPolicy(lifetime=settings.keys().lifetime)
    return Mutations(records, policy=policy, clock=utc_now, nonce=new_nonce)


def receipt(task: Task) -> bytes | None:
    from delegation.storage.base import ObjectNotFound  # noqa: PLC0415
    from delegation.wiring.operations import plan_store  # noqa: PLC0415

    key = TYPES.of(task).receipt_key(task)
    try:
        return plan_store().get(key) if key is not None else None
    except ObjectNotFound:
        return None


def waiting(store: DynamoDbTaskStore, task: Task) -> "QueuePlace | None":
    from delegation.tasks.stores.admission import waiting_of  # noqa: PLC0415 - few requests ask

    return waiting_of(store, task, LimitSettings.read().limits(), utc_now())


def _plan_bucket() -> None:
    from delegation.wiring.operations import plan_store  # noqa: PLC0415

    next(plan_store().keys(_NO_TASK), None)


def _polaris() -> None:
    from delegation.wiring.table_access import synchronous_polaris  # noqa: PLC0415

    synchronous_polaris().sign_in()


def api(logger: Logger) -> ApiHandler:
    """Return the API on AWS. Traces capture neither answers nor errors, because both may quote a request."""
    settings = ApiSettings.read()
    handle = create_app(api_dependencies(), logger=logger, metrics=MetricLines.of_environment())
    if not settings.tracing:
        return handle
    traced: ApiHandler = Tracer().capture_lambda_handler(handle, capture_response=False, capture_error=False)
    return traced


def submissions(tasks: TaskService, store: DynamoDbTaskStore) -> Submissions:
    """Return what accepts and runs requests; the engine is imported by the first request that runs a purge."""
    settings = RequestSettings.read()
    records = DynamoDbIdempotencyStore(store, settings.idempotency_table)
    for form in TYPES.forms:
        form.check(settings.properties)

    @cache
    def tables() -> "PolarisClient":
        from delegation.wiring.table_access import synchronous_polaris  # noqa: PLC0415

        return synchronous_polaris()

    @cache
    def behavior(task_type: str) -> "TaskBehavior":
        from delegation.tasks.work.behaviors import Behaviors  # noqa: PLC0415
        from delegation.wiring.deployment import DeployedTasks, behaviors_of  # noqa: PLC0415

        deployed = DeployedTasks(store, tasks, TYPES.known, ())
        return Behaviors(behaviors_of(TYPES[task_type].waited_for or "", deployed))[task_type]

    return Submissions(
        tasks,
        Acceptance(store, records, lifetime=settings.keys().lifetime, clock=utc_now, nonce=new_nonce),
        behavior,
        sources=RequestSources(
            settings.realm,
            settings.properties,
            lambda: tasks.policies.notifications.callbacks,
            tables,
            check_catalog=lambda catalog: tables().check_catalog(catalog),
        ),
        budget=timedelta(seconds=settings.synchronous_budget_seconds),
        sleep=time.sleep,
    )
