"""The DynamoDB tables and the S3 buckets; all outlive the stack."""

from collections.abc import Sequence
from typing import Any, Final

from aws_cdk import Aws, Duration
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.constructs.logs import KEPT
from infra.constructs.security.nag import acknowledge
from infra.environment.tables import EXPIRES_AT, TASK_INDEXES, TOMBSTONE_INDEXES


class TaskTables(Construct):
    """Three tables that outlive the stack, can be restored to any second of the last 35 days, and refuse deletion.

    The indexes are sparse: only the head item of a task that needs attention has the keys of the due index, only that
    of a task that waits for its admission or runs has those of the admission index. Every head has those of the index
    of received tasks, and of the other two the keys for which it has a label.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        key: kms.IKey,
        keys_expire: bool = True,
        task_indexes: int = len(TASK_INDEXES),
    ) -> None:
        """`keys_expire` has DynamoDB delete idempotency records that have expired.

        The task table gets the first `task_indexes` of TASK_INDEXES: one more at each deployment of an existing table.
        """
        super().__init__(scope, construct_id)
        self.tasks = _table(self, "Tasks", "task_id", "version", key=key, sort_type=dynamodb.AttributeType.NUMBER)
        _add_indexes(self.tasks, TASK_INDEXES[:task_indexes], dynamodb.ProjectionType.KEYS_ONLY)
        self.idempotency = _table(self, "Idempotency", "scope", key=key, expires=keys_expire)
        self.references = _table(self, "References", "pk", "sk", key=key)


def tombstones_table(scope: Construct, *, key: kms.IKey) -> dynamodb.Table:
    """Return the table of tombstones of a deployment with a gateway, protected as the others are."""
    table = _table(scope, "Tombstones", "table_key", "tombstone_id", key=key, expires=True)
    _add_indexes(table, TOMBSTONE_INDEXES, dynamodb.ProjectionType.ALL)
    return table


def _table(
    scope: Construct,
    construct_id: str,
    partition_key: str,
    sort_key: str | None = None,
    *,
    key: kms.IKey,
    sort_type: dynamodb.AttributeType = dynamodb.AttributeType.STRING,
    expires: bool = False,
) -> dynamodb.Table:
    return dynamodb.Table(
        scope,
        construct_id,
        partition_key=_text(partition_key),
        sort_key=dynamodb.Attribute(name=sort_key, type=sort_type) if sort_key else None,
        time_to_live_attribute=EXPIRES_AT if expires else None,
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
        point_in_time_recovery_specification=_RECOVERY,
        encryption=dynamodb.TableEncryption.CUSTOMER_MANAGED,
        encryption_key=key,
        deletion_protection=True,
        removal_policy=KEPT,
    )


def _add_indexes(
    table: dynamodb.Table, indexes: Sequence[tuple[str, str, str]], projection: dynamodb.ProjectionType
) -> None:
    for index, partition_key, sort_key in indexes:
        table.add_global_secondary_index(
            index_name=index,
            partition_key=_text(partition_key),
            sort_key=_text(sort_key),
            projection_type=projection,
        )


def _text(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING)


_RECOVERY = dynamodb.PointInTimeRecoverySpecification(point_in_time_recovery_enabled=True)


BALANCER_PREFIX: Final = "load-balancer"
CONNECTION_PREFIX: Final = "load-balancer-connections"


_PRIVATE: Final[dict[str, Any]] = {
    "block_public_access": s3.BlockPublicAccess.BLOCK_ALL,
    "object_ownership": s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
    "enforce_ssl": True,
    "minimum_tls_version": 1.2,
    "removal_policy": KEPT,
}


class Buckets(Construct):
    """`plans`, `truststore` (CA certificates of clients) and `access_log`; all private, TLS only and retained."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        key: kms.IKey,
        plan_retention_days: int,
        load_balancer: bool = False,
    ) -> None:
        """`load_balancer` lets load balancers of this account write their logs into `access_log`."""
        super().__init__(scope, construct_id)
        self.access_log = self._build_access_log()
        if load_balancer:
            self._admit_load_balancers()
        self.plans = self._build_plans(key, plan_retention_days)
        self.truststore = self._build_truststore()

    def _build_access_log(self) -> s3.Bucket:
        bucket = s3.Bucket(
            self,
            "AccessLog",
            encryption=s3.BucketEncryption.S3_MANAGED,  # the log delivery service cannot use the key
            **_PRIVATE,
            lifecycle_rules=[s3.LifecycleRule(id="expire", expiration=Duration.days(365))],
        )
        acknowledge(bucket, S1="The target of access logs; logging access to it would produce new entries without end.")
        return bucket

    def _admit_load_balancers(self) -> None:
        """Elastic Load Balancing user guide, "Enable access logs for your Application Load Balancer", Step 2."""
        balancers = f"arn:{Aws.PARTITION}:elasticloadbalancing:{Aws.REGION}:{Aws.ACCOUNT_ID}:loadbalancer/*"
        self.access_log.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal("logdelivery.elasticloadbalancing.amazonaws.com")],
                actions=["s3:PutObject"],
                resources=[
                    self.access_log.arn_for_objects(f"{prefix}/AWSLogs/{Aws.ACCOUNT_ID}/*")
                    for prefix in (BALANCER_PREFIX, CONNECTION_PREFIX)
                ],
                conditions={
                    "ArnLike": {"aws:SourceArn": balancers},
                    "StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID},
                },
            )
        )

    def _build_plans(self, key: kms.IKey, retention_days: int) -> s3.Bucket:
        # Versioned although plans are written once: a plan lost during a purge cannot be written again, because its
        # manifests may be deleted already. No role of the service may delete here; the lifecycle rules do.
        return s3.Bucket(
            self,
            "Plans",
            encryption=s3.BucketEncryption.KMS,
            encryption_key=key,
            bucket_key_enabled=True,
            versioned=True,
            **_PRIVATE,
            server_access_logs_bucket=self.access_log,
            server_access_logs_prefix="plans/",
            lifecycle_rules=[
                s3.LifecycleRule(
                    id="expire",
                    expiration=Duration.days(retention_days),
                    noncurrent_version_expiration=Duration.days(30),
                    abort_incomplete_multipart_upload_after=Duration.days(1),
                ),
                s3.LifecycleRule(id="forget-markers", expired_object_delete_marker=True),
            ],
        )

    def _build_truststore(self) -> s3.Bucket:
        # Versioned because API Gateway loads a changed trust store only by its new version.
        return s3.Bucket(
            self,
            "TrustStore",
            encryption=s3.BucketEncryption.S3_MANAGED,  # public certificates, read by API Gateway
            versioned=True,
            **_PRIVATE,
            server_access_logs_bucket=self.access_log,
            server_access_logs_prefix="truststore/",
        )
