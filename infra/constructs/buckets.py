"""The service's buckets: plans and receipts, the trust store, and the access log of both."""

from typing import Final

from aws_cdk import Aws, Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.constructs.logs import KEPT
from infra.constructs.security.nag import acknowledge

BALANCER_PREFIX: Final = "load-balancer"
CONNECTION_PREFIX: Final = "load-balancer-connections"


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
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            removal_policy=KEPT,
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
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            removal_policy=KEPT,
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
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            removal_policy=KEPT,
            server_access_logs_bucket=self.access_log,
            server_access_logs_prefix="truststore/",
        )
