"""Starts one execution per dispatch, and admits waiting tasks; SQS delivers only failed messages again."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from delegation.items import each_item
from delegation.metrics import DISPATCH_ERRORS, MetricLines
from delegation.orchestration.dispatch import Inbox, named_in
from delegation.wiring import deployment as wiring
from polaris_common.errors import traceback_of

logger: Final = Logger()


@cache
def inbox() -> Inbox:
    """Return what handles messages, built at the first invocation."""
    return wiring.dispatcher(say_admitted)


def dispatch(record: SQSRecord) -> None:
    """Start the execution of one message, unless it only means that tasks may be admitted. SQS delivers a failed
    message again; its own line shows the failure before it is a dead letter."""
    message = {"action": "dispatch", "message_id": record.message_id, **named_in(record.body)}
    try:
        outcome = inbox().take(record.body)
    except Exception as error:
        code = getattr(error, "code", type(error).__name__)
        fields = {**message, "error_code": code, "at": traceback_of(error)}
        logger.error("dispatch failed", extra=fields)  # noqa: TRY400 - the text of an error may quote the message
        raise
    logger.info("dispatch", extra={**message, "outcome": outcome})


def say_admitted(task_id: str, n: int, correlation_id: str | None) -> None:
    """Log an execution that was started for a task that waited."""
    joined = {} if correlation_id is None else {"correlation_id": correlation_id}
    fields = {"action": "dispatch", "task_id": task_id, "dispatch": n, "outcome": "started", **joined}
    logger.info("dispatch", extra=fields)


def admit() -> None:
    """Admit tasks after a batch that requests it; after an error the sweeper's next message does."""
    for admission in each_item(
        ("admission",), lambda _name: inbox().admit(), name="dispatcher.admission", in_a_row=None
    ):
        if admission.result:
            logger.info("admitted", extra={"action": "admit", "tasks": admission.result})


def handler(event: Mapping[str, Any], context: LambdaContext) -> Mapping[str, Any]:
    """Return the `batchItemFailures` of an SQS batch; an entirely failed batch does not raise."""
    processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)
    answer = process_partial_response(event=dict(event), record_handler=dispatch, processor=processor, context=context)
    if answer["batchItemFailures"]:
        MetricLines.of_environment().put({DISPATCH_ERRORS: len(answer["batchItemFailures"])}, action="dispatch")
    admit()
    return answer
