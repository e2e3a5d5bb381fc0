"""What every deployment retains: tasks, idempotency records, reference index, plans, trust store, key and secret."""

from aws_cdk import CfnOutput, Stack
from constructs import Construct

from delegation.idempotency.settings import KeySettings
from infra.constructs.security.grants import DataGrants, EncryptionKey, callback_keys, polaris_secret
from infra.constructs.stores import Buckets, GatewayTables, TaskTables
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
        self.encryption = EncryptionKey(self, "Encryption", settings=settings)
        key = self.encryption.key
        keys = KeySettings.from_properties(settings.properties)
        self.tables = TaskTables(self, "Tables", key=key, keys_expire=keys.cleanup, task_indexes=settings.task_indexes)
        # Without a gateway it is empty, and costs nothing: switched off and on again, a gateway finds its tombstones.
        self.gateway_tables = GatewayTables(self, "Gateway", key=key)
        self.buckets = Buckets(
            self,
            "Buckets",
            key=key,
            plan_retention_days=settings.plan_retention_days,
            load_balancer=settings.is_private,
        )
        self.polaris_secret = polaris_secret(self, key=key)
        self.callback_keys = callback_keys(self, key=key) if settings.has_callbacks else None
        self.grants = DataGrants(
            key=key,
            tasks_table=self.tables.tasks,
            idempotency_table=self.tables.idempotency,
            references_table=self.tables.references,
            plan_bucket_arn=self.export_value(self.buckets.plans.bucket_arn),
            polaris_secret_arn=self.polaris_secret.arn,
            callback_keys_arn=self.callback_keys.arn if self.callback_keys else None,
            tombstones_table=self.gateway_tables.tombstones if settings.gateway else None,
        )
        for value in (self.gateway_tables.tombstones.table_arn, self.gateway_tables.tombstones.table_name):
            self.export_value(value)  # always: an export in use cannot be removed with the gateway
        CfnOutput(self, "TasksTable", value=self.tables.tasks.table_name)
        CfnOutput(self, "PlanBucket", value=self.buckets.plans.bucket_name)
        CfnOutput(self, "TrustStoreBucket", value=self.buckets.truststore.bucket_name)
        CfnOutput(self, "PolarisSecretArn", value=self.polaris_secret.arn)
        if self.callback_keys is not None:
            CfnOutput(self, "CallbackKeysArn", value=self.callback_keys.arn)
