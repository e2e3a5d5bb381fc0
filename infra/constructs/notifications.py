"""The queues of notifications with their dead-letter queue, and the notifier's event source mappings."""

from aws_cdk import Duration, Stack
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.constructs.dispatch import FAILED_MESSAGES, KEEPS_DEAD_LETTERS
from infra.constructs.security.nag import acknowledge_serverless
from infra.environment.functions import (
    DISPATCH_MAX_CONCURRENCY,
    DISPATCH_MAX_RECEIVES,
    NOTIFICATION_BATCH_SIZE,
    NOTIFICATION_VISIBILITY_SECONDS,
)


class NotificationSqsQueues(Construct):
    """The queues of notifications `{task_id, notification_id, n}`; the sweeper repeats a lost one.

    `queue` has the callbacks, `events` the events, `apart` what is for receivers that are set apart: one mapping each,
    so none waits for another. They share `dead_letters`.
    """

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
        self.queue, self.events, self.apart = (
            sqs.Queue(
                self,
                name,
                encryption=encryption,
                encryption_master_key=key,
                enforce_ssl=True,
                visibility_timeout=Duration.seconds(NOTIFICATION_VISIBILITY_SECONDS),
                retention_period=Duration.days(1),  # the sweeper sends what is owed again long before
                dead_letter_queue=sqs.DeadLetterQueue(max_receive_count=DISPATCH_MAX_RECEIVES, queue=self.dead_letters),
            )
            for name in ("Queue", "Events", "Apart")
        )
        self.arns = tuple(queue.queue_arn for queue in (self.queue, self.events, self.apart))

    def feed(self, notifier: lambda_.Function) -> None:
        """Invoke the notifier with batches; only the messages that it reports as failed are delivered again."""
        for name, arn in zip(("Mapping", "EventsMapping", "ApartMapping"), self.arns, strict=True):
            mapping = lambda_.EventSourceMapping(
                self,
                name,
                target=notifier,
                event_source_arn=arn,
                batch_size=NOTIFICATION_BATCH_SIZE,
                report_batch_item_failures=True,
                max_concurrency=DISPATCH_MAX_CONCURRENCY,
            )
            acknowledge_serverless(mapping, LambdaEventSourceMappingDestination=FAILED_MESSAGES)


def event_bus_arn(stack: Stack, name_or_arn: str) -> str:
    """Return the ARN of an event bus."""
    if name_or_arn.startswith("arn:"):
        return name_or_arn
    return stack.format_arn(service="events", resource="event-bus", resource_name=name_or_arn)
