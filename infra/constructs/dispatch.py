"""The dispatch queue with its dead-letter queue, the dispatcher's event source mapping, and the sweeper's schedule."""

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.environment import (
    DISPATCH_BATCH_SIZE,
    DISPATCH_MAX_CONCURRENCY,
    DISPATCH_MAX_RECEIVES,
    DISPATCH_VISIBILITY_SECONDS,
    SWEEP_MINUTES,
)


class DispatchSqsQueue(Construct):
    """The queue of dispatches `{task_id, n}`; the sweeper repeats a lost one, and dead letters are kept."""

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
            visibility_timeout=Duration.seconds(DISPATCH_VISIBILITY_SECONDS),
            retention_period=Duration.days(1),  # the sweeper dispatches the task again long before
            dead_letter_queue=sqs.DeadLetterQueue(max_receive_count=DISPATCH_MAX_RECEIVES, queue=self.dead_letters),
        )

    def feed(self, dispatcher: lambda_.Function) -> lambda_.EventSourceMapping:
        """Invoke the dispatcher with batches; only the messages that it reports as failed are delivered again."""
        return lambda_.EventSourceMapping(
            self,
            "Mapping",
            target=dispatcher,
            event_source_arn=self.queue.queue_arn,
            batch_size=DISPATCH_BATCH_SIZE,
            report_batch_item_failures=True,
            max_concurrency=DISPATCH_MAX_CONCURRENCY,
        )


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
