"""The queue of notifications with its dead-letter queue, and the notifier's event source mapping."""

from aws_cdk import Duration, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.environment import (
    DISPATCH_MAX_CONCURRENCY,
    DISPATCH_MAX_RECEIVES,
    NOTIFICATION_BATCH_SIZE,
    NOTIFICATION_VISIBILITY_SECONDS,
)


class NotificationSqsQueue(Construct):
    """The queue of notifications `{task_id, notification_id, n}`; the sweeper repeats a lost one."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.dead_letters = sqs.Queue(
            self,
            "DeadLetters",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=Duration.days(14),
        )
        self.queue = sqs.Queue(
            self,
            "Queue",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            visibility_timeout=Duration.seconds(NOTIFICATION_VISIBILITY_SECONDS),
            retention_period=Duration.days(1),  # the sweeper sends what is owed again long before
            dead_letter_queue=sqs.DeadLetterQueue(max_receive_count=DISPATCH_MAX_RECEIVES, queue=self.dead_letters),
        )

    def feed(self, notifier: lambda_.Function) -> lambda_.EventSourceMapping:
        """Invoke the notifier with batches; only the messages that it reports as failed are delivered again."""
        return lambda_.EventSourceMapping(
            self,
            "Mapping",
            target=notifier,
            event_source_arn=self.queue.queue_arn,
            batch_size=NOTIFICATION_BATCH_SIZE,
            report_batch_item_failures=True,
            max_concurrency=DISPATCH_MAX_CONCURRENCY,
        )


def event_bus_arn(stack: Stack, name_or_arn: str) -> str:
    """Return the ARN of an event bus."""
    if name_or_arn.startswith("arn:"):
        return name_or_arn
    return stack.format_arn(service="events", resource="event-bus", resource_name=name_or_arn)
