"""Delivers the events and callbacks that ends of tasks owe; SQS delivers only failed messages again."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from delegation.notifications.delivery import Delivered, DeliveryOutcome
from delegation.notifications.queue import parse
from delegation.wiring.notifications import notifier as wiring

logger: Final = Logger()
metrics: Final = Metrics()
notifier = cache(wiring.notifier)
_COUNTED: Final = {
    DeliveryOutcome.DELIVERED: "NotificationsDelivered",
    DeliveryOutcome.FAILED: "NotificationsFailed",
    DeliveryOutcome.DEAD: "NotificationsDead",
}


def deliver(record: SQSRecord) -> None:
    """Deliver the notification of one message; a receiver's failure is recorded, and repeated by the sweeper."""
    message = parse(record.body)
    found = notifier().take(message)
    fields = {
        "action": "notify",
        "task_id": message.task_id,
        "notification_id": message.notification_id,
        "delivery": message.n,
        "outcome": found.outcome.value,
        "channel": found.owed.channel if found.owed else None,
    }
    if found.outcome in _COUNTED:
        metrics.add_metric(_COUNTED[found.outcome], MetricUnit.Count, 1)
    _log(found, fields)


def _log(found: Delivered, fields: Mapping[str, Any]) -> None:
    error = {} if found.error is None else {"error_code": found.error.code, "reason": str(found.error)}
    if found.outcome is DeliveryOutcome.DEAD:
        logger.error("dead letter; `delegation callbacks resend` sends it again", extra={**fields, **error})
    elif found.outcome is DeliveryOutcome.FAILED:
        logger.warning("not delivered; it is repeated", extra={**fields, **error})
    else:
        logger.info("notification", extra=fields)


@metrics.log_metrics
def handler(event: Mapping[str, Any], context: LambdaContext) -> Mapping[str, Any]:
    """Return the `batchItemFailures` of an SQS batch; an entirely failed batch does not raise."""
    metrics.add_metric("NotificationMessages", MetricUnit.Count, len(event["Records"]))
    processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)
    return process_partial_response(event=dict(event), record_handler=deliver, processor=processor, context=context)
