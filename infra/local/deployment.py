"""Deploys the service to the backends: resources, functions, state machine, EMR endpoint, queue and schedule."""

import contextlib
import hashlib
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from delegation.idempotency.settings import KeySettings
from delegation.wiring.types import policies_of
from infra.environment.context import ROOT
from infra.environment.functions import (
    DISPATCH_BATCH_SIZE,
    DISPATCH_MAX_CONCURRENCY,
    FUNCTIONS,
    GATEWAY,
    NOTIFICATION_BATCH_SIZE,
    NOTIFICATION_VISIBILITY_SECONDS,
    Function,
    deployed_functions,
    notifies,
)
from infra.environment.resources import Resources, environment, packaged_job
from infra.local import resources
from infra.local.aws.server import ACCOUNT, REGION
from infra.local.aws.triggers import Clock, Mapping, Poller
from infra.local.backends import Backends, Endpoints, client
from infra.local.emr.endpoint import EmrServerlessEndpoint
from infra.local.emr.spark_jobs import LocalSparkJobs
from infra.local.identities import TOKEN_AUDIENCE, Identities
from infra.local.lambdas.functions import FunctionSpec, LambdaPool, LocalFunction
from infra.local.options import StackOptions
from infra.package.parts import ARCHIVES, SPARK
from infra.package.trees import add_sources, write_tar

ICEBERG: Final = "1.12.0"
JARS: Final = (
    f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{ICEBERG}",
    f"org.apache.iceberg:iceberg-aws-bundle:{ICEBERG}",
)
"""What a job that rewrites loads, of the release of Spark on this machine; Spark gets them from Maven's repository."""
ENTRY_POINT: Final = ROOT / "spark" / "run_task.py"


@dataclass(frozen=True, slots=True)
class PublishedCode:
    """The URLs of the jobs' main file and of their archive, which has the service's sources alone."""

    entry_point: str
    archive: str


def publish(s3: Any, bucket: str) -> PublishedCode:
    """Upload the entry point and an archive of the sources; raises botocore's errors."""
    with tempfile.TemporaryDirectory() as folder:
        tree, archive = Path(folder) / SPARK, Path(folder) / ARCHIVES[SPARK]
        tree.mkdir()
        add_sources(tree)
        write_tar(tree, archive)
        return PublishedCode(*(_upload(s3, bucket, path) for path in (ENTRY_POINT, archive)))


def asset_key(path: Path) -> str:
    """Return the key of a file's asset: its hash and the *last* extension of its name (aws-cdk-lib, `AssetStaging`)."""
    return f"{hashlib.sha256(path.read_bytes()).hexdigest()}{path.suffix}"


def installed_libraries() -> tuple[str, ...]:
    """Return the directories of the libraries that a package has and an archive of sources lacks."""
    return tuple(dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib")))


def _upload(s3: Any, bucket: str, path: Path) -> str:
    key = asset_key(path)
    s3.upload_file(str(path), bucket, key)
    return f"s3://{bucket}/{key}"


JOB_ROLE = f"arn:aws:iam::{ACCOUNT}:role/delegation-job"
# Instances of a function that run at once: each caller that waits for a purge occupies one of `api`.
_CONCURRENCY = {"api": 24, GATEWAY.name: 24}
_DEFAULT_CONCURRENCY = 6
_RECEIVERS_HERE = {"DELEGATION_CALLBACK_LOOPBACK": "true"}
"""Receivers of the local stack's callbacks are on this machine, which a deployment never calls."""
_WARM = ("authorizer", "api", "dispatcher", "acquire", "prepare")


@dataclass(frozen=True, slots=True)
class LocalDeployment:
    endpoints: Endpoints
    queue: resources.Queue
    state_machine_arn: str


def deploy(
    options: StackOptions,
    *,
    backends: Backends,
    identities: Identities,
    lambdas: LambdaPool,
    logs: Path,
    cleanup: contextlib.ExitStack,
) -> LocalDeployment:
    """Create the resources and start every part; `cleanup` ends the started parts, the functions first."""
    aws, keys = backends.aws, backends.endpoints.keys
    emr = _start_emr(backends.endpoints, logs, cleanup)
    endpoints = replace(backends.endpoints, emr_serverless=emr.url)
    keys_expire = KeySettings.from_properties(options.all_properties()).cleanup
    resources.create_tables(client("dynamodb", endpoints.dynamodb, keys), keys_expire=keys_expire)
    sqs = aws.client("sqs")
    queue = resources.create_queue(sqs)
    s3 = client("s3", endpoints.s3, keys)
    resources.create_buckets(s3, resources.CODE_BUCKET)
    described = _with_code(_describe(options, backends, identities, emr, queue), publish(s3, resources.CODE_BUCKET))
    if options.gateway:
        resources.create_tombstones(client("dynamodb", endpoints.dynamodb, keys))
        described = replace(described, tombstones_table=resources.TOMBSTONES_TABLE)
    arns = {name: lambdas.arn(name) for name in FUNCTIONS}
    machine = resources.create_state_machine(aws.client("stepfunctions"), arns, account=ACCOUNT)
    described = replace(described, state_machine_arn=machine)
    notifications = _create_notification_queues(options, sqs)
    if notifications:
        described = _notifying(options, described, backends, identities, notifications)
    for function in deployed_functions(described.properties).values():
        _add_function(lambdas, function, described, endpoints)
    if options.gateway:
        _add_gateway(lambdas, described, backends, endpoints)
    for each in notifications:
        _start_poller(sqs, each, lambdas.function("notifier"), NOTIFICATION_BATCH_SIZE, cleanup)
    _start_poller(sqs, queue, lambdas.function("dispatcher"), DISPATCH_BATCH_SIZE, cleanup)
    clock = Clock(lambdas.function("sweeper"), interval_seconds=options.sweep_seconds, region=REGION, account=ACCOUNT)
    # `cleanup` runs in reverse: it ends the functions first, so that poller and clock wait for no answer.
    cleanup.callback(clock.stop)
    cleanup.callback(lambdas.stop)
    clock.start()
    for name in _WARM:
        lambdas.function(name).warm()
    return LocalDeployment(endpoints, queue, machine)


def _create_notification_queues(options: StackOptions, sqs: Any) -> list[resources.Queue]:
    """Create the queues of callbacks, of events and for receivers set apart, if ends of tasks are notified."""
    names = resources.NOTIFICATION_QUEUES if notifies(options.all_properties()) else ()
    return [resources.create_queue(sqs, name, visibility_seconds=NOTIFICATION_VISIBILITY_SECONDS) for name in names]


def _notifying(
    options: StackOptions,
    described: Resources,
    backends: Backends,
    identities: Identities,
    queues: Sequence[resources.Queue],
) -> Resources:
    """Return the resources with those of notifications; receivers may have certificates of the stack's authority."""
    names = policies_of(options.all_properties()).notifications.callbacks
    secrets_manager = backends.aws.client("secretsmanager")
    callbacks, events, apart = queues
    return replace(
        described,
        notification_queue_url=callbacks.url,
        event_queue_url=events.url,
        apart_queue_url=apart.url,
        callback_keys_arn=resources.create_callback_keys(secrets_manager, names, options.state_dir),
        callback_authorities=identities.authority.files.cert.read_text(encoding="utf-8"),
    )


def _start_poller(
    sqs: Any, queue: resources.Queue, function: LocalFunction, batch_size: int, cleanup: contextlib.ExitStack
) -> None:
    mapping = Mapping(queue.url, queue.arn, REGION, batch_size=batch_size, maximum_concurrency=DISPATCH_MAX_CONCURRENCY)
    poller = Poller(sqs, mapping, function)
    cleanup.callback(poller.stop)
    poller.start()


def _add_gateway(lambdas: LambdaPool, described: Resources, backends: Backends, endpoints: Endpoints) -> None:
    """Deploy the gateway; it calls the catalog itself, and verifies its callers' tokens with the catalog's key."""
    own = replace(
        described,
        gateway_base_path=urlsplit(backends.polaris.url).path.rstrip("/"),
        token_issuer="polaris",  # noqa: S106 - the name of an issuer
        token_jwks_url=None,
        token_public_key=backends.polaris.public_key,
        token_audience=None,
    )
    _add_function(lambdas, GATEWAY, own, endpoints)
    lambdas.function(GATEWAY.name).warm()


def _add_function(lambdas: LambdaPool, function: Function, described: Resources, endpoints: Endpoints) -> None:
    lambdas.add(
        FunctionSpec(
            name=function.name,
            handler=function.handler,
            timeout_seconds=function.timeout_seconds,
            memory_mb=function.memory_mb,
            environment={**environment(function.name, described), **endpoints.environment(), **_RECEIVERS_HERE},
            concurrency=function.reserved_concurrency or _CONCURRENCY.get(function.name, _DEFAULT_CONCURRENCY),
        )
    )


def _start_emr(endpoints: Endpoints, logs: Path, cleanup: contextlib.ExitStack) -> EmrServerlessEndpoint:
    def download(bucket: str, key: str, target: Path) -> None:
        with contextlib.closing(client("s3", endpoints.s3, endpoints.keys)) as s3:
            s3.download_file(bucket, key, str(target))

    jobs = LocalSparkJobs(
        log_folder=logs / "emr",
        environment=endpoints.environment(),
        download=download,
        libraries=installed_libraries(),
    )
    emr = EmrServerlessEndpoint(jobs, region=REGION, account=ACCOUNT).start()
    cleanup.callback(emr.stop)
    return emr


def _with_code(described: Resources, code: PublishedCode) -> Resources:
    return replace(
        described,
        emr_entry_point=code.entry_point,
        emr_spark_parameters=packaged_job(code.archive),
        emr_jars=",".join(JARS),
    )


def _describe(
    options: StackOptions,
    backends: Backends,
    identities: Identities,
    emr: EmrServerlessEndpoint,
    queue: resources.Queue,
) -> Resources:
    """Return the values for the functions' variables; the caller adds the state machine, which needs their ARNs."""
    service_id, service_secret = backends.polaris.service
    secret = resources.create_secret(backends.aws.client("secretsmanager"), service_id, service_secret)
    described = Resources(
        realm=backends.polaris.realm,
        tasks_table=resources.TASKS_TABLE,
        idempotency_table=resources.IDEMPOTENCY_TABLE,
        references_table=resources.REFERENCES_TABLE,
        queue_url=queue.url,
        plan_bucket=resources.PLAN_BUCKET,
        polaris_url=backends.polaris.url,
        polaris_secret_arn=secret,
        polaris_scope=backends.polaris.service_scope,
        emr_application_id=emr.application_id,
        emr_job_role_arn=JOB_ROLE,
        client_subject=identities.subject,
        client_issuer=identities.authority.subject,
        operator_subjects=identities.operator_subject,
        token_issuer=identities.issuer.issuer,
        token_jwks_url=identities.issuer.jwks_url,
        token_audience=TOKEN_AUDIENCE,
        token_scope=identities.scope,
        properties=options.all_properties(),
    )
    limit = options.inline_max_files
    return described if limit is None else replace(described, inline_max_files=limit)
