"""Delivers the events and callbacks that ends of tasks announce; SQS delivers only failed messages again."""

from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from delegation.metrics import NOTIFICATION_MESSAGES, Metric, MetricLines
from delegation.notifications.delivery import COUNTED, Delivered, DeliveryOutcome
from delegation.notifications.queue import parse
from delegation.wiring import notifier as wiring

logger: Final = Logger()
notifier = cache(wiring.notifier)


def deliver(record: SQSRecord) -> DeliveryOutcome:
    """Deliver the notification of one message; after a receiver's failure the sweeper repeats the delivery."""
    message = parse(record.body)
    delivered = notifier().take(message)
    fields = {
        "action": "notify",
        "task_id": message.task_id,
        "notification_id": message.notification_id,
        "delivery": message.n,
        "outcome": delivered.outcome.value,
        "channel": delivered.owed.channel if delivered.owed else None,
    }
    _log(delivered, fields)
    return delivered.outcome


def _log(delivered: Delivered, fields: Mapping[str, Any]) -> None:
    error = {} if delivered.error is None else {"error_code": delivered.error.code, "reason": str(delivered.error)}
    if delivered.outcome is DeliveryOutcome.DEAD:
        text = "the notification is a dead letter; `delegation callbacks resend` sends it again"
        logger.error(text, extra={**fields, **error})
    elif delivered.outcome is DeliveryOutcome.FAILED:
        logger.warning("the notification was not delivered; the delivery will be repeated", extra={**fields, **error})
    else:
        logger.info("notification", extra=fields)


def handler(event: Mapping[str, Any], context: LambdaContext) -> Mapping[str, Any]:
    """Return the `batchItemFailures` of an SQS batch; an entirely failed batch does not raise."""
    counts: Counter[Metric] = Counter({NOTIFICATION_MESSAGES: len(event["Records"])})

    def counted(record: SQSRecord) -> None:
        outcome = deliver(record)
        if outcome in COUNTED:
            counts[COUNTED[outcome]] += 1

    processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)
    answer = process_partial_response(event=dict(event), record_handler=counted, processor=processor, context=context)
    MetricLines.of_environment().put(counts, action="notify")
    return answer
