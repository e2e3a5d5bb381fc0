"""The dispatch queue with its dead-letter queue, the dispatcher's event source mapping, and the sweeper's schedule."""

from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.constructs.security.nag import acknowledge_serverless
from infra.environment.functions import (
    DISPATCH_BATCH_SIZE,
    DISPATCH_MAX_CONCURRENCY,
    DISPATCH_MAX_RECEIVES,
    DISPATCH_VISIBILITY_SECONDS,
    SWEEP_MINUTES,
)

KEEPS_DEAD_LETTERS: Final = "It is the dead-letter queue; an alarm watches it, and nothing consumes it."
FAILED_MESSAGES: Final = "A mapping of an SQS queue has no failure destination; the queue's redrive policy is its own."
_NEXT_RUN: Final = "A failed run is not kept: the next one, a minute later, does its work, and alarms watch both."


class DispatchSqsQueue(Construct):
    """The queue of dispatches `{task_id, n}`; the sweeper repeats a lost one, and dead letters are kept."""

    def __init__(self, scope: Construct, construct_id: str, *, key: kms.IKey | None = None) -> None:
        """`key` encrypts the messages, instead of a key of SQS."""
        super().__init__(scope, construct_id)
        encryption = sqs.QueueEncryption.SQS_MANAGED if key is None else sqs.QueueEncryption.KMS
        self.dead_letters = sqs.Queue(
            self,
            "DeadLetters",
            encryption=encryption,
            encryption_master_key=key,
            enforce_ssl=True,
            retention_period=Duration.days(14),
        )
        acknowledge_serverless(self.dead_letters, SQSRedrivePolicy=KEEPS_DEAD_LETTERS)
        self.queue = sqs.Queue(
            self,
            "Queue",
            encryption=encryption,
            encryption_master_key=key,
            enforce_ssl=True,
            visibility_timeout=Duration.seconds(DISPATCH_VISIBILITY_SECONDS),
            retention_period=Duration.days(1),  # the sweeper dispatches the task again long before
            dead_letter_queue=sqs.DeadLetterQueue(max_receive_count=DISPATCH_MAX_RECEIVES, queue=self.dead_letters),
        )

    def feed(self, dispatcher: lambda_.Function) -> lambda_.EventSourceMapping:
        """Invoke the dispatcher with batches; only the messages that it reports as failed are delivered again."""
        mapping = lambda_.EventSourceMapping(
            self,
            "Mapping",
            target=dispatcher,
            event_source_arn=self.queue.queue_arn,
            batch_size=DISPATCH_BATCH_SIZE,
            report_batch_item_failures=True,
            max_concurrency=DISPATCH_MAX_CONCURRENCY,
        )
        acknowledge_serverless(mapping, LambdaEventSourceMappingDestination=FAILED_MESSAGES)
        return mapping


class SweepSchedule(Construct):
    """Runs the sweeper every minute; a failed run is not retried, because the next run does its work."""

    def __init__(self, scope: Construct, construct_id: str, *, sweeper: lambda_.Function) -> None:
        super().__init__(scope, construct_id)
        sweeper.configure_async_invoke(retry_attempts=0, max_event_age=Duration.minutes(SWEEP_MINUTES))
        self.rule = events.Rule(
            self,
            "EveryMinute",
            schedule=events.Schedule.rate(Duration.minutes(SWEEP_MINUTES)),
            targets=[targets.LambdaFunction(sweeper, retry_attempts=0, max_event_age=Duration.minutes(SWEEP_MINUTES))],
        )
        acknowledge_serverless(sweeper, LambdaAsyncFailureDestination=_NEXT_RUN)
        acknowledge_serverless(self.rule, EventBusDLQ=_NEXT_RUN)
