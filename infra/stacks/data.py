"""What every deployment retains: tasks, idempotency records, reference index, plans, trust store, key and secret."""

from aws_cdk import CfnOutput, Stack
from constructs import Construct

from delegation.idempotency.settings import KeySettings
from infra.constructs.security.grants import DataGrants, empty_secret, encryption_key
from infra.constructs.stores import Buckets, TaskTables, tombstones_table
from infra.settings import Settings


class DataStack(Stack):
    """The stack to deploy first; it is protected from termination, and its resources are retained."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: Settings) -> None:
        super().__init__(
            scope,
            construct_id,
            description="Polaris Delegation Service: tasks, plans and keys",
            termination_protection=True,
        )
        key = self.key = encryption_key(Construct(self, "Encryption"), settings)
        keys = KeySettings.from_properties(settings.properties)
        self.tables = TaskTables(self, "Tables", key=key, keys_expire=keys.cleanup, task_indexes=settings.task_indexes)
        # Without a gateway it is empty, and costs nothing: switched off and on again, a gateway finds its tombstones.
        self.tombstones = tombstones_table(Construct(self, "Gateway"), key=key)
        self.buckets = Buckets(
            self,
            "Buckets",
            key=key,
            plan_retention_days=settings.plan_retention_days,
            load_balancer=settings.is_private,
        )
        polaris_secret_arn = empty_secret(
            self,
            "Polaris",
            "Principal",
            description="Polaris principal of the delegation service: {client_id, client_secret}",
            not_rotated="At first it is empty; delegation:polaris-secret-rotation-days rotates it from the service "
            "stack.",
            key=key,
        )
        callback_keys_arn = None
        if settings.has_callbacks:
            # {"NAME": ["key"]}, with two keys while one is replaced.
            callback_keys_arn = empty_secret(
                self,
                "Callbacks",
                "Keys",
                description="Keys that sign the callbacks of the delegation service, by the names of the callbacks",
                not_rotated="A key is shared with a receiver, so only the operator can replace it, on both sides.",
                key=key,
            )
        self.grants = DataGrants(
            key=key,
            tasks_table=self.tables.tasks,
            idempotency_table=self.tables.idempotency,
            references_table=self.tables.references,
            plan_bucket_arn=self.export_value(self.buckets.plans.bucket_arn),
            polaris_secret_arn=polaris_secret_arn,
            callback_keys_arn=callback_keys_arn,
            tombstones_table=self.tombstones if settings.gateway else None,
        )
        for value in (self.tombstones.table_arn, self.tombstones.table_name):
            self.export_value(value)  # always: an export in use cannot be removed with the gateway
        CfnOutput(self, "TasksTable", value=self.tables.tasks.table_name)
        CfnOutput(self, "PlanBucket", value=self.buckets.plans.bucket_name)
        CfnOutput(self, "TrustStoreBucket", value=self.buckets.truststore.bucket_name)
        CfnOutput(self, "PolarisSecretArn", value=polaris_secret_arn)
        if callback_keys_arn is not None:
            CfnOutput(self, "CallbackKeysArn", value=callback_keys_arn)
