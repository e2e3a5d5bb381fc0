"""The queue of notifications with its dead-letter queue, and the notifier's event source mapping."""

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


class NotificationSqsQueue(Construct):
    """The queue of notifications `{task_id, notification_id, n}`; the sweeper repeats a lost one."""

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
            visibility_timeout=Duration.seconds(NOTIFICATION_VISIBILITY_SECONDS),
            retention_period=Duration.days(1),  # the sweeper sends what is owed again long before
            dead_letter_queue=sqs.DeadLetterQueue(max_receive_count=DISPATCH_MAX_RECEIVES, queue=self.dead_letters),
        )

    def feed(self, notifier: lambda_.Function) -> lambda_.EventSourceMapping:
        """Invoke the notifier with batches; only the messages that it reports as failed are delivered again."""
        mapping = lambda_.EventSourceMapping(
            self,
            "Mapping",
            target=notifier,
            event_source_arn=self.queue.queue_arn,
            batch_size=NOTIFICATION_BATCH_SIZE,
            report_batch_item_failures=True,
            max_concurrency=DISPATCH_MAX_CONCURRENCY,
        )
        acknowledge_serverless(mapping, LambdaEventSourceMappingDestination=FAILED_MESSAGES)
        return mapping


def event_bus_arn(stack: Stack, name_or_arn: str) -> str:
    """Return the ARN of an event bus."""
    if name_or_arn.startswith("arn:"):
        return name_or_arn
    return stack.format_arn(service="events", resource="event-bus", resource_name=name_or_arn)
