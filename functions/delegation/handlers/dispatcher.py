"""Starts one execution per queue message; SQS delivers only failed messages again (partial batch response)."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from delegation.wiring import dispatcher as wiring

logger: Final = Logger()
dispatcher = cache(wiring.dispatcher)


def dispatch(record: SQSRecord) -> None:
    """Start the execution of one message."""
    started = dispatcher().start(record.body)
    logger.info("dispatch", extra={"action": "dispatch", "message_id": record.message_id, "started": started})


def handler(event: Mapping[str, Any], context: LambdaContext) -> Mapping[str, Any]:
    """Return the `batchItemFailures` of an SQS batch; an entirely failed batch does not raise."""
    processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)
    return process_partial_response(event=dict(event), record_handler=dispatch, processor=processor, context=context)
