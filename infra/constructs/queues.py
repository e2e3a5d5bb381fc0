"""Queues with their dead-letter queue and event source mappings."""

from collections.abc import Sequence
from typing import Final

from aws_cdk import Duration, Stack
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.constructs.security.nag import acknowledge_serverless
from infra.environment import functions

_KEEPS_DEAD_LETTERS: Final = "It is the dead-letter queue; an alarm watches it, and nothing consumes it."
_FAILED_MESSAGES: Final = (
    "SQS event source mappings have no failure destination; the queue's redrive policy serves instead."
)


class SqsQueues(Construct):
    """Queues of messages that the sweeper repeats if they are lost, each with a mapping of its own, so none waits.

    `queues` has them by name, `queue` is the first one. Messages that cannot be processed end in `dead_letters`.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        names: Sequence[str],
        visibility_seconds: int,
        batch_size: int,
        key: kms.IKey | None,
    ) -> None:
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
        acknowledge_serverless(self.dead_letters, SQSRedrivePolicy=_KEEPS_DEAD_LETTERS)
        self.queues = {
            name: sqs.Queue(
                self,
                name,
                encryption=encryption,
                encryption_master_key=key,
                enforce_ssl=True,
                visibility_timeout=Duration.seconds(visibility_seconds),
                retention_period=Duration.days(1),  # the sweeper sends a message again long before
                dead_letter_queue=sqs.DeadLetterQueue(
                    max_receive_count=functions.DISPATCH_MAX_RECEIVES, queue=self.dead_letters
                ),
            )
            for name in names
        }
        self.queue = self.queues[names[0]]
        self._batch_size = batch_size

    def feed(self, function: lambda_.Function) -> None:
        """Invoke the function with batches; only the messages that it reports as failed are delivered again."""
        for name, queue in self.queues.items():
            mapping = lambda_.EventSourceMapping(
                self,
                f"{name}Mapping".removeprefix("Queue"),
                target=function,
                event_source_arn=queue.queue_arn,
                batch_size=self._batch_size,
                report_batch_item_failures=True,
                max_concurrency=functions.DISPATCH_MAX_CONCURRENCY,
            )
            acknowledge_serverless(mapping, LambdaEventSourceMappingDestination=_FAILED_MESSAGES)


def dispatch_queue(scope: Construct, *, key: kms.IKey | None) -> SqsQueues:
    """Return the queue of dispatches `{task_id, n}`."""
    return SqsQueues(
        scope,
        "Dispatch",
        names=("Queue",),
        visibility_seconds=functions.DISPATCH_VISIBILITY_SECONDS,
        batch_size=functions.DISPATCH_BATCH_SIZE,
        key=key,
    )


def notification_queues(scope: Construct, *, key: kms.IKey | None) -> SqsQueues:
    """Return the queues of notifications `{task_id, notification_id, n}`.

    `Queue` has the callbacks, `Events` the events, `Apart` what is for receivers that are set apart.
    """
    return SqsQueues(
        scope,
        "Notifications",
        names=("Queue", "Events", "Apart"),
        visibility_seconds=functions.NOTIFICATION_VISIBILITY_SECONDS,
        batch_size=functions.NOTIFICATION_BATCH_SIZE,
        key=key,
    )


def event_bus_arn(stack: Stack, name_or_arn: str) -> str:
    if name_or_arn.startswith("arn:"):
        return name_or_arn
    return stack.format_arn(service="events", resource="event-bus", resource_name=name_or_arn)
